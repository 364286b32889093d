"""The classes of what mode nftables loads, and their mutants."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from rule_worlds import World, worlds
from thoroughness import examples as many

from proxylab.engines.embedded.mutation import ABSENT, Mutation, mutated
from proxylab.engines.embedded.nftables.loader import Present
from proxylab.engines.embedded.nftables.mutants import MUTANT_LINES
from proxylab.engines.embedded.nftables.render import render
from proxylab.engines.embedded.nftables.transaction import write_changes, write_table
from proxylab.features.mutate.runs import MutableCase, mutants_of
from proxylab.scenario.load import load_scenario

ROOT = Path(__file__).parents[3]

SERVICE, ENDPOINT = "service-HASHHASH-ns/web/tcp/http", "endpoint-HASHHASH-ns/web/tcp/http__10.0.0.1/80"


def class_of(line: str) -> str:
    (found,) = MUTANT_LINES.classes(line)
    return found


def mutants(line: str) -> dict[str, list[str]]:
    return {change: list(lines) for change, lines in MUTANT_LINES.mutants(class_of(line), line).items()}


@pytest.mark.parametrize(
    ("ipv4", "ipv6", "expected"),
    [
        (
            "add rule ip kube-proxy masquerading mark and 0x004000 != 0 mark set mark xor 0x004000 masquerade",
            "add rule ip6 kube-proxy masquerading mark and 0x8000 != 0 mark set mark xor 0x8000 masquerade",
            "masquerading mark and MARK != 0 mark set mark xor MARK masquerade",
        ),
        (
            f"add rule ip kube-proxy {SERVICE} meta l4proto tcp dnat to 10.0.0.1:80",
            "add rule ip6 kube-proxy service-OTHERONE-a/b/udp/ meta l4proto udp dnat to [fd00::1]:53",
            "service-* meta l4proto PROTOCOL dnat to ENDPOINT",
        ),
        (
            f"add element ip kube-proxy service-ips {{ 10.96.0.1 . tcp . 80 : goto {SERVICE} }}",
            "add element ip6 kube-proxy service-ips { fd00:: . sctp . 7 : goto service-OTHERONE-a/b/sctp/ }",
            "element service-ips : goto service-*",
        ),
        (
            'add element ip kube-proxy no-endpoint-nodeports { tcp . 30001 comment "a/b" : drop }',
            'add element ip6 kube-proxy no-endpoint-nodeports { udp . 30002 comment "a/b:c" : drop }',
            "element no-endpoint-nodeports : drop",
        ),
        (
            "add element ip kube-proxy cluster-ips { 10.96.0.1 }",
            "delete element ip6 kube-proxy cluster-ips { fd00:96::1 }",
            "element cluster-ips",
        ),
        (
            f"add rule ip kube-proxy firewall-{SERVICE[8:]} ip saddr != {{ 10.0.0.0/8, 192.0.2.1 }} drop",
            f"add rule ip6 kube-proxy firewall-{SERVICE[8:]} ip6 saddr != {{ fd00::/64 }} drop",
            "firewall-* ip saddr != { NETWORKS } drop",
        ),
    ],
)
def test_both_families_have_the_same_classes(ipv4: str, ipv6: str, expected: str) -> None:
    assert class_of(ipv4) == class_of(ipv6) == expected


@pytest.mark.parametrize(
    "line",
    [
        "add chain ip kube-proxy services",
        "delete element ip kube-proxy service-ips { 10.96.0.1 . tcp . 80 }",
        "flush map ip kube-proxy service-ips",
    ],
)
def test_other_commands_have_none(line: str) -> None:
    assert class_of(line) == ""


def test_each_match_is_loosened_and_each_statement_changed() -> None:
    head = f"add rule ip kube-proxy {SERVICE}"
    assert mutants(f"{head} ip daddr @cluster-ips ip saddr != 10.244.0.0/16 mark set mark or 0x004000") == {
        ABSENT: [],
        "without ip daddr @cluster-ips": [f"{head} ip saddr != 10.244.0.0/16 mark set mark or 0x004000"],
        "without ip saddr != NETWORK": [f"{head} ip daddr @cluster-ips mark set mark or 0x004000"],
        "or of another bit": [f"{head} ip daddr @cluster-ips ip saddr != 10.244.0.0/16 mark set mark or 0x008000"],
    }
    choice = "dnat ip addr . port to numgen random mod 2 map"
    assert mutants(f"{head} meta l4proto tcp {choice} {{ 0 : 10.0.0.1 . 80, 1 : 10.0.1.1 . 81 }}") == {
        ABSENT: [],
        "meta l4proto of TCP and UDP": [
            f"{head} meta l4proto {{ tcp, udp }} {choice} {{ 0 : 10.0.0.1 . 80, 1 : 10.0.1.1 . 81 }}"
        ],
        "without the last choice": [
            f"{head} meta l4proto tcp {choice.replace('2', '1')} {{ 0 : 10.0.0.1 . 80, 1 : 10.0.1.1 . 81 }}"
        ],
        "dnat to another address": [f"{head} meta l4proto tcp {choice} {{ 0 : 10.0.0.2 . 80, 1 : 10.0.1.2 . 81 }}"],
        "dnat to another port": [f"{head} meta l4proto tcp {choice} {{ 0 : 10.0.0.1 . 81, 1 : 10.0.1.1 . 82 }}"],
    }
    to_sctp = mutants(f"{head} meta l4proto sctp dnat to 10.0.0.1:80")["meta l4proto of TCP and UDP"]
    assert to_sctp == [f"{head} meta l4proto {{ sctp, tcp, udp }} dnat to 10.0.0.1:80"]  # what matched matches still
    element = 'add element ip kube-proxy no-endpoint-services { 10.96.0.1 . tcp . 80 comment "a/b" : VERDICT }'
    assert mutants(element.replace("VERDICT", "drop")) == {
        ABSENT: [element.replace("VERDICT", "continue")],
        ": accept": [element.replace("VERDICT", "accept")],
        ": goto reject-chain": [element.replace("VERDICT", "goto reject-chain")],
    }
    clients = (
        f"add set ip kube-proxy affinity-{ENDPOINT[9:]} {{ type ipv4_addr ; flags dynamic,timeout ; timeout 5s ; }}"
    )
    assert mutants(clients) == {"a time-out of a day": [clients.replace("5s", "86400s")]}


def test_an_element_that_is_absent_is_not_deleted_either() -> None:
    text = (
        "add element ip kube-proxy cluster-ips { 10.96.0.1 }\ndelete element ip kube-proxy cluster-ips { 10.96.0.2 }\n"
    )
    assert mutated(text, Mutation("element cluster-ips", ABSENT), MUTANT_LINES) == ""


@pytest.mark.parametrize("numbers", [(1, 2), (2, 1)])
def test_a_class_has_the_mutants_of_its_richest_rule(numbers: tuple[int, int]) -> None:
    head = f"add rule ip kube-proxy {SERVICE} numgen random"
    chosen = [f"{head} mod {number} vmap {{ 0 : goto {ENDPOINT} }}" for number in numbers]
    scenario = load_scenario(ROOT / "scenarios/clusterip/from-a-pod.lab.yaml")
    ruled = [MutableCase(scenario, {class_of(line): line}, {}) for line in chosen]
    assert [each.mutation for each in mutants_of(ruled, "embedded/nftables")] == [ABSENT, "without the last choice"]


@given(worlds, worlds)
@settings(max_examples=many(20), deadline=None)
def test_a_mutant_differs_from_its_line_and_every_line_with_a_verdict_has_one(before: World, after: World) -> None:
    (family, chosen, node), cluster = before
    first = render(cluster, node, chosen, family)
    second = render(after[1], node, chosen, family)
    for text in (write_table(first, Present(), rehook=True).text, write_changes(second, first).text):
        for rule, line in zip(MUTANT_LINES.classes(text), text.split("\n"), strict=True):
            if not rule:
                assert not line.startswith("add rule")
                continue
            found = MUTANT_LINES.mutants(rule, line)
            assert found
            for change, lines in found.items():
                assert list(lines) != [line]
                assert MUTANT_LINES.suggestion(rule, change)
