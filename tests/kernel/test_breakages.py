"""Every scenario can fail: what it is about is taken away, and just the probes that need it turn red.

``test_mutants`` does the same for single scenarios and tells which expectations fail.
"""

from pathlib import Path

import pytest
from breakages import BREAKAGES, Breakage
from edits import EDITS, Edit
from forgetting import FORGETTING
from mutated_labs import MutatedLabs, notices
from mutation import Mutation
from sandboxed import ROOT
from stepping import STEPPING
from test_mutants import MUTANTS, PROXY_IS_GONE, RULES_ARE_FLUSHED

SCENARIOS = ROOT / "scenarios"
SUFFIX = ".lab.yaml"


def red_in(labs: MutatedLabs, files: list[Path], below: Path, mutation: Mutation | None = None) -> dict[str, set[str]]:
    """The probes of each file that do not pass in some case of it."""
    found: dict[str, set[str]] = {file.relative_to(below).as_posix().removesuffix(SUFFIX): set() for file in files}
    for file, verdicts in labs.run(files, mutation):
        found[file.relative_to(below).as_posix().removesuffix(SUFFIX)] |= notices(verdicts).keys()
    return found


@pytest.mark.parametrize("breakage", [*BREAKAGES, *FORGETTING, *STEPPING], ids=lambda breakage: breakage.name)
def test_what_needs_a_rule_turns_red_without_it(breakage: Breakage, mutated_labs: MutatedLabs) -> None:
    files = [SCENARIOS / (name + SUFFIX) for name in breakage.red]
    mutation = Mutation(breakage.module, breakage.attribute, breakage.becomes)
    assert red_in(mutated_labs, files, SCENARIOS, mutation) == breakage.red


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.file)
def test_what_needs_a_setting_turns_red_without_it(edit: Edit, mutated_labs: MutatedLabs, tmp_path: Path) -> None:
    text = (SCENARIOS / (edit.file + SUFFIX)).read_text(encoding="utf-8")
    assert edit.text in text
    edited = tmp_path / (edit.file + SUFFIX)
    edited.parent.mkdir()
    edited.write_text(text.replace(edit.text, edit.becomes), encoding="utf-8")
    assert red_in(mutated_labs, [edited], tmp_path) == {edit.file: edit.red}


def test_no_scenario_is_without_a_mutation_that_turns_it_red() -> None:
    broken = {mutant.scenario.removeprefix("scenarios/").removesuffix(SUFFIX) for mutant in MUTANTS}
    broken |= {name for breakage in (*BREAKAGES, *FORGETTING, *STEPPING) for name, red in breakage.red.items() if red}
    broken |= {edit.file for edit in EDITS if edit.red}
    for file in (PROXY_IS_GONE, RULES_ARE_FLUSHED):  # by mutants with tests of their own
        broken.add(file.removeprefix("scenarios/").removesuffix(SUFFIX))
    broken.add("steps/a-table-is-deleted")  # in tests/engines: no engine of ours has that table
    assert broken == {path.relative_to(SCENARIOS).as_posix().removesuffix(SUFFIX) for path in SCENARIOS.rglob("*.yaml")}
