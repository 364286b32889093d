"""Whether packets match a rule, by what is known of them: yes, no, or may."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from ipaddress import ip_address, ip_network
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from proxylab.addresses import IPAddress, Transport
from proxylab.rules.ipset import NamedSet, SetMember
from proxylab.rules.ipvs import PROTOCOLS, end_of
from proxylab.rules.rule import Action, Match, Rule


class Answer(Enum):
    """Whether packets match. ``MAY`` where the rule has a condition that is unknown, or what it compares is."""

    YES = "yes"
    NO = "no"
    MAY = "may"


class Packets(Struct, frozen=True):
    """What packets had, each field with all values that it may have had; of an empty one nothing is known."""

    protocols: Collection[Transport] = ()
    sources: Collection[IPAddress] = ()
    destinations: Collection[IPAddress] = ()
    source_ports: Collection[int] = ()
    destination_ports: Collection[int] = ()

    @property
    def numbers(self) -> set[int]:
        """The numbers of the protocols. ICMP has one in each version of IP, which an address shows."""
        return {each.number(version) for each in self.protocols for version in self.versions or {4, 6}}

    @property
    def versions(self) -> set[int]:
        """The versions of IP; none where no address is known."""
        return {each.version for each in (*self.sources, *self.destinations)}

    def of(self, field: "Field") -> Collection[IPAddress | int]:
        """The values of a field; protocols by their numbers."""
        return {
            Field.VERSION: self.versions,
            Field.PROTOCOL: self.numbers,
            Field.SOURCE: self.sources,
            Field.DESTINATION: self.destinations,
            Field.SOURCE_PORT: self.source_ports,
            Field.DESTINATION_PORT: self.destination_ports,
        }[field]


class Field(Enum):
    """What of a packet a condition compares."""

    VERSION = "ip"
    PROTOCOL = "-p"
    SOURCE = "-s"
    DESTINATION = "-d"
    SOURCE_PORT = "--sport"
    DESTINATION_PORT = "--dport"


class Comparison(Struct, frozen=True):
    """One field, and the values looked for as they are written: single ones, ranges and networks."""

    field: Field
    values: tuple[str, ...]
    operator: str = ""

    def answer(self, packets: Packets) -> Answer:
        """Whether the field of the packets has one of the values, or none of them where the operator negates."""
        known: Collection[IPAddress | int] = packets.of(self.field)
        negated = self.operator in ("!", "!=")
        try:
            held = [[_holds(value, each, self.field, self.operator) for value in self.values] for each in known]
        except (KeyError, ValueError):
            return Answer.MAY  # a named set, or something else that this module does not know
        # No packet of the other family comes to a rule with an address, negated or not.
        matched = {any(each) is not negated and None not in each for each in held}
        if len(matched) != 1:
            return Answer.MAY  # nothing is known of the field, or only some of its values match
        return Answer.YES if True in matched else Answer.NO


_FIELDS: Final = {
    "-p": Field.PROTOCOL,
    "-s": Field.SOURCE,
    "-d": Field.DESTINATION,
    "--sport": Field.SOURCE_PORT,
    "--dport": Field.DESTINATION_PORT,
    "--sports": Field.SOURCE_PORT,
    "--dports": Field.DESTINATION_PORT,
    "--src-range": Field.SOURCE,
    "--dst-range": Field.DESTINATION,
    "ip saddr": Field.SOURCE,
    "ip6 saddr": Field.SOURCE,
    "ip daddr": Field.DESTINATION,
    "ip6 daddr": Field.DESTINATION,
    "ip protocol": Field.PROTOCOL,
    "ip6 nexthdr": Field.PROTOCOL,
    "meta nfproto": Field.VERSION,
    "meta protocol": Field.VERSION,
    "meta l4proto": Field.PROTOCOL,
    "th sport": Field.SOURCE_PORT,
    "th dport": Field.DESTINATION_PORT,
    **{f"{each} sport": Field.SOURCE_PORT for each in ("tcp", "udp", "udplite", "sctp", "dccp")},
    **{f"{each} dport": Field.DESTINATION_PORT for each in ("tcp", "udp", "udplite", "sctp", "dccp")},
}
_OWN_HEADERS: Final = frozenset({
    "ah", "comp", "dccp", "esp", "icmp", "icmpv6", "igmp", "sctp", "tcp", "udp", "udplite"
})  # fmt: skip
"""Headers in nft's words that only packets of the protocol of that name have."""
_VERSIONS: Final[Mapping[str, int]] = {"ip": 4, "ipv4": 4, "ip6": 6, "ipv6": 6}
_READING: Final = _OWN_HEADERS | _VERSIONS.keys() | {"map", "th"}
"""Words of a statement that reads a packet; one that lacks what it reads goes on to the next rule."""
_SIDES: Final = {
    "src": (Field.SOURCE, Field.SOURCE_PORT),
    "dst": (Field.DESTINATION, Field.DESTINATION_PORT),
}
"""By the direction that a rule says of a set's field, what is compared where that is an address or a port."""
_WITH_PORTS: Final = frozenset({"tcp", "udp", "udplite", "sctp"})
_ADDRESSES: Final = frozenset({"ip", "net"})
_LIST: Final = "list:set"
_ALWAYS: Final = frozenset({"-m", "--comment"})
"""What iptables spells like a condition, and every packet matches."""
_SOMETIMES: Final = frozenset({"add", "delete", "limit", "quota", "update", "vmap"})
"""Statements of nft that end the rule for some packets, such as those that lack the field to remember."""

_PROTOCOLS: Final[Mapping[str, int]] = {
    **{each.lower(): each.number(4) for each in Transport},
    **dict.fromkeys(("icmpv6", "ipv6-icmp"), Transport.ICMP.number(6)),
    "igmp": 2,
    **dict.fromkeys(("ipencap", "ipip"), 4),
    "dccp": 33,
    "ipv6": 41,
    "gre": 47,
    "esp": 50,
    "ah": 51,
    "ospf": 89,
    "pim": 103,
    "comp": 108,
    "ipcomp": 108,
    "vrrp": 112,
    "l2tp": 115,
    "mh": 135,
    "udplite": 136,
}
"""The numbers of protocols by the names that rules have for them (protocols(5))."""
_LAST_PROTOCOL: Final = 255
_OPPOSITE: Final = {Answer.YES: Answer.NO, Answer.NO: Answer.YES, Answer.MAY: Answer.MAY}
_COMPARED: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "<": int.__lt__,
    "<=": int.__le__,
    ">": int.__gt__,
    ">=": int.__ge__,
}


Sets = Mapping[str, NamedSet]
"""Sets of ipset by their names."""


def matches(rule: Rule, packets: Packets, sets: Sets = MappingProxyType({})) -> Answer:
    """Whether packets match all conditions of the rule. Of a set that is not among these, nothing is known."""
    return _all(answer(part, packets, sets) for part in rule.parts)


def answer(part: Match | Action, packets: Packets, sets: Sets = MappingProxyType({})) -> Answer:
    """Whether packets match one condition. Of an action, whether it lets them go on to what stands behind it."""
    if part.name in _ALWAYS:
        return Answer.YES
    if isinstance(part, Match) and part.name == "--match-set" and part.value in sets and len(part.values) == 2:
        found = _in_set(sets[part.value], part.values[1].split(","), packets, sets)
        return _OPPOSITE[found] if part.negated else found
    compared, is_all = comparisons(part)
    return _all([*(each.answer(packets) for each in compared), *(() if is_all else (Answer.MAY,))])


def is_member(member: SetMember, of: NamedSet, directions: Sequence[str], packets: Packets) -> Answer:
    """Whether packets are this member of a set, with these directions of its fields."""
    if len(directions) < len(of.fields):
        return Answer.NO  # the kernel looks for nothing
    answers = [Answer.MAY] if member.ends else []
    for kind, direction, text in zip(of.fields, directions, member.fields, strict=False):
        address, port = _SIDES.get(direction, (None, None))
        protocol, number = text.split(":", 1) if ":" in text else ("tcp", text)
        if kind in _ADDRESSES and address is not None:
            answers.append(Comparison(address, (text,)).answer(packets))
        elif kind == "port" and port is not None:
            # A bitmap has numbers of TCP and of UDP; a hash has one protocol, which may have no ports.
            of_protocol = ("tcp", "udp") if of.kind.startswith("bitmap:") else (protocol,)
            answers.append(Comparison(Field.PROTOCOL, of_protocol).answer(packets))
            has_ports = _WITH_PORTS.issuperset(of_protocol)
            answers.append(Comparison(port, (number,)).answer(packets) if has_ports else Answer.MAY)
        else:
            answers.append(Answer.MAY)
    return _all(answers)


def _in_set(of: NamedSet, directions: Sequence[str], packets: Packets, sets: Sets) -> Answer:
    if of.kind == _LIST:
        names = [each.fields[0] for each in of.members]
        return _any(_in_set(sets[each], directions, packets, sets) if each in sets else Answer.MAY for each in names)
    answers = {each: is_member(each, of, directions, packets) for each in of.members}
    found = _any(each for member, each in answers.items() if not member.is_exception)
    if found is Answer.NO or all(each is Answer.NO for member, each in answers.items() if member.is_exception):
        return found
    # The narrowest network decides, where there is one that decides.
    nets = [at for at, kind in enumerate(of.fields) if kind == "net"]
    covering = [member for member, each in answers.items() if each is not Answer.NO]
    if len(nets) != 1 or any(answers[each] is Answer.MAY for each in covering):
        return Answer.MAY
    narrowest = max(covering, key=lambda member: ip_network(member.fields[nets[0]], strict=False).prefixlen)
    return Answer.NO if narrowest.is_exception else Answer.YES


def _all(answers: Iterable[Answer]) -> Answer:
    found = {*answers}
    return Answer.NO if Answer.NO in found else Answer.MAY if Answer.MAY in found else Answer.YES


def _any(answers: Iterable[Answer]) -> Answer:
    return _OPPOSITE[_all(_OPPOSITE[each] for each in answers)]


def comparisons(part: Match | Action) -> tuple[list[Comparison], bool]:
    """What a condition compares of addresses, ports and protocols, and whether that is all of it.

    In nft a header implies its protocol, and that of IP its version: ``tcp dport 80`` compares two fields.
    """
    if isinstance(part, Action):
        name = part.words[0] if part.name == "vmap" else part.name
        passes_all = part.name not in _SOMETIMES and _READING.isdisjoint(part.words)
        return [each for each in map(_of_header, name.split(" . ")) if each], passes_all
    if part.name in PROTOCOLS:
        return list(_of_service(part)), True
    names, elements = part.name.split(" . "), list(_elements(part))
    found: list[Comparison] = [each for each in map(_of_header, names) if each]
    # A list of pairs leaves out a packet whose address is in none of them. The ports of the pairs are not compared.
    is_all = len(names) == 1 or (len(elements) == 1 and not part.operator)
    for at, name in enumerate(names):
        field = _FIELDS.get(name)
        values = tuple(each[at] if at < len(each) else "" for each in elements)
        if field is None or (part.operator and len(names) > 1):
            is_all = False
        else:
            found.append(Comparison(field, values, part.operator))
    return found, is_all


def _of_service(service: Match) -> Iterator[Comparison]:
    """What a virtual server compares. Port 0 stands for all ports of its address."""
    address, port = end_of(service.value)
    yield Comparison(Field.PROTOCOL, (PROTOCOLS[service.name],))
    yield Comparison(Field.DESTINATION, (address,))
    if port != "0":
        yield Comparison(Field.DESTINATION_PORT, (port,))


def _of_header(name: str) -> Comparison | None:
    header, _, field = name.partition(" ")
    if field and header in _VERSIONS:
        return Comparison(Field.VERSION, (header,))
    return Comparison(Field.PROTOCOL, (header,)) if field and header in _OWN_HEADERS else None


def _elements(match: Match) -> Iterator[list[str]]:
    """The alternatives of a condition, each with its parts: more than one where values are joined by ``.``."""
    for each in match.alternatives:
        yield each.split(" . ")


def _holds(value: str, had: IPAddress | int, field: Field, operator: str) -> bool | None:
    """Whether a value covers what packets had; ``None`` for an address of the other family.

    Raises ``KeyError`` or ``ValueError`` for a value that cannot be read.
    """
    if field is Field.PROTOCOL:
        return _number(value) == had
    if field is Field.VERSION:
        return _VERSIONS[value] == had
    if isinstance(had, int):
        if operator in _COMPARED:
            return _COMPARED[operator](had, int(value))
        first, to, last = value.replace("-", ":").partition(":")
        return int(first or 0) <= had <= int(last or (65535 if to else first))
    if operator in _COMPARED:
        raise ValueError(value)
    first, to, last = value.partition("-")
    if to:
        low, high = ip_address(first), ip_address(last)
        return low.packed <= had.packed <= high.packed if low.version == had.version else None
    network = ip_network(value, strict=False)
    return had in network if network.version == had.version else None


def _number(protocol: str) -> int:
    """The number of a protocol by its name or number. Raises ``KeyError`` or ``ValueError`` where it is neither."""
    if not protocol.isdigit():
        return _PROTOCOLS[protocol.lower()]
    if int(protocol) > _LAST_PROTOCOL:
        raise ValueError(protocol)
    return int(protocol)
