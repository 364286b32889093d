"""The tables of IPVS and ipset as records, and as the rules and sets that ipvsadm(8) and ipset(8) save.

Engines plan these records, ``kernel.netfilter.ipvs`` and ``kernel.netfilter.ipset`` write and read them, and
comparisons and traces print them.
"""

from typing import Final, NamedTuple

from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress, IPNetwork, Protocol
from proxylab.encoding import Record
from proxylab.evidence.words import endpoint
from proxylab.rules.ipset import NamedSet, SetMember, print_sets
from proxylab.rules.ipvs import DESTINATION, SERVER, SERVICES, print_rule
from proxylab.rules.rule import Action, Match, Rule, Tool

MASQUERADING: Final = 0
"""The forwarding method that translates addresses (IP_VS_CONN_F_MASQ), the only one of kube-proxy."""

VIRTUAL_SERVERS: Final = "ipvs"
"""In place of a table's name, in counts and traces of what IPVS did; the texts of such rules are ipvsadm's."""

SETS: Final = "ipset"
"""Likewise for a set that lacks a member: ``chain`` is its name, ``text`` the member, and no packet is counted."""

_OPTIONS: Final = {Protocol.TCP: "-t", Protocol.UDP: "-u", Protocol.SCTP: "--sctp-service"}


class IpvsCounts(Record, frozen=True):
    """What IPVS has counted, at a virtual server or at one of its destinations."""

    connections: int = 0
    packets_in: int = 0
    packets_out: int = 0


class IpvsDestination(Record, frozen=True, kw_only=True):
    """A destination ("real server") of a virtual server.

    Attributes:
        weight: its share; 0 takes no new connection and keeps those that it has.
        active: established connections; ``inactive`` has the others, and ``persistent`` the templates of clients.
    """

    address: IPAddress
    port: int
    weight: int = 1
    forwarding: int = MASQUERADING
    active: int = 0
    inactive: int = 0
    persistent: int = 0
    counts: IpvsCounts = IpvsCounts()

    @property
    def planned(self) -> "IpvsDestination":
        """The same without what the kernel counts."""
        return IpvsDestination(address=self.address, port=self.port, weight=self.weight, forwarding=self.forwarding)

    def __str__(self) -> str:
        return endpoint(self.address, self.port)


class ServerKey(NamedTuple):
    """What identifies a virtual server."""

    address: IPAddress
    port: int
    protocol: Protocol


class VirtualServer(Record, frozen=True, kw_only=True):
    """A virtual server ("service" in ipvsadm's words). Address, port and protocol identify it.

    Attributes:
        scheduler: the name of the kernel's module: ``rr``, ``mh``.
        persistence: seconds for which a client keeps its destination; 0 without persistence.
        scheduler_flags: ``flag-1`` to ``flag-3`` of the scheduler as bits 0x8 to 0x20 (IP_VS_SVC_F_SCHED1).
    """

    address: IPAddress
    port: int
    protocol: Protocol
    scheduler: str = "rr"
    persistence: int = 0
    scheduler_flags: int = 0
    destinations: tuple[IpvsDestination, ...] = ()
    counts: IpvsCounts = IpvsCounts()

    @property
    def key(self) -> ServerKey:
        """What identifies it."""
        return ServerKey(self.address, self.port, self.protocol)

    @property
    def alone(self) -> "VirtualServer":
        """The same without destinations and without what the kernel counts."""
        return replace(self, destinations=(), counts=IpvsCounts())

    @property
    def option(self) -> str:
        """What identifies it, in ipvsadm's options: ``-t 10.96.0.10:80``."""
        return f"{_OPTIONS[self.protocol]} {endpoint(self.address, self.port)}"

    @property
    def rule(self) -> Rule:
        """The virtual server as a rule."""
        flags = [f"flag-{number}" for number, bit in enumerate((0x8, 0x10, 0x20), 1) if self.scheduler_flags & bit]
        persistence = ("-p", str(self.persistence)) if self.persistence else ()
        return self._rule(SERVER, "-s", self.scheduler, *persistence, *(("-b", ",".join(flags)) if flags else ()))

    def rule_of(self, destination: IpvsDestination) -> Rule:
        """A destination of it as a rule."""
        return self._rule(DESTINATION, "-r", str(destination), "-m", "-w", str(destination.weight))

    def lines(self) -> list[str]:
        """As ``ipvsadm --save --numeric`` prints it and its destinations, these sorted."""
        return [print_rule(self.rule), *sorted(print_rule(self.rule_of(each)) for each in self.destinations)]

    def _rule(self, command: str, *words: str) -> Rule:
        service = Match(SERVICES[_OPTIONS[self.protocol]], (endpoint(self.address, self.port),))
        return Rule("", (service, Action(command, words)), Tool.IPVSADM)


class IpvsConnection(Record, frozen=True, kw_only=True):
    """A connection of IPVS, as ``ipvsadm --list --connection`` prints it."""

    protocol: Protocol
    client: IPAddress
    client_port: int
    server: IPAddress
    port: int
    destination: IPAddress
    destination_port: int

    @property
    def key(self) -> ServerKey:
        """What identifies its virtual server."""
        return ServerKey(self.server, self.port, self.protocol)


class IpvsTimeouts(Record, frozen=True):
    """How long IPVS keeps a connection without packets, in seconds; 0 leaves a value as it is."""

    tcp: int = 0
    tcp_fin: int = 0
    udp: int = 0


class Member(Record, frozen=True, kw_only=True):
    """A member of a set: the fields that the set's type has, such as ``hash:ip,port,net``.

    ``other`` is the third field: an address, or the network of that type.
    """

    address: IPAddress | None = None
    protocol: Protocol | None = None
    port: int | None = None
    other: IPAddress | IPNetwork | None = None

    def __str__(self) -> str:
        port = "" if self.port is None else str(self.port)
        protocol = "" if self.protocol is None else f"{self.protocol.lower()}:"
        other = "" if self.other is None else str(self.other)
        if other.endswith(("/32", "/128")):
            other = other.partition("/")[0]  # ipset prints a network of one address as that address
        fields = ("" if self.address is None else str(self.address), protocol + port, other)
        return ",".join(filter(None, fields))


class IpSet(Record, frozen=True, kw_only=True):
    """A set of ipset. ``kind`` is its type in ipset's words; a set of ports has no family."""

    name: str
    kind: str
    family: Family | None = Family.IPV4
    members: frozenset[Member] = frozenset()

    @property
    def named(self) -> NamedSet:
        """The set as rules name it, without sizes, and with its members sorted."""
        family = {Family.IPV4: ("family", "inet"), Family.IPV6: ("family", "inet6"), None: ("range", "0-65535")}
        members = [SetMember(self.name, tuple(each.split(","))) for each in sorted(map(str, self.members))]
        return NamedSet(self.name, self.kind, family[self.family], tuple(members))

    def lines(self) -> list[str]:
        """As ``ipset save`` prints it."""
        return print_sets([self.named])
