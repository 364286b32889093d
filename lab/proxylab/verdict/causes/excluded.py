"""Rules whose own matches exclude a flow's packets: whatever such a rule counted, it did nothing to them.

Only addresses, ports and the protocol count, in the words of iptables-save or nft. What is unreadable excludes nothing.
"""

import re
from collections.abc import Mapping
from ipaddress import ip_network
from typing import Final

from msgspec.structs import replace

from proxylab.addresses import IPAddress, Transport
from proxylab.evidence.evidence import Packet
from proxylab.verdict.causes.failure import Failure
from proxylab.verdict.flows.hops import hops

__all__ = ["without_excluded"]

_COMMENT: Final = re.compile(r'comment (?:"(?:\\.|[^"\\])*"|[^-\s]\S*)')
_NFT_ADDRESS: Final = re.compile(r"(?<!original )(?<!reply )\bip6? ([sd])addr (!= )?")
_NFT_PORT: Final = re.compile(r"\b(tcp|udp|sctp|th) ([sd])port (!= )?")
_NFT_PROTOCOL: Final = re.compile(r"\b(?:meta l4proto|ip protocol|ip6 nexthdr) (!= )?")
_MATCH: Final = re.compile(r"(?<!\S)(!=? )?(-[sdp]|--[sd]port) (\S+)")
_PROTOCOLS: Final[Mapping[str, Transport]] = {
    **{each.lower(): each for each in Transport},
    **dict.fromkeys(("icmpv6", "ipv6-icmp"), Transport.ICMP),
}


def without_excluded(failure: Failure, *kinds: Packet) -> Failure:
    """The failure without the rules that can have matched no packet of the flow in any of these directions.

    A node may have translated a packet before the rule or behind it, so each address that it ever had counts. Nothing
    is excluded where a tunnel carries it, since a rule may match the tunnel's packet.
    """
    case = failure.case
    if failure.plan is not None and any(each.vxlans for each in failure.plan.namespaces):
        return failure
    ways = [_possible(failure, kind) for kind in kinds]

    def may_match(text: str) -> bool:
        return any(not _excludes(text, way) for way in ways)

    evidence = replace(
        case.evidence,
        counts=tuple(each for each in case.evidence.counts if may_match(each.text)),
        foreign=tuple(each for each in case.evidence.foreign if may_match(each.text)),
    )
    return replace(failure, case=replace(case, evidence=evidence))


def _possible(failure: Failure, kind: Packet) -> dict[str, set[IPAddress | int | Transport]]:
    """What packets of one direction had, by the option of iptables that matches it. ICMP errors come from anywhere."""
    if kind is Packet.OTHER_ICMP:
        return {"-p": {Transport.ICMP}}
    case, there = failure.case, kind is Packet.REQUEST
    client, (service, port) = case.resolved.sender.address_of_flow(failure.flow.number), case.dialled
    seen = [each for each in hops(failure.flow) if each.packet is kind]
    return {
        "-p": {case.resolved.protocol},
        "-s": {client if there else service, *(each.source for each in seen)},
        "-d": {service if there else client, *(each.destination for each in seen)},
        "--sport": {*(() if there else (port,)), *(each.source_port for each in seen)},
        "--dport": {*((port,) if there else ()), *(each.destination_port for each in seen)},
    }


def _excludes(text: str, possible: Mapping[str, set[IPAddress | int | Transport]]) -> bool:
    """Whether a match of the rule holds for none of what is possible; or for all, if it is negated."""
    text = _NFT_ADDRESS.sub(r"\2-\1 ", _COMMENT.sub("", text))
    text = _NFT_PROTOCOL.sub(r"\1-p ", _NFT_PORT.sub(r"-p \1 \3--\2port ", text))
    for negated, option, value in _MATCH.findall(text):
        try:
            holds = [_holds(value, each) for each in possible[option]]
        except (KeyError, ValueError):
            continue  # unreadable, or nothing is known of it
        if holds and (all(holds) if negated else not any(holds)):
            return True
    return False


def _holds(value: str, had: IPAddress | int | Transport) -> bool:
    """Whether a match holds. Raises ``KeyError`` or ``ValueError`` where its value is unreadable."""
    if isinstance(had, Transport):
        return _PROTOCOLS[value.lower()] is had
    if not isinstance(had, int):
        return had in ip_network(value, strict=False)
    first, _, last = value.replace("-", ":").partition(":")
    return int(first) <= had <= int(last or first)
