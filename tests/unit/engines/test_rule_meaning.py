"""Rules that mean the same are equal, and no others."""

import pytest

from proxylab.engines.embedded.iptables.meaning import Chains, differences, read_rules


def rules(*lines: str, chain: str = "C") -> dict[tuple[str, str], list[frozenset[tuple[str, ...]]]]:
    body = "".join(f"-A {chain} {line}\n" for line in lines)
    return read_rules(f"*nat\n:{chain} - [0:0]\n{body}COMMIT\n")


@pytest.mark.parametrize(
    ("written", "saved"),
    [
        ("-j MARK --or-mark 0x004000", "-j MARK --set-xmark 0x4000/0x4000"),
        ("-j MARK --xor-mark 0x004000", "-j MARK --set-xmark 0x4000/0x0"),
        ("-j MARK --and-mark 0xffffbfff", "-j MARK --set-xmark 0x0/0x4000"),
        ("-j MARK --set-mark 0x1", "-j MARK --set-xmark 0x1/0xffffffff"),
        ("-m mark ! --mark 0x004000/0x004000 -j RETURN", "-m mark ! --mark 0x4000/0x4000 -j RETURN"),
        ("-d 10.0.0.1 -j A", "-d 10.0.0.1/32 -j A"),
        ("! -s fd00:0::/32 -j A", "! -s fd00::/32 -j A"),
        ("-m tcp -p tcp --dport 80 -j A", "-p tcp -m tcp --dport 80 -j A"),
        (
            "-m statistic --mode random --probability 0.3333333333 -j A",
            "-m statistic --mode random --probability 0.33333333349 -j A",
        ),
        (
            "-m recent --name X --rcheck --seconds 5 --reap -j A",
            "-m recent --rcheck --seconds 5 --reap --name X --mask 255.255.255.255 --rsource -j A",
        ),
        ("-j REJECT", "-j REJECT --reject-with icmp-port-unreachable"),
        ("-m conntrack --ctstate RELATED,ESTABLISHED", "-m conntrack --ctstate ESTABLISHED,RELATED"),
        ("-m comment --comment a/b -j A", '-m comment --comment "a/b" -j A'),
        ('-m comment --comment "--dport 80" -j A', '-j A -m comment --comment "--dport 80"'),
    ],
)
def test_the_same(written: str, saved: str) -> None:
    assert rules(written) == rules(saved)
    assert differences(rules(written), rules(saved)) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("-j MARK --or-mark 0x4000", "-j MARK --xor-mark 0x4000"),
        ("-d 10.0.0.1 -j A", "! -d 10.0.0.1 -j A"),
        ("-s 10.0.0.1 -j A", "-d 10.0.0.1 -j A"),
        ("-d 10.0.0.0/24 -j A", "-d 10.0.0.0/25 -j A"),
        ("-j REJECT", "-j REJECT --reject-with tcp-reset"),
        ("-m recent --name X --set", "-m recent --name X --set --rdest"),
        ("-m statistic --mode random --probability 0.5", "-m statistic --mode random --probability 0.5000001"),
        ("-j A", "-g A"),
        ("-m comment --comment a -j A", "-m comment --comment b -j A"),
        ("-j MASQUERADE", "-j MASQUERADE --random-fully"),
    ],
)
def test_not_the_same(one: str, other: str) -> None:
    assert len(differences(rules(one), rules(other))) == 2


def test_order_counts_except_among_services_of_a_shared_chain() -> None:
    first, second = "-m comment --comment a/x -d 10.0.0.1 -j A", "-m comment --comment a/y -d 10.0.0.2 -j A"
    assert differences(rules(first, second), rules(second, first))
    services = "KUBE-SERVICES"
    assert not differences(rules(first, second, chain=services), rules(second, first, chain=services))
    again = "-m comment --comment a/x -j B"
    assert differences(rules(first, again, chain=services), rules(again, first, chain=services))
    last = '-m comment --comment "kubernetes service nodeports; NOTE: last" -j N'
    assert differences(rules(first, last, chain=services), rules(last, first, chain=services))


def test_chains_that_are_missing_are_told() -> None:
    with_chain, without = read_rules("*nat\n:KUBE-X - [0:0]\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n"), read_rules("*nat\n")
    assert differences(with_chain, without) == ["- nat KUBE-X: the whole chain"]
    assert differences(without, with_chain) == ["+ nat KUBE-X: the whole chain"]


def test_inserted_rules_come_first_and_deleted_chains_go() -> None:
    text = "*nat\n:A - [0:0]\n:B - [0:0]\n-A A -j X\n-I A -j Y\n-I A -j Z\n-X B\nCOMMIT\n"
    assert read_rules(text) == rules("-j Z", "-j Y", "-j X", chain="A")


LAST = '-A KUBE-SERVICES -m comment --comment "kubernetes service nodeports" -d {} -j KUBE-NODEPORTS'
FRONT = '-A KUBE-SERVICES -m comment --comment "default/echo cluster IP" -d 10.96.0.1 -j KUBE-SVC-A'


@pytest.mark.parametrize(
    ("lines", "same"),
    [
        ((FRONT, LAST.format("10.0.0.2"), LAST.format("10.0.0.1")), True),
        ((LAST.format("10.0.0.1"), FRONT, LAST.format("10.0.0.2")), False),
        ((FRONT, LAST.format("10.0.0.1"), LAST.format("10.0.0.3")), False),
    ],
)
def test_rules_at_the_end_have_no_order_but_stay_there(lines: tuple[str, ...], same: bool) -> None:
    def chains(*rules: str) -> Chains:
        return read_rules("\n".join(["*nat", ":KUBE-SERVICES - [0:0]", *rules, "COMMIT"]))

    ours = chains(FRONT, LAST.format("10.0.0.1"), LAST.format("10.0.0.2"))
    assert (differences(ours, chains(*lines)) == []) is same
