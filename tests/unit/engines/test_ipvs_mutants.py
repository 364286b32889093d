"""The classes of what mode ipvs programs, and their mutants."""

import asyncio

import pytest
from hypothesis import given, settings
from memory_ipvs import MemoryIpvs, planned, synced
from rule_cases import Addresses, case, facts, here_and_there, load_balancer
from rule_worlds import World, worlds
from thoroughness import examples as many

from proxylab.addresses import Family
from proxylab.engines.embedded.ipvs.mutants import MUTANT_LINES, mutated_tables
from proxylab.engines.embedded.ipvs.tables import Tables, plan_tables
from proxylab.engines.embedded.ipvs.texts import load, print_tables
from proxylab.engines.embedded.ipvs.writer import IpvsWriter
from proxylab.engines.embedded.mutation import ABSENT, Mutation, mutated
from proxylab.engines.embedded.ports import PortTracker
from proxylab.engines.embedded.proxier import ModeProxier

OWN_TABLES = ("ipset ", "ipvs ", "kube-ipvs0 ")


def printed(tables: Tables, family: Family) -> str:
    return print_tables(tables.sets(family), tables.servers.values(), tables.bound)


def classes(family: Family) -> set[str]:
    a = Addresses(family)
    served = load_balancer(
        a, external_ips=(a.of("external", 9),), source_ranges=(a.narrow("pod"),), affinity_timeout=10800
    )
    text = printed(
        planned(case(a, (served, here_and_there(a)), node=facts(a, interface_addresses=(a.of("node", 2),))), family),
        family,
    )
    return {*MUTANT_LINES.classes(text)}


def test_both_families_have_the_same_classes_and_each_kind_of_frontend_its_own() -> None:
    found = classes(Family.IPV4)
    assert found == classes(Family.IPV6)
    assert {
        "ipset KUBE-LOOP-BACK",
        "ipset KUBE-LOAD-BALANCER-SOURCE-CIDR",
        "ipvs KUBE-CLUSTER-IP -A ENDPOINT -s rr -p SECONDS",
        "ipvs KUBE-EXTERNAL-IP -a ENDPOINT -r ENDPOINT",
        "ipvs KUBE-LOAD-BALANCER -a ENDPOINT -r ENDPOINT",
        "ipvs KUBE-NODE-PORT -A ENDPOINT -s rr -p SECONDS",
        "kube-ipvs0 inet ADDRESS",
    } <= found


def test_the_rules_of_both_families_have_the_same_classes_although_the_kernel_cuts_names_of_sets() -> None:
    found = {}
    for family in Family:
        a = Addresses(family)
        served = load_balancer(a, source_ranges=(a.narrow("pod"),))
        it = case(a, (served, here_and_there(a)), node=facts(a))
        text = load(it.cluster, it.node, it.settings, family, ())
        lines = zip(text.split("\n"), MUTANT_LINES.classes(text), strict=True)
        found[family] = {rule for line, rule in lines if "--match-set" in line}
    assert found[Family.IPV4] == found[Family.IPV6]
    assert any("--match-set KUBE-LOAD-BALANCER-SOURCE-CIDR " in rule for rule in found[Family.IPV6])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("add KUBE-LOOP-BACK 10.42.0.10,tcp:8080,10.42.0.10", {ABSENT: []}),
        (
            "-A -t 10.96.0.20:80 -s rr -p 10800",
            {
                ABSENT: [],
                "-s sh": ["-A -t 10.96.0.20:80 -s sh -p 10800"],
                "without -p": ["-A -t 10.96.0.20:80 -s rr"],
                "half the -p": ["-A -t 10.96.0.20:80 -s rr -p 5400"],
            },
        ),
        (
            "-a -u [fd00:96::20]:53 -r [fd00:42::10]:5353 -m -w 1",
            {
                ABSENT: [],
                "-w 0": ["-a -u [fd00:96::20]:53 -r [fd00:42::10]:5353 -m -w 0"],
                "-r of another address": ["-a -u [fd00:96::20]:53 -r [fd00:42::11]:5353 -m -w 1"],
                "-r of another port": ["-a -u [fd00:96::20]:53 -r [fd00:42::10]:5354 -m -w 1"],
            },
        ),
        ("inet 10.96.0.20", {ABSENT: []}),
    ],
)
def test_each_entry_can_be_absent_and_each_option_changed(line: str, expected: dict[str, list[str]]) -> None:
    (rule,) = MUTANT_LINES.classes(line)
    assert {change: list(lines) for change, lines in MUTANT_LINES.mutants(rule, line).items()} == expected


@given(worlds)
@settings(max_examples=many(5), deadline=None)
def test_mutated_tables_print_as_their_mutated_text(world: World) -> None:
    (family, chosen, node), cluster = world
    tables = plan_tables(PortTracker(family, node.name).update(cluster), node, chosen, family)
    text = printed(tables, family)
    for line, rule in zip(text.split("\n"), MUTANT_LINES.classes(text), strict=True):
        assert rule or line.startswith(("#", "create ")) or not line
        for change in MUTANT_LINES.mutants(rule, line) if rule else ():
            assert MUTANT_LINES.suggestion(rule, change)
            mutation = Mutation(rule, change)
            wanted = mutated(text, mutation, MUTANT_LINES).split("\n")
            servers = {each.split(" -s ")[0].removeprefix("-A ") for each in wanted if each.startswith("-A ")}
            # A destination needs its server.
            wanted = [each for each in wanted if each[:2] != "-a" or each[3:].split(" -r ")[0] in servers]
            assert sorted(printed(mutated_tables(tables, mutation, family), family).split("\n")) == sorted(wanted)


@given(worlds)
@settings(max_examples=many(5), deadline=None)
def test_every_rule_has_a_class_with_mutants(world: World) -> None:
    (family, chosen, node), cluster = world
    text = load(cluster, node, chosen, family, ())
    for line, rule in zip(text.split("\n"), MUTANT_LINES.classes(text), strict=True):
        if line.startswith(("-A KUBE", "-I ")):
            assert not rule.startswith(OWN_TABLES)
            assert MUTANT_LINES.mutants(rule, line)
        assert rule or not line.startswith(("-", "add ", "inet"))


def test_a_mutation_stays_through_all_syncs_and_the_proxier_takes_it_for_its_plan() -> None:
    a, kernel = Addresses(Family.IPV4), MemoryIpvs()
    given_case = case(
        a,
        (load_balancer(a), here_and_there(a)),
        node=facts(a, interface_addresses=(a.of("loopback", 1), a.of("node", 2))),
    )
    mutation = Mutation("ipvs KUBE-CLUSTER-IP -A ENDPOINT -s rr", ABSENT)
    proxier = ModeProxier(IpvsWriter(Family.IPV4, kernel, given_case.settings, mutation))
    cluster_ip = a.of("cluster", 20)
    for full in (False, False, True):
        synced(proxier, given_case, full=full)
        assert {each.address for each in kernel.servers.values()}.isdisjoint({cluster_ip})
        assert cluster_ip in kernel.bound
        assert kernel.servers
        assert asyncio.run(proxier.is_intact())
