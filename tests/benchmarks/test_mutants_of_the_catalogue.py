"""How long ``proxylab mutate`` takes for the whole catalogue in each mode, and for one scenario; and what survives."""

import json
import subprocess
import sys
import time
from typing import Any

import pytest
from guests import OWN
from sandboxed import ROOT

WHOLE_CATALOGUE = 45 * 60  # seconds, on two cores
ONE_SCENARIO = 60

pytestmark = [pytest.mark.benchmark, pytest.mark.budget, pytest.mark.timeout(WHOLE_CATALOGUE + 60)]
MODES = pytest.mark.parametrize(
    ("mode", "kernel"),
    [("iptables", "host"), ("nftables", "host"), ("userspace", "host"), pytest.param("ipvs", "uml", marks=OWN)],
)


def mutants(*arguments: str) -> tuple[list[dict[str, Any]], float]:
    """The verb's report, and the seconds that it took."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "proxylab", "mutate", *arguments, "--jobs", "auto", "-o", "json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr[-4000:]
    return json.loads(done.stdout), time.perf_counter() - began


def survivors(report: list[dict[str, Any]]) -> list[str]:
    return [f"{each['class']}: {each['mutation']}" for each in report if not (each["noticed"] or each["equivalent"])]


@MODES
def test_the_catalogue_notices_every_mutant_of_a_mode(mode: str, kernel: str) -> None:
    report, took = mutants("--engine", f"embedded/{mode}", "--kernel", kernel)
    equivalent = sum(bool(each["equivalent"]) for each in report)
    print(f"{mode}: {len(report)} mutants, {equivalent} equivalent, in {took / 60:.1f} min")  # noqa: T201
    assert survivors(report) == []
    assert took <= WHOLE_CATALOGUE


@MODES
def test_the_catalogue_notices_every_mutant_of_what_a_proxy_is_shown(mode: str, kernel: str) -> None:
    report, took = mutants("--objects", "--engine", f"embedded/{mode}", "--kernel", kernel)
    equivalent = sum(bool(each["equivalent"]) for each in report)
    print(f"{mode}: {len(report)} mutants, {equivalent} equivalent, in {took / 60:.1f} min")  # noqa: T201
    assert survivors(report) == []
    assert took <= WHOLE_CATALOGUE


def test_one_scenario_takes_a_minute() -> None:
    report, took = mutants("scenarios/clusterip/from-a-pod.lab.yaml")
    print(f"{len(report)} mutants on one scenario in {took:.1f} s")  # noqa: T201
    assert took <= ONE_SCENARIO
