"""Every scenario can fail: a test removes its subject, and exactly the probes that need it turn red.

``test_mutants`` does the same for single scenarios, and checks which expectations fail.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from importlib import import_module
from pathlib import Path
from textwrap import shorten
from typing import Any

import pytest
from breakages import BREAKAGES, Breakage
from edits import EDITS, Edit
from forgetting import FORGETTING
from health_answers import HEALTH_ANSWERS
from misnaming import MISNAMING
from mutant_record import compare, failures, recorded
from mutated_labs import MutatedLabs, name_of, title
from mutation import Mutation
from sandboxed import ROOT
from single_rules import SINGLE_RULES
from stepping import STEPPING
from test_broken_promises import EVERY as EVERY_BROKEN_PROMISE
from test_mutants import MUTANTS, PROXY_IS_GONE, RULES_ARE_FLUSHED
from test_mutants_in_a_guest import IN_A_GUEST
from test_mutants_of_objects import NOTICED as NOTICED_OBJECTS
from test_mutants_of_objects import NOTICED_IN_USERSPACE
from test_mutants_of_objects_in_a_guest import NOTICED_IN_IPVS
from test_mutants_of_rules import NOTICED, NOTICED_IN_NFTABLES
from test_schedulers_in_a_guest import SCENARIOS as SCHEDULERS

from proxylab.errors import CapabilityError
from proxylab.verdict.model import Judgement

SCENARIOS = ROOT / "scenarios"
SUFFIX = ".lab.yaml"
ENGINE = "embedded/iptables"
EVERY = (*BREAKAGES, *FORGETTING, *STEPPING, *MISNAMING, *SINGLE_RULES, *HEALTH_ANSWERS)
FAMILY = re.compile(r"(?<=[\[-])ipv[46](?=[]-])")  # the last part of an id, after parts of the lab itself


SENTINELS = {
    # The chains of a Service, and what they decide.
    *("no DNAT", "one in n for every endpoint", "no memory of clients", "half of timeoutSeconds"),
    *("every source is of the range", "no short circuit", "no masquerade of a pod that reaches itself"),
    # Where a packet enters, and what has no endpoint.
    *("no external IPs", "no node ports", "no load-balancer IPs", "the policy Local rejects nothing"),
    *("no refusal at the cluster IP", "refusals of packets that begin no connection", "no guard of loopback"),
    *("no masquerade", "a mark that nothing clears", "FORWARD accepts no packets of open connections"),
    # Which endpoints serve.
    *("no last resort", "no hints", "incomplete zone hints count", "endpoints that are not ready serve"),
    *("a node without local endpoint rejects", "every Service is ours", "every port is one of TCP"),
    # What a proxy does besides.
    *("no flow of UDP is forgotten after any change", "health that looks at no Node"),
    *("livez asks whether the node stays", "health checks count endpoints of all nodes"),
    *("headless Services without a name", "a beginning that looks at no other mode's rules"),
}
"""One defect of each kind of chain and decision, which every run tries; the others are thorough.

``proxylab mutate`` removes and changes each rule that the engine loads, and each field that a proxy is shown
(``tests/benchmarks/test_mutants_of_the_catalogue.py``); ``test_mutants_of_rules`` and ``test_mutants_of_objects`` have
what only one scenario notices.
"""

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


def seen_in(labs: MutatedLabs, files: list[Path], below: Path, mutation: Mutation | None = None) -> Seen:
    found: dict[str, set[str]] = {file.relative_to(below).as_posix().removesuffix(SUFFIX): set() for file in files}
    dialled, failed = defaultdict(set), defaultdict(set)
    expectations: dict[str, dict[str, set[str]]] = {file: {} for file in found}
    for path, verdicts in labs.run(files, mutation):
        file = path.relative_to(below).as_posix().removesuffix(SUFFIX)
        for item, those in failures(verdicts).items():
            expectations[file].setdefault(item, set()).update(those)
        for each in verdicts:
            name, family = name_of(each), FAMILY.findall(title(each))[-1:]
            dialled[file, name].update(family)
            if each.overall is not Judgement.PASS:
                found[file].add(name)
                failed[file, name].update(family)
    one_family = {name for (file, name), families in failed.items() if families != dialled[file, name]}
    return Seen(found, one_family, expectations)


def named(edit: Edit) -> str:
    """What an edit does, in one line."""
    text, becomes = (shorten(each, 60) for each in (edit.text, edit.becomes))
    return f"{edit.file} with {becomes}" if becomes else f"{edit.file} without {text}"


def parts(breakage: Breakage) -> Iterator[Any]:
    """The smallest file that a breakage turns red; and all others, which are thorough: the same rule lacks in them."""
    first, *others = sorted(breakage.red, key=lambda name: (SCENARIOS / (name + SUFFIX)).stat().st_size)
    marks = [] if breakage.name in SENTINELS else [pytest.mark.thorough]
    yield pytest.param(breakage, (first,), id=breakage.name, marks=marks)
    if others:
        yield pytest.param(breakage, others, id=f"{breakage.name}, elsewhere", marks=pytest.mark.thorough)


def scenario_text(name: str) -> str:
    return (SCENARIOS / (name + SUFFIX)).read_text(encoding="utf-8")


@pytest.mark.parametrize(("breakage", "names"), [part for breakage in EVERY for part in parts(breakage)])
def test_what_needs_a_rule_turns_red_without_it(
    breakage: Breakage, names: Sequence[str], mutated_labs: MutatedLabs
) -> None:
    files = [SCENARIOS / (name + SUFFIX) for name in names]
    mutation = Mutation(breakage.module, breakage.attribute, breakage.becomes)
    seen = seen_in(mutated_labs, files, SCENARIOS, mutation)
    due = {name: breakage.red[name] for name in names}
    assert {file: red - breakage.by_chance for file, red in seen.red.items()} == due
    assert seen.over_one_family - breakage.by_chance == breakage.over_one_family & set().union(*due.values())
    compare(breakage.name, ENGINE, seen.failed, by_chance=breakage.by_chance)


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(
            edit,
            id=edit.file,  # the mark has `./dev test` run the edit once a CoreDNS is here
            marks=[
                *([pytest.mark.needs_coredns] if "server: coredns\n" in scenario_text(edit.file) else []),
                *([pytest.mark.thorough] if edit.file not in EDITED else []),
            ],
        )
        for edit in EDITS
    ],
)
def test_what_needs_a_setting_turns_red_without_it(edit: Edit, mutated_labs: MutatedLabs, tmp_path: Path) -> None:
    text = scenario_text(edit.file)
    assert edit.text in text
    edited = tmp_path / (edit.file + SUFFIX)
    edited.parent.mkdir()
    edited.write_text(text.replace(edit.text, edit.becomes), encoding="utf-8")
    try:
        seen = seen_in(mutated_labs, [edited], tmp_path)
    except CapabilityError as lacking:  # a program that a pod runs
        pytest.skip(str(lacking))
    assert seen == Seen({edit.file: edit.red}, edit.over_one_family)
    compare(named(edit), ENGINE, seen.failed, setting=edit.text)


def test_every_sentinel_is_a_row() -> None:
    assert {breakage.name for breakage in EVERY} >= SENTINELS
    assert {edit.file for edit in EDITS} >= EDITED


def test_each_defect_replaces_code_that_exists() -> None:
    """Only the thorough run makes them all. That a function got another name, or is written in place, shows here."""
    defects = [(row.name, Mutation(row.module, row.attribute, row.becomes)) for row in EVERY]
    defects += [(row.name, Mutation(row.module, row.attribute, row.becomes)) for row in EVERY_BROKEN_PROMISE]
    missing = []
    for row_name, mutation in defects:
        module = import_module(mutation.module)
        *owners, name = mutation.attribute.split(".")
        try:
            missing += [] if name in vars(reduce(getattr, owners, module)) else [f"{row_name}: {mutation.attribute}"]
            eval(mutation.becomes, {"module": module})
        except AttributeError as error:
            missing.append(f"{row_name}: {error}")
    assert missing == []


def test_no_scenario_is_without_a_mutation_that_turns_it_red() -> None:
    broken = {mutant.scenario.removeprefix("scenarios/").removesuffix(SUFFIX) for mutant in MUTANTS}
    broken |= {name for breakage in EVERY for name, red in breakage.red.items() if red}
    broken |= {edit.file for edit in EDITS if edit.red}
    broken |= {row.scenario for row in IN_A_GUEST}
    broken |= {*SCHEDULERS.values()}
    broken |= {file for row in EVERY_BROKEN_PROMISE for file in row.files}
    for file in (PROXY_IS_GONE, RULES_ARE_FLUSHED):  # in mutants with tests of their own
        broken.add(file.removeprefix("scenarios/").removesuffix(SUFFIX))
    broken |= {scenario for scenario, _change in (*NOTICED, *NOTICED_IN_NFTABLES)}
    broken |= {scenario for scenario, _, _ in (*NOTICED_OBJECTS, *NOTICED_IN_USERSPACE, *NOTICED_IN_IPVS)}
    broken |= {"steps/nftables-table-deleted", "steps/proxy-mode-changes-from-nftables"}  # in tests/engines
    broken |= {"steps/downgrade-node-by-node"}
    assert broken == {
        path.relative_to(SCENARIOS).as_posix().removesuffix(SUFFIX) for path in SCENARIOS.rglob(f"*{SUFFIX}")
    }


def test_the_record_of_mutants_says_nothing_that_no_table_says() -> None:
    """That each of these probes turns red, the tests of the tables show. A mutant without a record proves nothing."""
    due: dict[tuple[str, str], dict[str, set[str]]] = defaultdict(dict)
    for breakage in EVERY:
        due[breakage.name, ENGINE] |= {file: red - breakage.by_chance for file, red in breakage.red.items()}
    for mutant in MUTANTS:
        file = mutant.scenario.removeprefix("scenarios/").removesuffix(SUFFIX)
        due[mutant.name, ENGINE][file] = {*mutant.fails}
    for edit in EDITS:
        due[named(edit), ENGINE][edit.file] = edit.red
    for row in IN_A_GUEST:
        due[row.named, row.engine][row.scenario] = {*row.red}
    elsewhere = {(row.name, row.engine) for row in EVERY_BROKEN_PROMISE}
    written = {
        (each.mutation, each.engine, file): {*red}
        for each in recorded()
        if (each.mutation, each.engine) not in elsewhere
        for file, red in each.red.items()
    }
    assert written == {key: due[key[:2]].get(key[2]) for key in written}
