"""What IPVS did, as rules: destinations translate, a virtual server without one rejects, members of sets name."""

from ipaddress import ip_address
from typing import Any

import pytest
from golden_words import Told
from msgspec.structs import replace
from recorded import World

from proxylab.addresses import Family, IPAddress, Protocol
from proxylab.engines.embedded.ipvs.meter import member_for
from proxylab.engines.embedded.ipvs.sets import NodeSet
from proxylab.evidence.evidence import Packet, RuleCount, TraceStep
from proxylab.evidence.ipvs import Member
from proxylab.traffic.tracing import with_virtual_servers
from proxylab.verdict.counted_rules import ending, read, read_all, rule_action, the_rule

WORLD = World()
VIP, POD, CLIENT = ip_address("10.96.0.10"), ip_address("10.244.2.3"), ip_address("10.244.1.2")
SERVER = f"-t {VIP}:80"
LED = RuleCount("node-a", "ipvs", SERVER, f"-a {SERVER} -r {POD}:8080 -m -w 1", 1, "DNAT", POD, 8080)
REFUSED = RuleCount("node-a", "ipvs", SERVER, f"-A {SERVER} -s rr", 1, "REJECT")


def of_filter(chain: str, text: str, member: str = "") -> RuleCount:
    return RuleCount("node-a", "filter", chain, f"-A {chain} {text}", 1, member=member)


def test_a_destination_translates() -> None:
    (rule,) = read_all([LED])
    assert rule.target == "DNAT"
    assert rule.translates_to == (POD, 8080)
    assert the_rule(rule) == "its virtual server -t 10.96.0.10:80"
    assert rule_action(rule, WORLD.resolved) == "translates the destination to 10.244.2.3:8080"


@pytest.mark.parametrize(
    ("destinations", "why"),
    [("", "has no destination"), (f", -a {SERVER} -r {POD}:8080 -m -w 0", "has destinations of weight 0 only")],
)
def test_a_virtual_server_without_a_destination_rejects(destinations: str, why: str, told: Told) -> None:
    (rule,) = ending(WORLD.resolved, read_all([replace(REFUSED, text=REFUSED.text + destinations)]), "REJECT")
    assert the_rule(rule) == f"its virtual server -t 10.96.0.10:80, which {why}"
    assert rule_action(rule, WORLD.resolved) == told()


def test_a_step_of_a_trace_is_read_without_its_count() -> None:
    rule = read(RuleCount("node-a", "ipvs", SERVER, LED.text, 1))
    assert rule is not None
    assert (rule.target, rule.translates_to) == ("DNAT", (POD, 8080))


GUARD = "-m conntrack --ctstate NEW -m set --match-set KUBE-IPVS-IPS dst -j REJECT"
RANGES = "-m set --match-set KUBE-LOAD-BALANCER-FW dst,dst -j KUBE-SOURCE-RANGES-FIREWALL"


def test_a_rule_that_matches_a_set_speaks_of_the_probe_where_the_set_has_a_member_for_it() -> None:
    assert ending(WORLD.resolved, read_all([of_filter("KUBE-IPVS-FILTER", GUARD, str(VIP))]), "REJECT")
    assert not ending(WORLD.resolved, read_all([of_filter("KUBE-IPVS-FILTER", GUARD)]), "REJECT")


@pytest.mark.parametrize("member", ["10.96.0.10,tcp:80", ""])
def test_a_rule_without_conditions_stands_for_those_that_lead_to_its_chain(member: str) -> None:
    leading = of_filter("KUBE-PROXY-FIREWALL", RANGES, member)
    dropping = of_filter("KUBE-SOURCE-RANGES-FIREWALL", "-j DROP")
    assert bool(ending(WORLD.resolved, read_all([leading, dropping]), "DROP")) is bool(member)
    assert not ending(WORLD.resolved, read_all([dropping]), "DROP")
    other = of_filter("FORWARD", "-s 10.0.0.0/8 -j KUBE-SOURCE-RANGES-FIREWALL")
    assert not ending(WORLD.resolved, read_all([leading, other, dropping]), "DROP")


RANGED = {"address": VIP, "protocol": Protocol.TCP, "port": 80}


@pytest.mark.parametrize(
    ("of", "fields", "member"),
    [
        (NodeSet.CLUSTER_IP, "dst,dst", Member(**RANGED)),
        (NodeSet.IPVS_IPS, "dst", Member(address=VIP)),
        (NodeSet.NODE_PORT_TCP, "dst", Member(port=80)),
        (NodeSet.LOAD_BALANCER_SOURCE_CIDR, "dst,dst,src", Member(**RANGED, other=CLIENT)),
    ],
)
def test_the_member_for_what_a_probe_dials(of: NodeSet, fields: str, member: Member) -> None:
    found = member_for(of.of(Family.IPV4, frozenset({member})).named, fields.split(","), WORLD.resolved)
    assert found is not None
    assert ",".join(found.fields) == str(member)


@pytest.mark.parametrize(
    ("of", "fields", "member"),
    [
        (NodeSet.CLUSTER_IP, "dst,dst", Member(address=VIP, protocol=Protocol.UDP, port=80)),
        (NodeSet.CLUSTER_IP, "dst,dst", Member(address=VIP, protocol=Protocol.TCP, port=81)),
        (NodeSet.CLUSTER_IP, "src,dst", Member(**RANGED)),
        (NodeSet.IPVS_IPS, "dst", Member(address=CLIENT)),
        (NodeSet.LOAD_BALANCER_SOURCE_IP, "dst,dst,src", Member(**RANGED, other=VIP)),
    ],
)
def test_no_other_packet_is_that_member(of: NodeSet, fields: str, member: Member) -> None:
    assert member_for(of.of(Family.IPV4, frozenset({member})).named, fields.split(","), WORLD.resolved) is None


def step(chain: str, destination: IPAddress = VIP, port: int = 80, **changes: Any) -> TraceStep:
    return TraceStep(
        netns_name="node-a",
        table="nat",
        chain=chain,
        kind="policy",
        text="",
        packet=Packet.REQUEST,
        source=CLIENT,
        source_port=40000,
        destination=destination,
        destination_port=port,
        **changes,
    )


def test_ipvs_stands_in_a_trace_where_the_destination_changes() -> None:
    steps = (step("PREROUTING"), step("INPUT"), step("POSTROUTING", POD, 8080))
    found = with_virtual_servers(steps, [LED])
    assert [each.chain for each in found] == ["PREROUTING", "INPUT", SERVER, "POSTROUTING"]
    assert (found[2].table, found[2].text, found[2].destination) == ("ipvs", LED.text, VIP)


def test_a_virtual_server_that_rejects_is_the_last_step_of_the_request() -> None:
    answer = replace(step("OUTPUT"), packet=Packet.PORT_UNREACHABLE)
    elsewhere = replace(step("INPUT"), netns_name="node-b")
    found = with_virtual_servers((step("PREROUTING"), step("INPUT"), answer, elsewhere), [REFUSED])
    assert [each.chain for each in found] == ["PREROUTING", "INPUT", SERVER, "OUTPUT", "INPUT"]
