"""The classes of iptables rules, and their mutants."""

import pytest
from hypothesis import given, settings
from rule_worlds import World, worlds
from thoroughness import examples as many

from proxylab.engines.embedded.iptables.kernel_state import KernelState
from proxylab.engines.embedded.iptables.meaning import read_rules
from proxylab.engines.embedded.iptables.mutants import MUTANT_LINES
from proxylab.engines.embedded.iptables.render import render
from proxylab.engines.embedded.iptables.restore import restore
from proxylab.engines.embedded.mutation import ABSENT, Mutation, mutated

TO_CLUSTER_IP = "nat KUBE-SERVICES -d ADDRESS -p PROTOCOL --dport PORT -j KUBE-SVC-* # SERVICE cluster IP"
SVC, SEP = "KUBE-SVC-HV6DMF63W6MGLRDE", "KUBE-SEP-QKHRHCLFVYAPNTMT"


def text(*lines: str, table: str = "nat") -> str:
    return "\n".join([f"*{table}", *lines, "COMMIT", ""])


def class_of(line: str, table: str = "nat") -> str:
    return MUTANT_LINES.classes(text(line, table=table))[1]


def mutants(line: str, table: str = "nat") -> dict[str, list[str]]:
    return {change: list(lines) for change, lines in MUTANT_LINES.mutants(class_of(line, table), line).items()}


@pytest.mark.parametrize(
    ("written", "saved", "expected"),
    [
        (
            f'-A KUBE-SERVICES -m comment --comment "n/w:http cluster IP" -p tcp -d 10.0.0.1 --dport 80 -j {SVC}',
            f'-A KUBE-SERVICES -d 10.0.0.9/32 -p udp -m comment --comment "a/b cluster IP" -m udp --dport 53 -j {SVC}',
            TO_CLUSTER_IP,
        ),
        (
            "-A KUBE-MARK-MASQ -j MARK --or-mark 0x004000",
            "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x8/0x8",
            "nat KUBE-MARK-MASQ -j MARK --set-xmark MARK/MARK",
        ),
        (
            f'-A {SVC} -m comment --comment "a/b -> 10.0.0.1:80" -m statistic --mode random --probability 0.5 -j {SEP}',
            f"-A {SVC} -m statistic --mode random --probability 0.33333333349 -j {SEP}",
            "nat KUBE-SVC-* --mode random --probability P -j KUBE-SEP-*",
        ),
        (
            f"-A {SVC} -m recent --name {SEP} --rcheck --seconds 5 --reap -j {SEP}",
            f"-A {SVC} -m recent --rcheck --seconds 9 --reap --name {SEP} --mask 255.255.255.255 --rsource -j {SEP}",
            "nat KUBE-SVC-* --name KUBE-SEP-* --rcheck --reap --seconds SECONDS -j KUBE-SEP-*",
        ),
        (
            "-A KUBE-FW-HV6DMF63W6MGLRDE -s 198.51.100.0/24 -j KUBE-EXT-HV6DMF63W6MGLRDE",
            "-A KUBE-FW-HV6DMF63W6MGLRDE -s fd00::/64 -j KUBE-EXT-HV6DMF63W6MGLRDE",
            "nat KUBE-FW-* -s NETWORK -j KUBE-EXT-*",
        ),
    ],
)
def test_rules_of_one_function_are_of_one_class_however_they_are_printed(
    written: str, saved: str, expected: str
) -> None:
    assert class_of(written) == class_of(saved) == expected
    assert MUTANT_LINES.met("nat", "", saved) == expected


def test_what_is_no_rule_of_iptables_has_no_class() -> None:
    lines = ("# ipvsadm --save --numeric", "-A -t 10.96.0.1:80 -s rr", ":KUBE-SERVICES - [0:0]", "-X KUBE-SVC-A")
    assert MUTANT_LINES.classes(text() + "\n".join(lines)) == [""] * (2 + len(lines))


def test_each_match_is_loosened_and_each_target_changed() -> None:
    assert mutants(f"-A {SEP} -m comment --comment a/b -m tcp -p tcp -j DNAT --to-destination 10.0.0.1:80") == {
        ABSENT: [],
        "-p of TCP and UDP": [
            f'-A {SEP} -m comment --comment "a/b" -p tcp -j DNAT --to-destination 10.0.0.1:80',
            f'-A {SEP} -m comment --comment "a/b" -p udp -j DNAT --to-destination 10.0.0.1:80',
        ],
        "DNAT to another address": [f'-A {SEP} -m comment --comment "a/b" -p tcp -j DNAT --to-destination 10.0.0.2:80'],
        "DNAT to another port": [f'-A {SEP} -m comment --comment "a/b" -p tcp -j DNAT --to-destination 10.0.0.1:81'],
    }
    assert mutants("-A F -d 127.0.0.0/8 ! -s 127.0.0.0/8 -m conntrack ! --ctstate DNAT -j DROP", "filter") == {
        ABSENT: [],
        "without -d": ["-A F ! -s 127.0.0.0/8 -m conntrack ! --ctstate DNAT -j DROP"],
        "without ! -s": ["-A F -d 127.0.0.0/8 -m conntrack ! --ctstate DNAT -j DROP"],
        "without ! --ctstate": ["-A F -d 127.0.0.0/8 ! -s 127.0.0.0/8 -j DROP"],
        "-j ACCEPT": ["-A F -d 127.0.0.0/8 ! -s 127.0.0.0/8 -m conntrack ! --ctstate DNAT -j ACCEPT"],
        "-j RETURN": ["-A F -d 127.0.0.0/8 ! -s 127.0.0.0/8 -m conntrack ! --ctstate DNAT -j RETURN"],
    }
    assert mutants(f"-A {SVC} -m statistic --mode random --probability 0.5 -j {SEP}") == {
        ABSENT: [],
        "without --probability": [f"-A {SVC} -j {SEP}"],
        "half the --probability": [f"-A {SVC} -m statistic --mode random --probability 0.2500000000 -j {SEP}"],
    }
    assert mutants(f"-A {SVC} -m recent --name {SEP} --rcheck --seconds 5 --reap -j {SEP}") == {
        ABSENT: [],
        "without --rcheck": [f"-A {SVC} -j {SEP}"],
        "without --seconds": [f"-A {SVC} -m recent --name {SEP} --rcheck -j {SEP}"],
    }
    assert mutants(f"-A {SEP} -p tcp -j DNAT --to-destination [fd00::1]:65535")["DNAT to another address"] == [
        f"-A {SEP} -p tcp -j DNAT --to-destination [fd00::2]:65535"
    ]

    to_port = f"-A KUBE-NODEPORTS -p tcp --dport 30080 -j {SVC}"
    assert mutants(to_port)["without -p"] == [f"-A KUBE-NODEPORTS -j {SVC}"]
    # A target with a port needs a protocol that has ports.
    assert "without -p" not in mutants("-A C -d 10.96.0.1 -p tcp --dport 80 -j REDIRECT --to-ports 4000")


def test_table_nat_gets_no_verdict_that_it_refuses() -> None:
    assert "-j DROP" in mutants("-A C -j RETURN", "filter")
    assert "-j DROP" not in mutants("-A C -j RETURN", "nat")


def test_only_rules_of_the_class_change() -> None:
    to_service = f'-A KUBE-SERVICES -m comment --comment "a/b cluster IP" -p tcp -d 10.96.0.1 --dport 80 -j {SVC}'
    whole = text(":KUBE-SERVICES - [0:0]", to_service, "-A KUBE-MARK-MASQ -j MARK --or-mark 0x004000")
    without_port = to_service.replace(" --dport 80", "")
    assert mutated(whole, Mutation(TO_CLUSTER_IP, "without --dport"), MUTANT_LINES) == whole.replace(
        to_service, without_port
    )
    assert mutated(whole, Mutation(TO_CLUSTER_IP, ABSENT), MUTANT_LINES) == whole.replace(f"{to_service}\n", "")
    assert mutated(whole, Mutation(TO_CLUSTER_IP, "of another kind"), MUTANT_LINES) == whole


@given(worlds)
@settings(max_examples=many(20), deadline=None)
def test_a_mutant_means_something_else_than_its_rule(world: World) -> None:
    (family, chosen, node), cluster = world
    whole = restore(render(cluster, node, chosen, family), KernelState()).text
    for rule, line in zip(MUTANT_LINES.classes(whole), whole.split("\n"), strict=True):
        meaning = read_rules(text(line)) if rule else None
        for change, lines in MUTANT_LINES.mutants(rule, line).items() if rule else ():
            assert read_rules(text(*lines)) != meaning
            assert MUTANT_LINES.suggestion(rule, change)
