"""The frames by which a node answers for a load-balancer address, read back by scapy, which checks by itself."""

from ipaddress import ip_address
from typing import Final

import pytest
from scapy.layers.inet6 import ICMPv6ND_NA, ICMPv6ND_NS, ICMPv6NDOptDstLLAddr, ICMPv6NDOptSrcLLAddr, IPv6
from scapy.layers.l2 import ARP, Ether

from proxylab.addresses import IPAddress
from proxylab.control.announcements import AddressRequest, Announcer, read_request

OWN: Final = "02:00:00:00:00:0a"
OTHER: Final = "02:00:00:00:00:0b"
LINK_LOCAL: Final = "fe80::a"
FOUR, SIX = ip_address("172.18.255.1"), ip_address("fd00:172:18::ff01")
ANNOUNCER: Final = Announcer(bytes.fromhex(OWN.replace(":", "")), ip_address(LINK_LOCAL))  # type: ignore[arg-type]


def request(target: IPAddress, *, to: str = "ff:ff:ff:ff:ff:ff") -> bytes:
    asked = ARP(op="who-has", hwsrc=OTHER, psrc="172.18.0.1", pdst=str(target))
    return bytes(Ether(src=OTHER, dst=to) / asked)


def solicitation(target: IPAddress, source: str = "fe80::b") -> bytes:
    option = ICMPv6NDOptSrcLLAddr(lladdr=OTHER)
    return bytes(Ether(src=OTHER) / IPv6(src=source, dst="ff02::1:ff00:ff01") / ICMPv6ND_NS(tgt=str(target)) / option)


def answered(frame: bytes) -> Ether:
    asked = read_request(frame)
    assert asked is not None
    return Ether(ANNOUNCER.answer(asked))


def is_valid(frame: Ether) -> bool:
    """Whether the checksum is the one that scapy computes."""
    again = Ether(bytes(frame))
    del again[ICMPv6ND_NA].cksum
    return bool(Ether(bytes(again))[ICMPv6ND_NA].cksum == frame[ICMPv6ND_NA].cksum)


@pytest.mark.parametrize("to", ["ff:ff:ff:ff:ff:ff", OWN], ids=["all", "the node alone"])
def test_an_arp_request_gets_the_nodes_mac(to: str) -> None:
    frame = answered(request(FOUR, to=to))
    assert (frame.src, frame.dst) == (OWN, OTHER)
    arp = frame[ARP]
    assert (arp.op, arp.hwsrc, arp.psrc, arp.hwdst, arp.pdst) == (2, OWN, str(FOUR), OTHER, "172.18.0.1")


def test_a_solicitation_gets_the_nodes_mac() -> None:
    frame = answered(solicitation(SIX))
    assert (frame.src, frame.dst, frame[IPv6].src, frame[IPv6].dst) == (OWN, OTHER, LINK_LOCAL, "fe80::b")
    assert frame[IPv6].hlim == 255, "receivers drop what a router may have forwarded"
    advertisement = frame[ICMPv6ND_NA]
    assert (advertisement.R, advertisement.S, advertisement.O, advertisement.tgt) == (0, 1, 1, str(SIX))
    assert frame[ICMPv6NDOptDstLLAddr].lladdr == OWN
    assert is_valid(frame)


def test_a_machine_without_an_address_of_its_own_is_told_as_all_are() -> None:
    frame = answered(solicitation(SIX, source="::"))
    assert (frame.dst, frame[IPv6].dst, frame[ICMPv6ND_NA].S) == ("33:33:00:00:00:01", "ff02::1", 0)
    assert is_valid(frame)


def test_a_gratuitous_arp_names_the_address_twice() -> None:
    frame = Ether(ANNOUNCER.announcement(FOUR))
    arp = frame[ARP]
    assert (frame.dst, arp.op, arp.hwsrc, arp.psrc, arp.pdst) == ("ff:ff:ff:ff:ff:ff", 1, OWN, str(FOUR), str(FOUR))


def test_an_unsolicited_advertisement_overrides_what_neighbours_know() -> None:
    frame = Ether(ANNOUNCER.announcement(SIX))
    advertisement = frame[ICMPv6ND_NA]
    assert (frame.dst, frame[IPv6].dst) == ("33:33:00:00:00:01", "ff02::1")
    assert (advertisement.S, advertisement.O, advertisement.tgt) == (0, 1, str(SIX))
    assert is_valid(frame)


def test_questions_are_told_from_other_frames() -> None:
    mac = bytes.fromhex(OTHER.replace(":", ""))
    assert read_request(request(FOUR)) == AddressRequest(mac, ip_address("172.18.0.1"), FOUR)
    assert read_request(solicitation(SIX)) == AddressRequest(mac, ip_address("fe80::b"), SIX)
    reply = bytes(Ether() / ARP(op="is-at", pdst=str(FOUR)))
    advertisement = ANNOUNCER.announcement(SIX)
    for frame in (reply, advertisement, b"", bytes(60), request(FOUR)[:30], solicitation(SIX)[:70]):
        assert read_request(frame) is None
