"""What rules counted for several probes, divided: each gets its own, or none gets anything where that is unclear."""

from collections.abc import Callable, Sequence
from ipaddress import ip_address

import pytest
from msgspec.structs import replace
from recorded import World

from proxylab.addresses import Transport
from proxylab.evidence.evidence import Evidence, EvidenceTogether, RuleCount
from proxylab.plan.resolved import ResolvedProbe
from proxylab.verdict.shared_counts import divided, evidence_of_each

WEB, API = "HV6DMF63W6MGLRDE", "AB2CD3EF4GH5IJ6K"
NODES = ("node-a", "node-b")


def probe(name: str, address: str, port: int = 80) -> ResolvedProbe:
    return replace(
        World().resolved, name=name, service_port=f"default/{name}", destination=ip_address(address), port=port
    )


PROBES = (probe("web", "10.96.0.10"), probe("api", "10.96.0.11"))


def rule(chain: str, text: str, packets: int, table: str = "nat", node: str = "node-a") -> RuleCount:
    return RuleCount(node, table, chain, f"-A {chain} {text}", packets)


def of_port(name: str, address: str, service: str, packets: int, marked: int = 0) -> list[RuleCount]:
    """The rules of one Service port that count: from its address to its only endpoint."""
    dialled = f"-d {address}/32 -p tcp -m comment --comment {name} -m tcp --dport 80"
    svc, sep = f"KUBE-SVC-{service}", f"KUBE-SEP-{service}"
    found = [rule("KUBE-SERVICES", f"{dialled} -j {svc}", packets)]
    if marked:
        found.append(rule(svc, f"! -s 10.244.0.0/16 {dialled} -j KUBE-MARK-MASQ", marked))
    found.append(rule(svc, f"-m comment --comment {name} -j {sep}", packets))
    found.append(rule(sep, "-p tcp -m tcp -j DNAT --to-destination 10.244.2.3:8080", packets))
    return found


ON_THE_WAY = [
    rule("PREROUTING", '-m comment --comment "kubernetes service portals" -j KUBE-SERVICES', 7),
    rule("POSTROUTING", '-m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING', 7),
    rule("KUBE-FORWARD", "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", 20, "filter"),
]


def masquerade(packets: int) -> list[RuleCount]:
    return [
        rule("KUBE-MARK-MASQ", "-j MARK --set-xmark 0x4000/0x4000", packets),
        rule("KUBE-POSTROUTING", "-j MARK --set-xmark 0x4000/0x0", packets),
        rule("KUBE-POSTROUTING", "-j MASQUERADE --random-fully", packets),
    ]


def counted(web: int = 3, api: int = 4, marked_web: int = 0, marked_api: int = 0) -> list[RuleCount]:
    marked = marked_web + marked_api
    return [
        *ON_THE_WAY,
        *of_port("web", "10.96.0.10", WEB, web, marked_web),
        *of_port("api", "10.96.0.11", API, api, marked_api),
        *(masquerade(marked) if marked else ()),
    ]


def packets(part: Sequence[RuleCount], target: str) -> int:
    return sum(each.packets for each in part if f"-j {target}" in each.text)


def test_the_rules_of_each_service_port_go_to_its_probe() -> None:
    found = divided(counted(), PROBES)
    assert found is not None
    assert [packets(part, "DNAT") for part in found] == [3, 4]
    assert [{each.chain for each in part} & {f"KUBE-SEP-{WEB}", f"KUBE-SEP-{API}"} for part in found] == [
        {f"KUBE-SEP-{WEB}"},
        {f"KUBE-SEP-{API}"},
    ]


def test_what_only_passed_packets_of_both_on_is_in_neither_part() -> None:
    found = divided(counted(), PROBES)
    assert found is not None
    assert not {each.text for part in found for each in part} & {each.text for each in ON_THE_WAY}


@pytest.mark.parametrize(("web", "api"), [(3, 0), (3, 4), (0, 2)])
def test_each_has_masqueraded_as_many_packets_as_its_own_rules_have_marked(web: int, api: int) -> None:
    found = divided(counted(marked_web=web, marked_api=api), PROBES)
    assert found is not None
    assert [packets(part, "MASQUERADE") for part in found] == [web, api]
    assert [packets(part, "KUBE-MARK-MASQ") for part in found] == [web, api]


def test_a_flow_that_two_rules_marked_is_masqueraded_once() -> None:
    hairpin = rule(f"KUBE-SEP-{WEB}", "-s 10.244.2.3/32 -m comment --comment web -j KUBE-MARK-MASQ", 2)
    found = divided([*counted(3, 4, marked_web=3), hairpin], PROBES)
    assert found is not None
    assert [packets(part, "MASQUERADE") for part in found] == [3, 0]


def test_rules_of_one_node_say_nothing_of_another() -> None:
    there = [replace(each, node="node-b") for each in counted(1, 2, marked_web=1)]
    found = divided([*counted(3, 4, marked_api=4), *there], PROBES)
    assert found is not None
    masqueraded = [[(each.node, each.packets) for each in part if "MASQUERADE" in each.text] for part in found]
    assert masqueraded == [[("node-b", 1)], [("node-a", 4)]]


def test_node_ports_are_told_apart_by_their_numbers() -> None:
    at_node = [probe(name, "172.18.0.2", port) for name, port in (("web", 30080), ("api", 30081))]
    counts = [rule("KUBE-SERVICES", "-m addrtype --dst-type LOCAL -j KUBE-NODEPORTS", 7)]
    for port, service, count in ((30080, WEB, 3), (30081, API, 4)):
        counts.append(rule("KUBE-NODEPORTS", f"-p tcp -m tcp --dport {port} -j KUBE-EXT-{service}", count))
        counts.append(rule(f"KUBE-EXT-{service}", f"-j KUBE-SVC-{service}", count))
        counts.append(rule(f"KUBE-SVC-{service}", f"-j KUBE-SEP-{service}", count))
        counts.append(rule(f"KUBE-SEP-{service}", "-p tcp -m tcp -j DNAT --to-destination 10.244.2.3:8080", count))
    found = divided([*ON_THE_WAY, *counts], at_node)
    assert found is not None
    assert [packets(part, "DNAT") for part in found] == [3, 4]


def more(
    text: str, chain: str = "KUBE-SERVICES", table: str = "nat", **changes: object
) -> Callable[[], list[RuleCount]]:
    return lambda: [*counted(), replace(rule(chain, text, 1, table), **changes)]


UNCLEAR = {
    "a source was changed more often than rules marked packets": lambda: [*counted(), *masquerade(1)],
    "a source was changed less often": lambda: [*counted(marked_web=3)[:-1], *masquerade(2)[-1:]],
    "both may have met a rule that translates": more("-p tcp -j DNAT --to-destination 10.244.2.9:8080"),
    "both may have met a rule that marks": more("-p tcp -m tcp --dport 80 -j KUBE-MARK-MASQ"),
    "a rule that translates belongs to neither": more(
        "-j DNAT --to-destination 10.244.2.9:80", "KUBE-SVC-ZZZZZZZZZZZZZZZZ"
    ),
    "a rule dropped something": more("-m conntrack --ctstate INVALID -j DROP", "KUBE-FORWARD", "filter"),
    "a rule rejected something": more("-p tcp -j REJECT", "KUBE-SERVICES", "filter"),
    "a rule of others counted": more("-j ACCEPT", "OTHERS"),
    "a policy counted": lambda: [*counted(), RuleCount("node-a", "filter", "FORWARD", "-P FORWARD DROP", 1)],
    "a rule cannot be read": lambda: [*counted(), RuleCount("node-a", "nat", "KUBE-SERVICES", '-A KUBE-SERVICES "', 1)],
    "a rule of nft counted": lambda: [
        *counted(),
        RuleCount("node-a", "nat", "KUBE-SERVICES", "ip daddr 10.96.0.10 counter accept", 1),
    ],
    "the text does not say all": more("-j KUBE-MARK-MASQ", target="DNAT"),
}


@pytest.mark.parametrize("counts", UNCLEAR.values(), ids=UNCLEAR)
def test_nothing_is_divided_where(counts: Callable[[], list[RuleCount]]) -> None:
    assert divided(counts(), PROBES) is None


def test_what_no_proxy_translates_goes_beside_what_it_does() -> None:
    unused = replace(PROBES[0], service_port="", port=9)
    pinged = replace(PROBES[0], service_port="", port=0, protocol=Transport.ICMP)
    found = divided(counted(), (*PROBES, unused, pinged))
    assert found is not None
    assert [packets(part, "DNAT") for part in found] == [3, 4, 0, 0]


def test_two_probes_of_one_service_port_are_not_told_apart() -> None:
    assert divided(counted(), (PROBES[0], replace(PROBES[0], number=1), PROBES[1])) is None


def whole(**changes: object) -> EvidenceTogether:
    each = replace(Evidence(sent=1, metered_nodes=NODES), **changes)
    return EvidenceTogether(each=(each, each), counts=tuple(counted()))


def test_evidence_gets_the_counts_of_its_own_probe() -> None:
    found = evidence_of_each(whole(), PROBES)
    assert found is not None
    assert [packets(each.counts, "DNAT") for each in found] == [3, 4]


def test_evidence_without_all_counters_shows_nothing_of_one() -> None:
    assert evidence_of_each(whole(metered_nodes=("node-a",)), PROBES) is None
