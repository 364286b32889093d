"""The second leg of a flow, behind a program that ends the sender's connection."""

import struct
from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxylab.addresses import Transport
from proxylab.evidence.evidence import Leg, Packet
from proxylab.kernel.capture.batches import Frame
from proxylab.plan.resolved import STACK
from proxylab.traffic.identity import Identity, TokenKind
from proxylab.traffic.legs import TapPoint
from proxylab.traffic.match import Matcher

CLIENT = TapPoint("client", "eth0", is_sender=True)
AT_NODE = TapPoint("node-a", "uplink", transit=True)
AT_PROGRAM = TapPoint("node-a", STACK)
POD = TapPoint("echo", "eth0")
SENDER, SERVICE, NODE, ECHO = (IPv4Address(f"10.0.0.{number}") for number in (1, 2, 3, 4))
FLOWS = 3
IDENTITY = Identity(bytes(8), 0, 1000, FLOWS)
PORTS = (5001, 5002, 5003)
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
FROM_PROGRAM = 40000


def tcp(
    flags: int,
    ends: tuple[IPv4Address, int, IPv4Address, int],
    *,
    sequence: int = 0,
    acknowledged: int = 0,
    data: bytes = b"",
    outgoing: bool = False,
    at: int = 0,
) -> Frame:
    source, sport, destination, dport = ends
    segment = struct.pack("!HHIIBBHHH", sport, dport, sequence, acknowledged, 0x50, flags, 0, 0, 0) + data
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(segment), 0, 0, 64, 6, 0) + source.packed + destination.packed
    return Frame(bytes(12) + b"\x08\x00" + header + segment, outgoing, at)


def udp(payload: bytes, ends: tuple[IPv4Address, int, IPv4Address, int], at: int = 0) -> Frame:
    source, sport, destination, dport = ends
    rest = struct.pack("!HHHH", sport, dport, 8 + len(payload), 0) + payload
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(rest), 0, 0, 64, 17, 0) + source.packed + destination.packed
    return Frame(bytes(12) + b"\x08\x00" + header + rest, False, at)


def matcher(identity: Identity = IDENTITY, ports: tuple[int, ...] = PORTS) -> Matcher:
    return Matcher(identity, Transport.TCP, {port: flow for flow, port in enumerate(ports)}, ports)


def own_syn(flow: int, sequence: int) -> Frame:
    return tcp(SYN, (SENDER, PORTS[flow], SERVICE, 80), sequence=sequence, outgoing=True)


def onward_syn(sequence: int, *, outgoing: bool = True, at: int = 1) -> Frame:
    return tcp(SYN, (NODE, FROM_PROGRAM, ECHO, 8080), sequence=sequence, outgoing=outgoing, at=at)


def request(flow: int, sequence: int, source: IPv4Address = NODE, port: int = FROM_PROGRAM) -> Frame:
    token = IDENTITY.token(TokenKind.PROBE, flow) + b"\n"
    return tcp(PSH | ACK, (source, port, ECHO, 8080), sequence=sequence + 1, data=token, outgoing=True, at=3)


def legs(found: Matcher) -> list[tuple[int, str, Packet, Leg]]:
    return [(seen.flow, seen.netns_name, seen.packet, seen.leg) for seen in found.observations]


def test_the_request_names_the_syn_before_it_and_the_answer_behind_it() -> None:
    found = matcher()
    found.take(CLIENT, [own_syn(1, 77)])
    found.take(AT_PROGRAM, [onward_syn(9000), request(1, 9000)])
    found.take(POD, [onward_syn(9000, outgoing=False, at=2)])
    found.take(POD, [tcp(SYN | ACK, (ECHO, 8080, NODE, FROM_PROGRAM), acknowledged=9001, outgoing=True, at=4)])
    assert legs(found) == [
        (1, "client", Packet.REQUEST, Leg.OWN),
        (1, "node-a", Packet.REQUEST, Leg.ONWARD),
        (1, "echo", Packet.REQUEST, Leg.ONWARD),
        (1, "echo", Packet.REPLY, Leg.ONWARD),
    ]


@given(st.integers(0, 2**32 - 1), st.integers(1, 65535), st.permutations(range(FLOWS)))
def test_nat_between_the_program_and_the_pod_hides_no_leg(first: int, port: int, order: list[int]) -> None:
    found = matcher()
    for place, flow in enumerate(order):
        sequence = (first + place * 100_000) % 2**32
        masqueraded = tcp(SYN, (SERVICE, port, ECHO, 8080), sequence=sequence, at=1)
        found.take(POD, [masqueraded])
        found.take(AT_PROGRAM, [request(flow, sequence)])
    assert {(seen.flow, seen.leg) for seen in found.observations} == {(flow, Leg.ONWARD) for flow in order}


def test_the_data_of_the_own_leg_opens_no_second_one() -> None:
    found = matcher()
    found.take(CLIENT, [own_syn(0, 77), request(0, 77, SENDER, PORTS[0])])
    assert legs(found) == [(0, "client", Packet.REQUEST, Leg.OWN)]


def test_a_connection_without_the_request_is_none_of_the_flows() -> None:
    found = matcher()
    found.take(AT_PROGRAM, [onward_syn(9000)])
    found.note_tries({ECHO})
    assert legs(found) == []


def test_of_one_flow_each_connection_of_the_program_is_a_try() -> None:
    one = Identity(bytes(8), 0, 1000, 1)
    found = matcher(one, PORTS[:1])
    refused = tcp(RST | ACK, (ECHO, 8080, NODE, FROM_PROGRAM), acknowledged=9001, at=2)
    elsewhere = tcp(SYN, (NODE, 41000, SERVICE, 6443), sequence=500, outgoing=True)
    found.take(AT_PROGRAM, [onward_syn(9000), refused, elsewhere])
    found.note_tries({ECHO})
    assert legs(found) == [
        (0, "node-a", Packet.REQUEST, Leg.TRIED),
        (0, "node-a", Packet.RESET, Leg.TRIED),
    ]


@pytest.mark.parametrize("flags", [FIN | ACK, RST | ACK, RST])
def test_the_end_of_an_accepted_connection_is_no_refusal(flags: int) -> None:
    found = matcher()
    back = (SERVICE, 80, SENDER, PORTS[2])
    found.take(CLIENT, [own_syn(2, 77)])
    found.take(CLIENT, [tcp(SYN | ACK, back, acknowledged=78, at=1), tcp(flags, back, acknowledged=78, at=2)])
    assert [packet for _, _, packet, _ in legs(found)] == [Packet.REQUEST, Packet.REPLY, Packet.CLOSE]


def test_a_reset_in_place_of_an_answer_is_a_refusal() -> None:
    found = matcher()
    found.take(CLIENT, [own_syn(2, 77)])
    found.take(CLIENT, [tcp(RST | ACK, (SERVICE, 80, SENDER, PORTS[2]), acknowledged=78, at=1)])
    assert [packet for _, _, packet, _ in legs(found)] == [Packet.REQUEST, Packet.RESET]


def test_the_senders_port_tells_the_legs_of_datagrams_apart() -> None:
    found = Matcher(IDENTITY, Transport.UDP, None, PORTS)

    found.take(
        AT_NODE,
        [
            udp(IDENTITY.token(TokenKind.PROBE, 1), (SENDER, PORTS[1], SERVICE, 53), 1),
            udp(IDENTITY.token(TokenKind.PROBE, 1), (NODE, FROM_PROGRAM, ECHO, 53), 2),
            udp(IDENTITY.token(TokenKind.REPLY, 1), (ECHO, 53, NODE, FROM_PROGRAM), 3),
            udp(IDENTITY.token(TokenKind.REPLY, 1), (SERVICE, 53, SENDER, PORTS[1]), 4),
        ],
    )
    assert [leg for _, _, _, leg in legs(found)] == [Leg.OWN, Leg.ONWARD, Leg.ONWARD, Leg.OWN]


def test_the_answer_on_the_second_leg_settles_no_flow_of_a_node_that_sends() -> None:
    one = Identity(bytes(8), 0, 1000, 1)
    found = Matcher(one, Transport.UDP, None, PORTS[:1])
    node = TapPoint("node-a", STACK, is_sender=True)

    token, answer = one.token(TokenKind.PROBE, 0), one.token(TokenKind.REPLY, 0)
    found.take(POD, [udp(token, (NODE, FROM_PROGRAM, ECHO, 53))])
    found.take(node, [udp(answer, (ECHO, 53, NODE, FROM_PROGRAM))])
    assert found.unsettled == 1
    found.take(node, [udp(answer, (SERVICE, 53, NODE, PORTS[0]))])
    assert found.unsettled == 0
