"""Bundles of earlier versions are read and judged as then: people attach them to reports, and look months later.

The folders of ``tests/golden/bundles`` begin with the day of the proxylab that wrote them. ``fields.json`` has what
bundles hold now. A field that goes, gets another name or means something else where it is absent needs a new
number of the format, and what brings the one before to it (``proxylab.report.older_bundles``). ``--update-golden``
writes the file anew.
"""

import json
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

from proxylab.errors import ScenarioError
from proxylab.plan.model import Plan
from proxylab.report import bundle, step_bundle
from proxylab.report.bundle import CASE, PLAN, Recorded, read_case, read_plan
from proxylab.report.older_bundles import OF_PROBES, OF_STEPS, Upgrades
from proxylab.report.step_bundle import STEP, RecordedStep, read_step
from proxylab.verdict.judge import judge, judge_step
from proxylab.verdict.model import Verdict

BUNDLES = Path(__file__).parent / "bundles"
FIELDS = BUNDLES / "fields.json"
REQUIRED = "required"

STRICTER = {("2026-11-23-name", "backends"): "inconclusive"}
"""Where the judge of today says otherwise: one flow does not show that two backends are reached."""


def judgements(verdicts: tuple[Verdict, ...]) -> list[tuple[str, str]]:
    return [(each.expectation, each.judgement) for each in verdicts]


@pytest.mark.parametrize("file", sorted(BUNDLES.rglob(CASE)), ids=lambda file: str(file.parent.name))
def test_an_older_probe_is_judged_as_then(file: Path) -> None:
    recorded = read_case(CASE, file.read_bytes())
    again = judge(recorded.probe, recorded.resolved, recorded.source, recorded.evidence)
    then = [(key, STRICTER.get((file.parent.name, key), each)) for key, each in judgements(recorded.verdicts)]
    assert judgements(again.verdicts) == then


@pytest.mark.parametrize("file", sorted(BUNDLES.rglob(STEP)), ids=lambda file: str(file.parent.name))
def test_an_older_step_is_judged_as_then(file: Path) -> None:
    old = read_step(STEP, file.read_bytes())
    again = judge_step(old.step, old.number, old.streams, old.sources, old.nodes, old.addresses, old.evidence)
    assert judgements(again.verdicts) == judgements(old.verdicts)


@pytest.mark.parametrize("file", sorted(BUNDLES.rglob(PLAN)), ids=lambda file: str(file.parent.name))
def test_an_older_plan_is_read(file: Path) -> None:
    assert read_plan(PLAN, file.read_bytes()).links


def test_a_name_and_the_address_to_dial_mean_what_they_meant() -> None:
    """Formats before 7 called them otherwise."""
    for day in ("2026-11-23", "2026-11-28"):
        question = read_case(CASE, (BUNDLES / f"{day}-headless-name" / CASE).read_bytes()).resolved.question
        assert question is not None
        assert [str(each) for each in (*(question.expected or ()), question.address)] == ["10.244.2.3", "10.244.2.4"]


def test_the_last_of_format_6_had_the_names_of_format_7() -> None:
    data = (BUNDLES / "2026-11-28-name" / CASE).read_bytes()
    assert b'"due":[' in data
    assert read_case(CASE, data) == read_case(CASE, data.replace(b'"due":[', b'"expected":['))


@pytest.mark.parametrize("resolved", ["null", "[]", '{"question":[]}', '{"question":{"due":1}}'])
def test_an_older_probe_that_others_changed_is_refused(resolved: str) -> None:
    with pytest.raises(ScenarioError, match="x: not a recorded case or step"):
        read_case("x", f'{{"format":6,"resolved":{resolved}}}'.encode())


def test_an_engine_of_a_step_is_killed_or_starts_in_a_mode_as_then() -> None:
    """Formats before 6 had one word for both."""
    engines = read_step(STEP, (BUNDLES / "2026-11-28-step-of-engines" / STEP).read_bytes()).step.change.engines
    assert {name: (each.action, each.mode) for name, each in engines.items()} == {
        "node-a": ("kill", ""),
        "node-b": ("restart", "nftables"),
    }


@pytest.mark.parametrize(("upgrades", "current"), [(OF_PROBES, bundle.FORMAT), (OF_STEPS, step_bundle.FORMAT)])
def test_each_format_leads_to_the_next(upgrades: Upgrades, current: int) -> None:
    assert list(upgrades) == list(range(min(upgrades), current))


def meanings(declared: Any, found: dict[str, Any]) -> dict[str, Any]:
    """The fields of each record with what their absence means, and the values of each enumeration."""
    if isinstance(declared, type) and issubclass(declared, Enum):
        found[declared.__name__] = sorted(str(each.value) for each in declared)
    elif not (isinstance(declared, type) and issubclass(declared, Struct)):
        for each in get_args(declared):
            meanings(each, found)
    elif declared.__name__ not in found:
        own = found[declared.__name__] = {}
        for each in fields(declared):
            default = each.default_factory() if each.default_factory is not NODEFAULT else each.default
            is_plain = not isinstance(default, Struct)
            own[each.encode_name] = REQUIRED if each.required else repr(default) if is_plain else type(default).__name__
        for hint in get_type_hints(declared).values():
            meanings(hint, found)
    return found


def test_what_bundles_hold_stays_readable(update_golden: bool) -> None:
    now: dict[str, Any] = {}
    for record in (Recorded, RecordedStep, Plan):
        meanings(record, now)
    if update_golden:
        FIELDS.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
    then = json.loads(FIELDS.read_bytes())
    lost = {name: [each for each in values if each not in now.get(name, ())] for name, values in then.items()}
    assert {name: values for name, values in lost.items() if values} == {}
    changed = {
        f"{name}.{key}": (meant, now[name][key])
        for name, values in then.items()
        if isinstance(values, dict)
        for key, meant in values.items()
        if now[name][key] not in (meant, REQUIRED)
    }
    needed = {
        f"{name}.{key}"
        for name, values in now.items()
        if isinstance(values, dict) and name in then
        for key, meant in values.items()
        if meant == REQUIRED and then[name].get(key) != REQUIRED
    }
    assert (changed, needed) == ({}, set())
