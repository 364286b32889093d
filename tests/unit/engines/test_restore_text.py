"""The text of one load: what it declares, puts in and removes; and rule counts of kube-proxy's own."""

import pytest
from msgspec.structs import replace
from rule_cases import CASES, Addresses, case, echo, endpoint, here_and_there, load_balancer

from proxylab.addresses import Family
from proxylab.engines.embedded.iptables import fixed, matches
from proxylab.engines.embedded.iptables import service_chains as bodies
from proxylab.engines.embedded.iptables.kernel_state import KernelState, read_kernel_state
from proxylab.engines.embedded.iptables.legacy import kubelet_rules
from proxylab.engines.embedded.iptables.names import FIREWALL, Chain, Table
from proxylab.engines.embedded.iptables.render import LARGE_CLUSTER_ENDPOINTS, render
from proxylab.engines.embedded.iptables.restore import RestoreText, restore
from proxylab.engines.embedded.iptables.rules import Ruleset

A = Addresses(Family.IPV4)


def ruleset(name: str, addresses: Addresses = A) -> Ruleset:
    one = CASES[name](addresses)
    return render(one.cluster, one.node, one.settings, addresses.family)


def lines(text: RestoreText) -> list[str]:
    return [line for line, _ in text.lines]


def rule_counts(text: RestoreText) -> dict[str, int]:
    counts: dict[str, int] = {}
    table = ""
    for line in lines(text):
        if line.startswith("*"):
            table = line[1:]
        counts[table] = counts.get(table, 0) + line.startswith("-A ")
    return counts


@pytest.mark.parametrize(
    ("name", "in_filter", "in_nat"),
    [
        ("empty", 4, 5),
        ("cluster-ip", 4, 5 + 2 + 3 * 3),
        ("cluster-ip-one-endpoint", 4, 5 + 2 + 3),
        ("cluster-ip-no-endpoints", 4 + 1, 5),
    ],
)
def test_rule_counts(name: str, in_filter: int, in_nat: int) -> None:
    counts = rule_counts(restore(ruleset(name), KernelState()))
    assert (counts["filter"], counts["nat"]) == (in_filter, in_nat)


@pytest.mark.parametrize(("endpoints", "in_filter", "in_nat"), [(here_and_there(A), 4 + 1, 5 + 9 + 9), ((), 4 + 4, 5)])
def test_rule_counts_of_every_front(endpoints: tuple[object, ...], in_filter: int, in_nat: int) -> None:
    """One rule less than where nfacct counts localhost node ports."""
    served = load_balancer(A, external_ips=(A.of("external", 9),), source_ranges=(A.narrow("external"),))
    one = case(A, (served, endpoints))
    counts = rule_counts(restore(render(one.cluster, one.node, one.settings, A.family), KernelState()))
    assert (counts["filter"], counts["nat"]) == (in_filter, in_nat)


def test_the_second_load_puts_in_no_jumps_and_declares_no_canary() -> None:
    again = lines(restore(ruleset("empty"), KernelState().after(ruleset("empty"))))
    assert not [line for line in again if line.startswith("-I") or "CANARY" in line]
    assert "*mangle" not in again


def test_only_absent_jumps_are_put_in_and_in_order() -> None:
    saved = """*nat
:PREROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
[5:300] -A PREROUTING -j KUBE-SERVICES -m comment --comment "kubernetes service portals"
COMMIT
"""
    nat = lines(restore(ruleset("empty"), read_kernel_state(saved)))
    put_in = [line.split()[1] for line in nat[nat.index("*nat") :] if line.startswith("-I")]
    assert put_in == ["OUTPUT", "POSTROUTING"]


def test_a_jump_that_means_something_else_does_not_count() -> None:
    saved = """*nat
:PREROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
-A PREROUTING ! -i eth0 -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-NODEPORTS -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
COMMIT
"""
    assert any(line.startswith("-I PREROUTING") for line in lines(restore(ruleset("empty"), read_kernel_state(saved))))


def test_stale_chains_are_emptied_then_deleted_and_strangers_are_left_alone() -> None:
    names = ("KUBE-SVC-AAAAAAAAAAAAAAAA", "KUBE-XLB-AAAAAAAAAAAAAAAA", "KUBE-KUBELET-CANARY", "CNI-HOSTPORT-DNAT")
    held = KernelState(frozenset(Chain(Table.NAT, name) for name in names))
    text = restore(ruleset("empty"), held)
    written = lines(text)
    for name in names[:2]:
        assert written.index(f":{name} - [0:0]") < written.index(f"-X {name}")
    assert not [line for line in written if names[2] in line or names[3] in line]
    left = {chain.name for chain in held.after(ruleset("empty")).chains}
    assert left >= set(names[2:])
    assert not left & set(names[:2])


def test_a_service_that_goes_takes_its_chains_with_it() -> None:
    second = restore(ruleset("empty"), KernelState().after(ruleset("node-port-local-affinity")))
    removed = {line.split()[1] for line in lines(second) if line.startswith("-X")}
    assert removed == {chain for port in ruleset("node-port-local-affinity").ports for chain in port.chains}


def test_kube_firewall_is_made_but_not_emptied_where_its_rule_is_not_ours() -> None:
    plain = lines(restore(ruleset("node-port-not-on-localhost"), KernelState()))
    assert ":KUBE-FIREWALL - [0:0]" in plain
    theirs = lines(restore(ruleset("node-port-not-on-localhost"), KernelState(frozenset({FIREWALL}))))
    assert ":KUBE-FIREWALL - [0:0]" not in theirs
    ours = lines(restore(ruleset("node-port"), KernelState(frozenset({FIREWALL}))))
    assert ":KUBE-FIREWALL - [0:0]" in ours


@pytest.mark.parametrize("family", list(Family), ids=str)
def test_loopback_is_guarded_in_ipv4_only(family: Family) -> None:
    written = lines(restore(ruleset("empty", Addresses(family)), KernelState()))
    assert any(line.startswith("-A KUBE-FIREWALL") for line in written) == (family is Family.IPV4)


def test_large_clusters_go_without_endpoint_comments() -> None:
    def text(count: int) -> str:
        ips = [A.of("pod", 0) + number for number in range(count)]
        members = tuple(replace(endpoint(A, 10), addresses=(ip,)) for ip in ips)
        one = case(A, (echo(A), members))
        return restore(render(one.cluster, one.node, one.settings, A.family), KernelState()).text

    assert "default/echo -> " in text(LARGE_CLUSTER_ENDPOINTS)
    large = text(LARGE_CLUSTER_ENDPOINTS + 1)
    assert "default/echo -> " not in large
    assert "--comment default/echo " not in large
    assert '"default/echo cluster IP"' in large


@pytest.mark.parametrize(
    ("module", "name", "instead", "gone"),
    [
        (bodies, "translation", lambda *_: (), "DNAT --to-destination"),
        (fixed, "masquerade", lambda *_: (), "-j MASQUERADE"),
        (bodies, "share", lambda *_: "", "-m statistic"),
        (bodies, "hairpin", lambda *_: (), "-s 10.42.0.1"),
        (bodies, "cluster_ip_masquerade", lambda *_: (), "! -s 10.42.0.0/16"),
    ],
)
def test_a_part_can_be_taken_away_alone(
    monkeypatch: pytest.MonkeyPatch, module: object, name: str, instead: object, gone: str
) -> None:
    """Scenarios prove themselves by going red without one of these; each must be one function that can be replaced."""
    before = lines(restore(ruleset("cluster-ip"), KernelState()))
    assert any(gone in line for line in before)
    monkeypatch.setattr(module, name, instead)
    after = lines(restore(ruleset("cluster-ip"), KernelState()))
    assert not any(gone in line for line in after)
    if name == "share":
        assert after == [
            line.split(" -m statistic")[0] + " -j " + line.split(" -j ")[-1] if gone in line else line
            for line in before
        ]
    else:
        assert after == [line for line in before if gone not in line]


def test_the_share_of_each_endpoint() -> None:
    assert [matches.share(index, 3).rpartition(" ")[2] for index in range(3)] == ["0.3333333333", "0.5000000000", ""]


@pytest.mark.parametrize(
    "output",
    ["iptables-restore: line {} failed", "Bad argument\nError occurred at line: {}\n", "\nline {}: RULE_APPEND failed"],
)
def test_a_refusal_is_explained(output: str) -> None:
    text = restore(ruleset("cluster-ip"), KernelState())
    number = next(index for index, line in enumerate(lines(text), 1) if "-s 10.42.0.11 " in line)
    explained = text.explain(output.format(number))
    assert f"line {number} of Service default/echo: -A KUBE-SEP-" in explained
    assert explained.endswith("table nat is as it was before")


def test_a_refusal_without_a_line_is_still_a_refusal() -> None:
    text = restore(ruleset("empty"), KernelState())
    assert text.explain("Permission denied") == "iptables-restore refused the rules"
    assert text.explain("line 99999 failed") == "iptables-restore refused the rules"


def test_a_kubelet_marks_and_drops() -> None:
    """What kubelet 1.23 wrote: syncNetworkUtil of pkg/kubelet/kubelet_network_linux.go."""
    why = '-m comment --comment "kubernetes firewall for dropping marked packets"'
    assert kubelet_rules(Family.IPV6).splitlines() == [
        "*nat",
        ":KUBE-MARK-DROP - [0:0]",
        "-A KUBE-MARK-DROP -j MARK --or-mark 0x008000",
        "COMMIT",
        "*filter",
        ":KUBE-FIREWALL - [0:0]",
        f"-A KUBE-FIREWALL {why} -m mark --mark 0x008000/0x008000 -j DROP",
        "-I INPUT -j KUBE-FIREWALL",
        "-I OUTPUT -j KUBE-FIREWALL",
        "COMMIT",
    ]
    assert "-d 127.0.0.0/8 ! -s 127.0.0.0/8" in kubelet_rules(Family.IPV4)
