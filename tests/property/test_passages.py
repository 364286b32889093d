"""Packed passages hold the same as single observations, and unpack unchanged."""

import socket
import struct
from collections import Counter
from ipaddress import IPv4Address, IPv6Address

from hypothesis import event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from packed_passages import packed
from recorded import World
from thoroughness import examples

from proxylab.addresses import Transport
from proxylab.encoding import decode, encode
from proxylab.evidence.evidence import Evidence
from proxylab.evidence.passages import PassageBook
from proxylab.kernel.capture.batches import HEAD_BYTES, Frame, Slots
from proxylab.traffic.identity import Identity, Kind
from proxylab.traffic.match import Matcher, Vantage
from proxylab.traffic.passing import MOST_UNPACKED
from proxylab.verdict.judge import judge

FLOWS = MOST_UNPACKED + 4
IDENTITY, OTHER = Identity(bytes(8), 3, 1 << 20, FLOWS), Identity(bytes(8), 4, 1 << 30, FLOWS)
ON_A_NODE = Vantage("node-a", "eth0", transit=True)
SYN, RST, ACK, PSH = 2, 4, 16, 8
ENDS = {
    4: (IPv4Address("10.244.1.2"), IPv4Address("10.96.0.10")),
    6: (IPv6Address("fd00:10:244:1::2"), IPv6Address("fd00:10:96::a")),
}

kinds = st.sampled_from(["request", "reply"] * 8 + ["stranger", "fragment", "reset", "data", "no such flow"])
ways = st.sampled_from([socket.PACKET_OUTGOING, socket.PACKET_HOST, socket.PACKET_OTHERHOST])
seen = st.tuples(kinds, st.integers(0, FLOWS - 1), ways, st.integers(0, 2**32 - 1), st.integers(0, 90))


def frame(protocol: Transport, version: int, what: str, flow: int, filling: int) -> bytes:
    """A frame of that kind, of a flow of this run, of another run, or of no flow."""
    identity = OTHER if what == "stranger" else IDENTITY
    number = FLOWS + flow if what == "no such flow" else flow
    if protocol is Transport.UDP:
        kind = Kind.REPLY if what == "reply" else Kind.PROBE
        body = b"%s%08x" % (identity.stem(kind), number) + bytes(filling)
        rest = struct.pack("!HHHH", 1024 + flow, 80, 8 + len(body), 0) + body
    else:
        flags = {"reply": SYN | ACK, "reset": RST | ACK, "data": PSH | ACK}.get(what, SYN)
        sequence = IDENTITY.sequence(0) + 4 if what == "no such flow" else identity.sequence(flow)
        numbers = (99, (sequence + 1) & 0xFFFFFFFF) if flags & ACK else (sequence, 0)
        rest = struct.pack("!HHIIBBHHH", 1024 + flow, 80, *numbers, 0x50, flags, 0, 0, 0) + bytes(filling)
    near, far = (end.packed for end in ENDS[version])
    number = 17 if protocol is Transport.UDP else 6
    if version == 6:
        return bytes(12) + b"\x86\xdd" + struct.pack("!IHBB", 6 << 28 | flow, len(rest), number, 64) + near + far + rest
    fragment = 0x2000 if what == "fragment" else 0x4000
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(rest), flow, fragment, 64, number, 0)
    return bytes(12) + b"\x08\x00" + head + near + far + rest


def batch(frames: list[Frame]) -> Slots:
    """The frames as a reader's memory holds them."""
    memory = b""
    for each in frames:
        came = socket.PACKET_OTHERHOST if each.otherhost else socket.PACKET_HOST
        kind = socket.PACKET_OUTGOING if each.outgoing else came
        when = struct.pack("=qq", *divmod(each.at_ns, 1_000_000_000))
        slot = (bytes(Slots.DIRECTION_AT) + bytes((kind,))).ljust(Slots.TIME_AT, b"\0") + when
        memory += slot.ljust(Slots.HEAD_AT, b"\0") + each.data[:HEAD_BYTES].ljust(HEAD_BYTES, b"\0")
    return Slots(memoryview(memory), lambda: frames)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from([Transport.UDP, Transport.TCP]), st.sampled_from([4, 6]), st.lists(seen, min_size=1), st.booleans()
)
def test_packed_or_told_it_is_the_same(
    protocol: Transport, version: int, sights: list[tuple[str, int, int, int, int]], learned: bool
) -> None:
    frames = [
        Frame(
            frame(protocol, version, what, flow, filling),
            way == socket.PACKET_OUTGOING,
            1_790_000_000_000_000_000 + at,
            way == socket.PACKET_OTHERHOST,
        )
        for what, flow, way, at, filling in sights
    ]
    sockets = {1024 + flow: flow for flow in range(FLOWS)} if learned and protocol is Transport.TCP else None
    packing, telling = Matcher(IDENTITY, protocol, sockets), Matcher(IDENTITY, protocol, sockets)
    for matcher in (packing, telling):
        matcher._learned.update({IDENTITY.sequence(flow): flow for flow in range(FLOWS)})
    half = len(frames) // 2
    for part in filter(None, (frames[:half], frames[half:])):
        packing.take_passing(ON_A_NODE, batch(part))
        telling.take(ON_A_NODE, part)
    event(f"packed: {bool(packing.passages)}, told as well: {bool(packing.observations)}")
    evidence = Evidence(sent=FLOWS, observations=packing.observations, passages=packing.passages)
    again = decode(encode(evidence), Evidence)
    assert again == evidence
    found = [each for flow in range(FLOWS) for each in again.of_flow(flow)]
    assert Counter(found) == Counter(telling.observations)
    shown = Counter((each.flow, each.packet, each.direction, each.at) for each in packing.frames)
    assert shown == Counter((each.flow, each.packet, each.direction, each.at) for each in telling.observations)


@settings(max_examples=examples(20), deadline=None)
@given(st.booleans(), st.lists(st.sampled_from(["echo-1", "echo-2", "lost"]), min_size=1, max_size=6))
def test_the_judge_sees_the_same_in_both(ipv6: bool, fates: list[str]) -> None:
    """Each flow succeeds at one of two pods, or vanishes behind the first node."""
    world = World(flows=len(fates), backends=("echo-1",), ipv6=ipv6)
    trips = [
        world.crossing(flow, "echo-1")[:3] if fate == "lost" else world.crossing(flow, fate)
        for flow, fate in enumerate(fates)
    ]
    everything = [each for trip in trips for each in trip]
    on_nodes = [each for each in everything if each.netns_name in world.resolved.nodes]
    ends = [each for each in everything if each.netns_name not in world.resolved.nodes]
    told = world.evidence(everything)
    evidence = replace(world.evidence(ends), passages=packed(on_nodes))
    book = PassageBook(evidence.passages)
    for flow, trip in enumerate(trips):
        assert {*book.of(flow)} == {each for each in trip if each.netns_name in world.resolved.nodes}
    judged = [judge(world.probe, world.resolved, None, each) for each in (told, evidence)]
    assert judged[0].verdicts == judged[1].verdicts
