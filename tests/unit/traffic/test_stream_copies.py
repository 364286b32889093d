"""Which packets of a stream came in more often than they were sent."""

from types import SimpleNamespace
from typing import Any, cast

from made_steps import resolved
from msgspec.structs import replace
from scapy.layers.inet import IP, TCP, UDP, Ether

from proxylab.addresses import Transport
from proxylab.evidence.evidence import Packet
from proxylab.evidence.stream_records import StreamCopy
from proxylab.kernel.capture.batches import Frame
from proxylab.traffic.dissect import dissect
from proxylab.traffic.identity import Identity, answer_to
from proxylab.traffic.stream_copies import StreamCopies

IDENTITY = Identity(b"12345678", 1, 4, 1)
OTHERS = Identity(b"12345678", 2, 4, 1)


def tap(netns_name: str) -> Any:
    return SimpleNamespace(netns_name=netns_name, device="eth0")


CLIENT, OLD, NEW, NODE = map(tap, ("client", "old", "new", "node-a"))


class Seen:
    """The sightings of one stream, as a lab would make them."""

    def __init__(self, protocol: Transport) -> None:
        stream = replace(resolved(), protocol=protocol)
        self.ends = str(stream.sender.address), str(stream.destination)
        self.copies = StreamCopies(stream, IDENTITY, CLIENT)

    def take(self, where: Any, content: Any, *, outgoing: bool) -> None:
        frame = bytes(Ether() / IP(src=self.ends[0], dst=self.ends[1]) / content)
        datagram = dissect(frame)
        assert datagram is not None
        self.copies.take(where, [(Frame(frame, outgoing, 1, False), datagram)], {4000})


def datagram(number: int, identity: Identity = IDENTITY, *, answer: bool = False) -> Any:
    token = identity.stream_token(number)
    return UDP(sport=4000, dport=53) / (cast("bytes", answer_to(token)) if answer else token)


def test_a_packet_that_comes_once_is_no_copy() -> None:
    seen = Seen(Transport.UDP)
    for number in range(3):
        for where, outgoing in ((CLIENT, True), (NODE, False), (NODE, True), (OLD, False)):
            seen.take(where, datagram(number), outgoing=outgoing)
            seen.take(where, datagram(number, OTHERS), outgoing=outgoing)
            seen.take(where, datagram(number, OTHERS), outgoing=outgoing)
        for where, outgoing in ((OLD, True), (NODE, False), (NODE, True), (CLIENT, False)):
            seen.take(where, datagram(number, answer=True), outgoing=outgoing)
    assert seen.copies.take_copies() == ()


def test_copies_of_requests_and_answers_are_told_with_where_they_came() -> None:
    seen = Seen(Transport.UDP)
    seen.take(CLIENT, datagram(7), outgoing=True)
    seen.take(OLD, datagram(7), outgoing=False)
    seen.take(NEW, datagram(7), outgoing=False)
    for where in (CLIENT, OLD):
        seen.take(where, datagram(7, answer=True), outgoing=False)
    assert seen.copies.take_copies() == (
        StreamCopy(7, Packet.REQUEST, 1, ("old", "new")),
        StreamCopy(7, Packet.REPLY, 1, ("client", "old")),
    )
    assert seen.copies.take_copies() == ()


def test_a_syn_that_its_kernel_sends_again_is_no_copy() -> None:
    seen, syn = Seen(Transport.TCP), TCP(sport=4000, dport=53, flags="S", seq=99)
    for _ in range(2):
        seen.take(CLIENT, syn, outgoing=True)
        seen.take(OLD, syn, outgoing=False)
    assert seen.copies.take_copies() == ()
    seen.take(CLIENT, syn, outgoing=True)
    for where in (OLD, NEW):
        seen.take(where, syn, outgoing=False)
        seen.take(where, TCP(sport=4000, dport=53, flags="A", seq=100), outgoing=False)
        seen.take(where, TCP(sport=4001, dport=53, flags="S", seq=77), outgoing=False)
    assert seen.copies.take_copies() == (StreamCopy(None, Packet.REQUEST, 1, ("old", "new")),)


def segment(number: int, sequence: int, *, answer: bool = False, identity: Identity = IDENTITY) -> Any:
    token = identity.stream_token(number)
    return TCP(sport=4000, dport=53, flags="PA", seq=sequence) / (cast("bytes", answer_to(token)) if answer else token)


def test_a_segment_with_data_that_comes_more_often_than_it_left_is_a_copy() -> None:
    seen = Seen(Transport.TCP)
    for number in (1, 2):
        seen.take(CLIENT, segment(number, 100 * number), outgoing=True)
        for where, outgoing in ((NODE, False), (NODE, True), (OLD, False), *(((NEW, False),) if number == 2 else ())):
            seen.take(where, segment(number, 100 * number), outgoing=outgoing)
            seen.take(where, segment(number, 100 * number, identity=OTHERS), outgoing=outgoing)
        seen.take(CLIENT, segment(number, 7 * number, answer=True), outgoing=False)  # senders' taps are read first
        seen.take(CLIENT, segment(number, 7 * number, answer=True), outgoing=False) if number == 1 else None
        seen.take(OLD, segment(number, 7 * number, answer=True), outgoing=True)
    assert seen.copies.take_copies() == (
        StreamCopy(1, Packet.REPLY, 1, ("client", "client")),
        StreamCopy(2, Packet.REQUEST, 1, ("old", "new")),
    )
    assert seen.copies.take_copies() == ()


def test_a_segment_that_a_kernel_sends_again_is_no_copy_in_a_later_step_either() -> None:
    seen = Seen(Transport.TCP)
    for answer, leaves, comes in ((False, CLIENT, OLD), (True, OLD, CLIENT)):
        seen.take(leaves, segment(3, 9, answer=answer), outgoing=True)
        assert seen.copies.take_copies() == ()
        seen.take(leaves, segment(3, 9, answer=answer), outgoing=True)
        for _ in range(2):
            seen.take(comes, segment(3, 9, answer=answer), outgoing=False)
        assert seen.copies.take_copies() == ()


def test_the_second_leg_of_a_program_that_ends_connections_is_no_copy() -> None:
    seen = Seen(Transport.TCP)
    seen.take(CLIENT, segment(3, 9), outgoing=True)
    for _ in range(2):
        seen.take(OLD, segment(3, 77), outgoing=False)
        seen.take(CLIENT, segment(3, 5, answer=True), outgoing=False)
    assert seen.copies.take_copies() == ()


def test_where_taps_missed_frames_only_datagrams_and_beginnings_count() -> None:
    for protocol, packet in ((Transport.TCP, segment(3, 9)), (Transport.UDP, datagram(3))):
        seen = Seen(protocol)
        seen.take(CLIENT, packet, outgoing=True)
        for _ in range(2):
            seen.take(OLD, packet, outgoing=False)
        assert bool(seen.copies.take_copies(lossy=True)) is (protocol is Transport.UDP)
