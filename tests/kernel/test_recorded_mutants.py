"""Mutants of rules, sets and objects turn the probes red that ``scenarios/mutations.json`` names: its proofs hold.

``proxylab mutate`` makes these mutants, and they name no function of an engine. ``mutant_record`` says how to add one.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import cache
from pathlib import Path

import pytest
from guests import OWN
from mutant_record import compare, defect_of, failures, recorded
from mutated_labs import MutatedLabs
from sandboxed import ROOT
from thoroughness import sentinels

from proxylab.cluster.configuration import Mode
from proxylab.engines.embedded.mutation import Mutation
from proxylab.engines.engine_names import mode_of, version_of
from proxylab.errors import CapabilityError
from proxylab.features.mutate.runs import mutants_of, ruled, with_objects
from proxylab.features.semantics.promise_coverage import RecordedMutant
from proxylab.scenario.cases import cases
from proxylab.scenario.load import load_scenario

Row = tuple[RecordedMutant, str]
Labs = Callable[[str, str], MutatedLabs]


def rows() -> Iterator[Row]:
    """The mutants of ``proxylab mutate``, each with each of its files: small files and few flows first."""
    found = [(mutant, file) for mutant in recorded() if mutant.rule_class for file in mutant.red]
    yield from sorted(found, key=lambda row: (row[1].startswith("spread/"), path_of(row[1]).stat().st_size))


def path_of(file: str) -> Path:
    return ROOT / "scenarios" / f"{file}.lab.yaml"


def kind_of(row: Row) -> tuple[str, str]:
    """The chain, the set or map, or the kind of object."""
    mutant, _ = row
    if mutant.objects:
        return mutant.engine, mutant.rule_class.partition(".")[0]
    table, *rest = mutant.rule_class.split()
    of_table = table in ("nat", "filter", "element", "ipset", "ipvs")
    return mutant.engine, f"{table} {rest[0]}" if of_table else table


def sort_of(row: Row) -> tuple[str, str]:
    """The table, a set or map, a rule of mode nftables, an object or a later event."""
    mutant, _ = row
    if mutant.objects:
        return mutant.engine, "later events" if mutant.rule_class.startswith("later") else "objects"
    table = mutant.rule_class.partition(" ")[0]
    return mutant.engine, table if table in ("nat", "filter", "element") else "rules"


def name_of_row(row: Row) -> str:
    mutant, file = row
    return f"{mutant.name} ({mutant.engine}): {file}"


def kernel_of_row(row: Row) -> str:
    """``uml`` for what few machines have: IPVS, netem, SCTP sockets."""
    mutant, file = row
    return "uml" if mutant.mode == Mode.IPVS or file.startswith(("links/", "sctp/connections")) else "host"


@pytest.fixture(scope="module")
def labs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Labs]:
    """Labs of an engine on a kernel, all in one lab process."""
    with ExitStack() as stack:

        @cache
        def opened(engine: str, kernel: str) -> MutatedLabs:
            return stack.enter_context(closing(MutatedLabs(tmp_path_factory.mktemp("mutated"), engine, kernel)))

        yield opened


def check(row: Row, labs: Labs) -> None:
    mutant, file = row
    try:
        ran = labs(mutant.engine, kernel_of_row(row)).run([path_of(file)], defect_of(mutant))
    except CapabilityError as lacking:  # a program that a pod runs
        pytest.skip(str(lacking))
    compare(mutant, {file: failures(each for _, judged in ran for each in judged)})


def test_each_mutant_can_be_made_of_what_a_scenario_has() -> None:
    """Most mutants run where the judge changed. That an engine writes another rule shows here, without a lab."""
    first = {(mutant.engine, mutant.name): file for mutant, file in reversed([*rows()])}
    named = defaultdict[tuple[str, str], list[RecordedMutant]](list)
    for mutant in recorded():
        if mutant.rule_class:
            named[first[mutant.engine, mutant.name], mutant.engine].append(mutant)
    missing = []
    for (file, engine), mutants in named.items():
        every = [
            case
            for case in cases(load_scenario(path_of(file)), mode_of(engine), version_of(engine))
            if not case.failures
        ]
        shown = {mutation for case in every for mutation in with_objects(case).objects}
        rules = [ruled(case, engine) for case in every] if any(not each.objects for each in mutants) else []
        made = {Mutation(each.rule_class, each.mutation) for each in mutants_of(rules, engine)} if rules else set()
        missing += [f"{each.name} of {file}" for each in mutants if defect_of(each) not in {*shown, *made}]
    assert missing == []


ON_ANY_KERNEL = [row for row in rows() if kernel_of_row(row) == "host"]
IN_A_GUEST = [row for row in rows() if kernel_of_row(row) == "uml"]


# One of each table and one of an object in each mode in every run; one of each chain, set and kind of object where the
# judge changed.
@pytest.mark.parametrize("row", sentinels(ON_ANY_KERNEL, kind_of, name_of_row, few=sort_of, concern="judge"))
def test_a_mutant_turns_red_what_the_record_says(row: Row, labs: Labs) -> None:
    check(row, labs)


@OWN
@pytest.mark.thorough
@pytest.mark.timeout(300)
@pytest.mark.parametrize("row", IN_A_GUEST, ids=name_of_row)
def test_a_mutant_turns_red_what_the_record_says_in_a_guest(row: Row, labs: Labs) -> None:
    check(row, labs)
