"""Every scenario can fail: what it is about is taken away, and just the probes that need it turn red.

``test_mutants`` does the same for single scenarios and tells which expectations fail.
"""

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest
from breakages import BREAKAGES, Breakage
from edits import EDITS, Edit
from forgetting import FORGETTING
from sandboxed import ROOT
from stepping import STEPPING
from test_mutants import MUTANTS, PROXY_IS_GONE, RULES_ARE_FLUSHED, name_of, run

SCENARIOS = ROOT / "scenarios"
SUFFIX = ".lab.yaml"
FAMILY = re.compile(r"(?<=[\[-])ipv[46](?=[]-])")  # the last one of an id: before it may stand those that the lab has


@dataclass
class Seen:
    """The probes of each file that do not pass in some case of it, and those of them that hold over a whole family."""

    red: dict[str, set[str]]
    over_one_family: set[str]


def seen_in(files: list[Path], below: Path, mutation: Path | None) -> Seen:
    found: dict[str, set[str]] = {file.relative_to(below).as_posix().removesuffix(SUFFIX): set() for file in files}
    dialled, failed = defaultdict(set), defaultdict(set)
    _, cases = run([str(file) for file in files], mutation)
    for probe in (probe for probes in cases for probe in probes):
        name, family = name_of(probe), FAMILY.findall(probe["name"])[-1:]
        file = (ROOT / probe["position"]["file"]).relative_to(below).as_posix().removesuffix(SUFFIX)
        dialled[file, name].update(family)
        if probe["judgement"] != "pass":
            found[file].add(name)
            failed[file, name].update(family)
    return Seen(found, {name for (file, name), families in failed.items() if families != dialled[file, name]})


@pytest.mark.parametrize("breakage", [*BREAKAGES, *FORGETTING, *STEPPING], ids=lambda breakage: breakage.name)
def test_what_needs_a_rule_turns_red_without_it(breakage: Breakage, tmp_path: Path) -> None:
    patch = f"import {breakage.module} as module\nmodule.{breakage.attribute}\n"
    patch += f"module.{breakage.attribute} = {breakage.becomes}\n"
    (tmp_path / "sitecustomize.py").write_text(patch, encoding="utf-8")
    files = [SCENARIOS / (name + SUFFIX) for name in breakage.red]
    assert seen_in(files, SCENARIOS, tmp_path) == Seen(breakage.red, breakage.over_one_family)


@pytest.mark.parametrize("edits", [EDITS[0::3], EDITS[1::3], EDITS[2::3]], ids=["one third", "another", "the last"])
def test_what_needs_a_setting_turns_red_without_it(edits: list[Edit], tmp_path: Path) -> None:
    files = []
    for edit in edits:
        text = (SCENARIOS / (edit.file + SUFFIX)).read_text(encoding="utf-8")
        assert edit.text in text
        edited = tmp_path / (edit.file + SUFFIX)
        edited.parent.mkdir(exist_ok=True)
        edited.write_text(text.replace(edit.text, edit.becomes), encoding="utf-8")
        files.append(edited)
    over_one_family = {name for edit in edits for name in edit.over_one_family}
    assert seen_in(files, tmp_path, None) == Seen({edit.file: edit.red for edit in edits}, over_one_family)


def test_no_scenario_is_without_a_mutation_that_turns_it_red() -> None:
    broken = {mutant.scenario.removeprefix("scenarios/").removesuffix(SUFFIX) for mutant in MUTANTS}
    broken |= {name for breakage in (*BREAKAGES, *FORGETTING, *STEPPING) for name, red in breakage.red.items() if red}
    broken |= {edit.file for edit in EDITS if edit.red}
    for file in (PROXY_IS_GONE, RULES_ARE_FLUSHED):  # by mutants with tests of their own
        broken.add(file.removeprefix("scenarios/").removesuffix(SUFFIX))
    broken.add("steps/a-table-is-deleted")  # in tests/engines: no engine of ours has that table
    assert broken == {path.relative_to(SCENARIOS).as_posix().removesuffix(SUFFIX) for path in SCENARIOS.rglob("*.yaml")}
