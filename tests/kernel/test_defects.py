"""A defect in code that no rule and no object shows turns exactly its probes red, and so does another setting.

``test_recorded_mutants`` does the same with mutants of rules, sets and objects, which are most.
"""

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import cache, reduce
from importlib import import_module
from pathlib import Path
from textwrap import shorten
from typing import Any

import pytest
from changes import names_a_changed_scenario
from defects import DEFECTS, CodeDefect
from edits import EDITS, Edit
from mutant_record import compare, failures, recorded
from mutated_labs import Defect, MutatedLabs, name_of, title
from mutation import Replacement
from sandboxed import ROOT
from test_mutants_of_objects import NOTICED as NOTICED_OBJECTS
from test_mutants_of_objects import NOTICED_IN_USERSPACE
from test_mutants_of_objects_in_a_guest import NOTICED_IN_IPVS
from test_mutants_of_rules import NOTICED, NOTICED_IN_NFTABLES
from test_schedulers_in_a_guest import SCENARIOS as SCHEDULERS

from proxylab.errors import CapabilityError, ExitCode
from proxylab.features.semantics.promise_coverage import RecordedMutant
from proxylab.verdict.model import Judgement

SCENARIOS = ROOT / "scenarios"
SUFFIX = ".lab.yaml"
ENGINE = "embedded/iptables"
RULES_ARE_FLUSHED = "steps/rules-are-flushed"
FAMILY = re.compile(r"(?<=[\[-])ipv[46](?=[]-])")  # the last part of an id, after parts of the lab itself

EDITED = {
    *("clusterip/one-client-port-to-two-services", "workloads/a-rolling-update-of-a-deployment"),
    *("bugs/94861-asymmetric-routing", "dns/on-a-bridge"),
}
"""Scenario files whose edits every run tries: one each of what another program, a workload, the node and DNS do."""


@dataclass
class Seen:
    """The probes of each file that do not pass in some case of it, and those of them that hold over one family."""

    red: dict[str, set[str]]
    over_one_family: set[str]
    failed: dict[str, dict[str, set[str]]] = field(default_factory=dict, compare=False)


@pytest.fixture(scope="module")
def labs_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], MutatedLabs]]:
    """Labs of an engine; one lab process for all defects."""
    with ExitStack() as stack:

        @cache
        def opened(engine: str) -> MutatedLabs:
            return stack.enter_context(closing(MutatedLabs(tmp_path_factory.mktemp("mutated"), engine)))

        yield opened


def seen_in(labs: MutatedLabs, files: list[Path], below: Path, defect: Defect | None = None) -> Seen:
    """What is red, and what is so over one of the families that were dialled."""
    found: dict[str, set[str]] = {place(file, below): set() for file in files}
    dialled, failed = defaultdict(set), defaultdict(set)
    expectations: dict[str, dict[str, set[str]]] = {file: {} for file in found}
    for path, verdicts in labs.run(files, defect):
        file = place(path, below)
        red = failures(verdicts)
        found[file] |= {*red}
        for item, those in red.items():
            expectations[file].setdefault(item, set()).update(those)
        for each in verdicts:
            if each.overall is Judgement.SKIP:
                continue
            name, family = name_of(each), FAMILY.findall(title(each))[-1:]
            dialled[file, name].update(family)
            if failures([each]):
                failed[file, name].update(family)
    one_family = {name for (file, name), families in failed.items() if families != dialled[file, name]}
    return Seen(found, one_family, expectations)


def place(file: Path, below: Path) -> str:
    return file.relative_to(below).as_posix().removesuffix(SUFFIX)


def named(edit: Edit) -> str:
    """What an edit does, in one line."""
    text, becomes = (shorten(each, 60) for each in (edit.text, edit.becomes))
    return f"{edit.file} with {becomes}" if becomes else f"{edit.file} without {text}"


def parts(defect: CodeDefect) -> Iterator[Any]:
    """The smallest file that a defect turns red; and all others, which are thorough: the same code lacks in them."""
    first, *others = sorted(defect.red, key=lambda name: (SCENARIOS / (name + SUFFIX)).stat().st_size)
    yield pytest.param(defect, (first,), id=f"{defect.name}: {first}")
    if others:
        changed = any(map(names_a_changed_scenario, others))
        marks = [] if changed else [pytest.mark.thorough]
        yield pytest.param(defect, others, id=f"{defect.name}: {', '.join(others)}", marks=marks)


def scenario_text(name: str) -> str:
    return (SCENARIOS / (name + SUFFIX)).read_text(encoding="utf-8")


@pytest.mark.parametrize(("defect", "names"), [part for defect in DEFECTS for part in parts(defect)])
def test_what_needs_a_decision_turns_red_without_it(
    defect: CodeDefect, names: Sequence[str], labs_of: Callable[[str], MutatedLabs]
) -> None:
    files = [SCENARIOS / (name + SUFFIX) for name in names]
    replaced = Replacement(defect.module, defect.attribute, defect.becomes)
    seen = seen_in(labs_of(defect.engine), files, SCENARIOS, replaced)
    due = {name: defect.red[name] for name in names}
    assert {file: red - defect.by_chance for file, red in seen.red.items()} == due
    assert seen.over_one_family - defect.by_chance == defect.over_one_family & set().union(*due.values())
    mutant = RecordedMutant(mutation=defect.name, engine=defect.engine, red={})
    compare(mutant, seen.failed, by_chance=defect.by_chance)


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(
            edit,
            id=edit.file,  # the mark has `./dev test` run the edit once a CoreDNS is here
            marks=[
                *([pytest.mark.needs_coredns] if "server: coredns\n" in scenario_text(edit.file) else []),
                *(
                    [pytest.mark.thorough]
                    if edit.file not in EDITED and not names_a_changed_scenario(edit.file)
                    else []
                ),
            ],
        )
        for edit in EDITS
    ],
)
def test_what_needs_a_setting_turns_red_without_it(
    edit: Edit, labs_of: Callable[[str], MutatedLabs], tmp_path: Path
) -> None:
    text = scenario_text(edit.file)
    assert edit.text in text
    edited = tmp_path / (edit.file + SUFFIX)
    edited.parent.mkdir()
    edited.write_text(text.replace(edit.text, edit.becomes), encoding="utf-8")
    try:
        seen = seen_in(labs_of(ENGINE), [edited], tmp_path)
    except CapabilityError as lacking:  # a program that a pod runs
        pytest.skip(str(lacking))
    assert seen == Seen({edit.file: edit.red}, edit.over_one_family)
    compare(RecordedMutant(mutation=named(edit), engine=ENGINE, setting=edit.text, red={}), seen.failed)


def test_rules_that_no_engine_restores_fail_the_step_that_waits_for_them(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import proxylab.engines.embedded.sync as module\n"
        "async def trusting(self, now):\n"
        "    self._look_at = now + self._periods.sync\n"
        "    return False\n"
        "module.EmbeddedEngine._is_flushed = trusting\n",
        encoding="utf-8",
    )
    file = str(SCENARIOS / (RULES_ARE_FLUSHED + SUFFIX))
    done = subprocess.run(
        [sys.executable, "-m", "proxylab", "run", "--no-bundles", "-o", "json", file],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT / "lab")])},
    )
    (case,) = json.loads(done.stdout)["scenarios"]
    assert [probe["judgement"] for probe in case["probes"]] == ["pass", "pass"]  # over each family
    waited = "step 'the iptables rules of the node are flushed[iptables]': gave up waiting: the rules of the engine"
    assert f"{waited} are present" in str(case["fault"])
    assert done.returncode == ExitCode.FAILED


def test_every_sentinel_is_a_row() -> None:
    assert {edit.file for edit in EDITS} >= EDITED


def test_each_defect_replaces_code_that_exists() -> None:
    """Only the concern's run makes them all. That a function got another name, or is written in place, shows here."""
    missing = []
    for row in DEFECTS:
        module = import_module(row.module)
        *owners, name = row.attribute.split(".")
        try:
            missing += [] if name in vars(reduce(getattr, owners, module)) else [f"{row.name}: {row.attribute}"]
            eval(row.becomes, {"module": module})
        except AttributeError as error:
            missing.append(f"{row.name}: {error}")
    assert missing == []


def test_no_scenario_is_without_a_mutation_that_turns_it_red() -> None:
    broken = {file for mutant in recorded() for file, red in mutant.red.items() if red}
    broken |= {RULES_ARE_FLUSHED, *SCHEDULERS.values()}
    broken |= {scenario for scenario, _change in (*NOTICED, *NOTICED_IN_NFTABLES)}
    broken |= {scenario for scenario, _, _ in (*NOTICED_OBJECTS, *NOTICED_IN_USERSPACE, *NOTICED_IN_IPVS)}
    broken |= {"steps/nftables-table-deleted", "steps/proxy-mode-changes-from-nftables"}  # in tests/engines
    broken |= {"steps/downgrade-node-by-node"}
    broken |= {
        "conntrack/table-is-full",
        "conntrack/flowtable-of-a-node",
    }
    assert {place(path, SCENARIOS) for path in SCENARIOS.rglob(f"*{SUFFIX}")} == broken


def test_the_record_says_nothing_of_other_defects_than_the_tables() -> None:
    """That each of these probes turns red, the tests of the tables show. A mutant without a record proves nothing.

    What it says of mutants of rules and objects, ``test_recorded_mutants`` shows.
    """
    due: dict[tuple[str, str], dict[str, set[str]]] = defaultdict(dict)
    for defect in DEFECTS:
        due[defect.name, defect.engine] |= {file: red - defect.by_chance for file, red in defect.red.items()}
    for edit in EDITS:
        due[named(edit), ENGINE][edit.file] = edit.red
    written = {
        (each.mutation, each.engine, file): {*red}
        for each in recorded()
        if not each.rule_class
        for file, red in each.red.items()
    }
    assert written == {(*key, file): red for key, files in due.items() for file, red in files.items()}
