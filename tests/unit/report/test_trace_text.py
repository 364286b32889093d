"""A trace in words."""

from ipaddress import ip_address
from typing import Any

from fake_lab import verdict_on
from golden_words import Told
from msgspec.structs import replace
from scenario_cases import frontend, probe

from proxylab.addresses import Transport
from proxylab.evidence.evidence import Direction, Evidence, Observation, Packet, TraceStep
from proxylab.plan.resolved import STACK
from proxylab.report.trace_text import journey

CLIENT, VIP, GATEWAY = ip_address("10.244.0.2"), ip_address("10.96.0.1"), ip_address("10.244.0.1")
RESOLVED = verdict_on(probe("p", "c", frontend())).resolved
SEP = "KUBE-SEP-AAAABBBBCCCCDDDD"


def step(table: str, chain: str, text: str = "", kind: str = "rule", at: int = 2, **changes: Any) -> TraceStep:
    fields: dict[str, Any] = {
        "netns_name": "node-a",
        "packet": Packet.REQUEST,
        "source": CLIENT,
        "source_port": 1024,
        "destination": VIP,
        "destination_port": 80,
        "in_device": "c",
    }
    return TraceStep(table=table, chain=chain, kind=kind, text=text, at=at, **(fields | changes))


def seen(netns_name: str, direction: Direction, at: int, source: Any = CLIENT, destination: Any = VIP) -> Observation:
    ends = (source, 1024, destination, 80)
    return Observation(0, netns_name, "eth0", direction, Packet.REQUEST, Transport.TCP, *ends, at)


def said(*steps: TraceStep, observations: tuple[Observation, ...] = ()) -> list[str]:
    return list(journey(RESOLVED, Evidence(sent=1, steps=steps, observations=observations)))


HAIRPIN = (
    step("nat", "PREROUTING", '-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES'),
    step("nat", SEP, f"-A {SEP} -s 10.244.0.2/32 -m comment --comment default/echo -j KUBE-MARK-MASQ"),
    step("nat", "KUBE-MARK-MASQ", "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000"),
    step("nat", "KUBE-MARK-MASQ", kind="return", mark=0x4000),
    step("nat", SEP, f"-A {SEP} -p tcp -j DNAT --to-destination 10.244.0.2:8080", mark=0x4000),
    step("filter", "FORWARD", "-A FORWARD -j KUBE-NOTHING", destination=CLIENT, destination_port=8080, out_device="c"),
    step("filter", "KUBE-NOTHING", kind="return", destination=CLIENT, destination_port=8080, out_device="c"),
    step("filter", "FORWARD", kind="policy", destination=CLIENT, destination_port=8080, out_device="c"),
    step(
        "nat",
        "POSTROUTING",
        "-A POSTROUTING -j MASQUERADE --random-fully",
        destination=CLIENT,
        destination_port=8080,
        out_device="c",
    ),
)


def test_a_hairpin_is_told_from_hop_to_hop(told: Told) -> None:
    observations = (seen("c", Direction.OUT, 1), seen("c", Direction.IN, 3, GATEWAY, CLIENT))
    assert said(*HAIRPIN, observations=observations) == told()


def test_a_client_outside_the_pods_network_is_told_so() -> None:
    text = "-A KUBE-SVC-X ! -s 10.245.0.0/16 -p tcp -j KUBE-MARK-MASQ"
    assert said(step("nat", "KUBE-SVC-X", text))[-1].endswith("masquerades because the client is not in 10.245.0.0/16")


def test_a_rule_that_says_no_reason_is_quoted() -> None:
    text = '-A KUBE-EXT-X -m comment --comment "masquerade traffic" -j KUBE-MARK-MASQ'
    assert said(step("nat", "KUBE-EXT-X", text))[-1].endswith('masquerades: "masquerade traffic"')


def test_the_end_of_a_packet_is_told_and_no_way_out(told: Told) -> None:
    text = '-A FORWARD -m comment --comment "no endpoints" -j REJECT --reject-with icmp-port-unreachable'
    (*_, last) = said(step("filter", "FORWARD", text, out_device="eth0"))
    assert last == told()


def test_a_policy_that_ends_a_packet_is_told(told: Told) -> None:
    (*_, last) = said(step("filter", "FORWARD", kind="policy", out_device="eth0"))
    assert last == told()


def test_the_same_node_twice_is_two_hops() -> None:
    first, again = step("nat", "POSTROUTING", at=2), step("nat", "PREROUTING", at=3)
    assert sum(line.startswith("  node-a:") for line in said(first, again)) == 2


def test_what_a_node_makes_itself_follows_the_request() -> None:
    icmp = step("filter", "OUTPUT", at=0, packet=Packet.PORT_UNREACHABLE, in_device="", out_device="c")
    lines = said(icmp, step("filter", "FORWARD", "-A FORWARD -j REJECT"))
    assert "the port-unreachable" in lines[-2]
    assert lines[-2].endswith("generated there")


def test_what_a_node_sends_begins_there_and_what_it_gets_ends_there_whatever_the_clock_says() -> None:
    """OUTPUT gives no time; a packet that a program gets has the time at which it came to the node."""
    made = step("nat", "OUTPUT", at=0, in_device="")
    there = step("nat", "PREROUTING", at=6, netns_name="node-b", in_device="eth0")
    answered = step("filter", "OUTPUT", at=0, netns_name="node-b", packet=Packet.REPLY, in_device="")
    back = step("filter", "FORWARD", at=7, packet=Packet.REPLY, in_device="eth0")
    sent = replace(seen("node-a", Direction.OUT, at=4), device=STACK)
    got = replace(seen("node-b", Direction.IN, at=5), device=STACK)
    reply = replace(seen("node-b", Direction.OUT, at=3), device=STACK, packet=Packet.REPLY)
    end = replace(seen("node-a", Direction.IN, at=6), device=STACK, packet=Packet.REPLY)
    resolved = replace(RESOLVED, nodes=("node-a", "node-b"))
    evidence = Evidence(sent=1, steps=(there, made, back, answered), observations=(end, reply, got, sent))
    assert [" ".join(line.split()[:4]) for line in journey(resolved, evidence)[1:] if line[2] != " "] == [
        "node-a sends the request",
        "node-a: the request 10.244.0.2:1024",
        "node-b: the request 10.244.0.2:1024",
        "node-b gets the request",
        "node-b sends the reply",
        "node-b: the reply 10.244.0.2:1024",
        "node-a: the reply 10.244.0.2:1024",
        "node-a gets the reply",
    ]


def test_nothing_traced_is_nothing_said() -> None:
    assert said() == []


def test_no_line_is_wider_than_a_terminal() -> None:
    lines = said(*HAIRPIN)
    assert max(map(len, lines)) <= 80
