"""What the matches of a rule exclude, read from its text as iptables-save or nft prints it.

Only addresses, ports and the protocol count. A match that this module cannot read excludes nothing.
"""

import re
from collections.abc import Collection, Mapping
from ipaddress import ip_network
from typing import Final

from proxylab.addresses import IPAddress, Transport

Had = IPAddress | int | Transport
"""What a packet had: an address, a port, or the protocol."""

_COMMENT: Final = re.compile(r'comment (?:"(?:\\.|[^"\\])*"|[^-\s]\S*)')
_NFT_ADDRESS: Final = re.compile(r"(?<!original )(?<!reply )\bip6? ([sd])addr (!= )?")
_NFT_PORT: Final = re.compile(r"\b(tcp|udp|sctp|th) ([sd])port (!= )?")
_NFT_PROTOCOL: Final = re.compile(r"\b(?:meta l4proto|ip protocol|ip6 nexthdr) (!= )?")
_NFT_HEADER: Final = re.compile(r"\b(tcp|sctp|icmp|icmpv6) (flags|type|code)\b")
_MATCH: Final = re.compile(r"(?<!\S)(!=? )?(-[sdp]|--[sd]port) (\{[^}]*\}|\S+)")
_PROTOCOLS: Final[Mapping[str, Transport]] = {
    **{each.lower(): each for each in Transport},
    **{str(each.number(version)): each for each in Transport for version in (4, 6)},
    **dict.fromkeys(("icmpv6", "ipv6-icmp"), Transport.ICMP),
}


def excludes(text: str, possible: Mapping[str, Collection[Had]]) -> bool:
    """Whether a match of the rule holds for none of what is possible; or for all, if it is negated.

    ``possible`` has what the packets had by the option of iptables that matches it: ``-p``, ``-s``, ``-d``, ``--sport``
    and ``--dport``. Of what is not there nothing is known.
    """
    text = _NFT_ADDRESS.sub(r"\2-\1 ", _COMMENT.sub("", text))
    text = _NFT_PROTOCOL.sub(r"\1-p ", _NFT_PORT.sub(r"-p \1 \3--\2port ", text))
    for negated, option, value in _MATCH.findall(_NFT_HEADER.sub(r"-p \1 \2", text)):
        try:
            holds = [_holds(value, each) for each in possible[option]]
        except (KeyError, ValueError):
            continue  # unreadable, or nothing is known of it
        if holds and (all(holds) if negated else not any(holds)):
            return True
    return False


def _holds(value: str, had: Had) -> bool:
    """Whether a match holds. Raises ``KeyError`` or ``ValueError`` where its value is unreadable."""
    values = value.strip("{} ").split(",")
    return any(_is_one_of(each.strip(), had) for each in values)


def _is_one_of(value: str, had: Had) -> bool:
    if isinstance(had, Transport):
        return _PROTOCOLS[value.lower()] is had
    if not isinstance(had, int):
        return had in ip_network(value, strict=False)
    first, _, last = value.replace("-", ":").partition(":")
    return int(first) <= had <= int(last or first)
