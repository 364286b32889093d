"""Every behaviour of upstream's end-to-end tests that needs a step has one; ``behaviours.yaml`` maps them."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

SCENARIOS = Path(__file__).parents[3] / "scenarios"


@cache
def read(path: Path) -> Any:
    with path.open(encoding="utf-8") as file:
        return next(yaml.safe_load_all(file))


BEHAVIOURS: dict[str, dict[str, list[dict[str, str]]]] = read(Path(__file__).with_name("behaviours.yaml"))
ROWS = [(f"{file}: {test}", row["step"]) for file, tests in BEHAVIOURS.items() for test in tests for row in tests[test]]


@pytest.mark.parametrize(("test", "where"), ROWS)
def test_a_behaviour_of_upstreams_tests_has_its_step(test: str, where: str) -> None:
    name, _, step = where.partition("::")
    (found,) = (each for each in read(SCENARIOS / f"{name}.lab.yaml")["spec"]["steps"] if each["name"] == step)
    assert found.get("probes") or found.get("expect"), f"nothing of {test!r} is judged in it"


def test_no_behaviour_is_without_a_step() -> None:
    assert [test for tests in BEHAVIOURS.values() for test in tests if not tests[test]] == []
    assert sum(map(len, BEHAVIOURS.values())) >= 58
