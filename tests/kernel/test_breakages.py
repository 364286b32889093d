"""Every scenario can fail: what it is about is taken away, and just the probes that need it turn red.

``test_mutants`` does the same for single scenarios and tells which expectations fail.
"""

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


def red_in(files: list[Path], below: Path, mutation: Path | None) -> dict[str, set[str]]:
    """The probes of each file that do not pass in some case of it."""
    found: dict[str, set[str]] = {file.relative_to(below).as_posix().removesuffix(SUFFIX): set() for file in files}
    _, cases = run([str(file) for file in files], mutation)
    for probe in (probe for probes in cases for probe in probes):
        if probe["judgement"] != "pass":
            file = ROOT / probe["position"]["file"]
            found[file.relative_to(below).as_posix().removesuffix(SUFFIX)].add(name_of(probe))
    return found


@pytest.mark.parametrize("breakage", [*BREAKAGES, *FORGETTING, *STEPPING], ids=lambda breakage: breakage.name)
def test_what_needs_a_rule_turns_red_without_it(breakage: Breakage, tmp_path: Path) -> None:
    patch = f"import {breakage.module} as module\nmodule.{breakage.attribute}\n"
    patch += f"module.{breakage.attribute} = {breakage.becomes}\n"
    (tmp_path / "sitecustomize.py").write_text(patch, encoding="utf-8")
    files = [SCENARIOS / (name + SUFFIX) for name in breakage.red]
    assert red_in(files, SCENARIOS, tmp_path) == breakage.red


@pytest.mark.parametrize("edits", [EDITS[::2], EDITS[1::2]], ids=["these", "those"])
def test_what_needs_a_setting_turns_red_without_it(edits: list[Edit], tmp_path: Path) -> None:
    files = []
    for edit in edits:
        text = (SCENARIOS / (edit.file + SUFFIX)).read_text(encoding="utf-8")
        assert edit.text in text
        edited = tmp_path / (edit.file + SUFFIX)
        edited.parent.mkdir(exist_ok=True)
        edited.write_text(text.replace(edit.text, edit.becomes), encoding="utf-8")
        files.append(edited)
    assert red_in(files, tmp_path, None) == {edit.file: edit.red for edit in edits}


def test_no_scenario_is_without_a_mutation_that_turns_it_red() -> None:
    broken = {mutant.scenario.removeprefix("scenarios/").removesuffix(SUFFIX) for mutant in MUTANTS}
    broken |= {name for breakage in (*BREAKAGES, *FORGETTING, *STEPPING) for name, red in breakage.red.items() if red}
    broken |= {edit.file for edit in EDITS if edit.red}
    for file in (PROXY_IS_GONE, RULES_ARE_FLUSHED):  # by mutants with tests of their own
        broken.add(file.removeprefix("scenarios/").removesuffix(SUFFIX))
    broken.add("steps/a-table-is-deleted")  # in tests/engines: no engine of ours has that table
    assert broken == {path.relative_to(SCENARIOS).as_posix().removesuffix(SUFFIX) for path in SCENARIOS.rglob("*.yaml")}
