"""Which link lost the packet of a stream: the one behind the device that it left last."""

from ipaddress import IPv4Address
from typing import Any, NamedTuple

from proxylab.evidence.evidence import LinkCount
from proxylab.kernel.capture.batches import Frame
from proxylab.traffic.craft import enveloped
from proxylab.traffic.identity import Identity, answer_to
from proxylab.traffic.stream_taps import StreamPaths

IDENTITY = Identity(bytes(8), 7, 4, 1)
ENDS = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2")
TOKEN = IDENTITY.stream_token(3)


class At(NamedTuple):
    netns_name: str
    device: str


def frame(payload: bytes, at: int, *, outgoing: bool) -> Frame:
    datagram = (40000).to_bytes(2, "big") + (53).to_bytes(2, "big") + (8 + len(payload)).to_bytes(2, "big") + bytes(2)
    return Frame(enveloped((bytes(6), bytes(6)), ENDS, 17, datagram + payload), outgoing, at, False)


def link(name: str, dropped: int, *behind: str) -> LinkCount:
    return LinkCount(link=name, outward=True, netem="loss 10%", dropped=dropped, copies=False, behind=behind)


def seen(*sightings: tuple[str, str, bytes, bool]) -> StreamPaths:
    paths = StreamPaths()
    for at, (netns_name, device, payload, outgoing) in enumerate(sightings):
        tap: Any = At(netns_name, device)
        paths.take(tap, [frame(payload, at, outgoing=outgoing)])
    return paths


LEFT = ("client", "eth0", TOKEN, True)
CAME = ("node-a", "client", TOKEN, False)


def test_a_packet_that_left_and_came_in_nowhere_was_lost_on_the_link_behind() -> None:
    assert seen(LEFT).lost_on(TOKEN, [link("node-b", 1, "node-a/eth0"), link("client", 1, "client/eth0")]) == "client"


def test_a_packet_that_came_in_was_lost_on_no_link() -> None:
    assert seen(LEFT, CAME).lost_on(TOKEN, [link("client", 1, "client/eth0")]) == ""


def test_the_answer_counts_as_the_packet_does() -> None:
    reply = (answer_to(TOKEN) or b"") + b" echo-1"
    paths = seen(LEFT, CAME, ("echo-1", "eth0", reply, True))
    assert paths.lost_on(TOKEN, [link("echo-1", 1, "echo-1/eth0")]) == "echo-1"


def test_a_drop_accounts_for_one_packet_only() -> None:
    other = IDENTITY.stream_token(4)
    paths, budget = seen(LEFT, ("client", "eth0", other, True)), [link("client", 1, "client/eth0")]
    assert [paths.lost_on(token, budget) for token in (TOKEN, other)] == ["client", ""]


def test_a_link_that_dropped_nothing_lost_nothing() -> None:
    assert seen(LEFT).lost_on(TOKEN, [link("client", 0, "client/eth0")]) == ""
    assert seen().lost_on(TOKEN, [link("client", 1, "client/eth0")]) == ""
