"""``spec.nodes``: the keys of a node. ``proxylab.scenario.networks`` compares them with the network."""

from contextlib import suppress
from typing import Annotated, Final, NamedTuple

from msgspec import field

from proxylab.addresses import IPAddress, Protocol
from proxylab.cluster.configuration import SocketAddress
from proxylab.scenario.document import describe, shown
from proxylab.scenario.keys import NOT_EMPTY, OWN_NAME, Check, Declared, Key, Read, WrittenAs, refused
from proxylab.scenario.network import UPLINK, AnyNetem, Mtu
from proxylab.scenario.syntax import (
    Address,
    Destination,
    DeviceName,
    Interface,
    Labels,
    Name,
    Network,
    PortNumber,
    Sysctls,
    TaintText,
    distinct,
)
from proxylab.scenario.words import Position


class NodeAddress(Declared, frozen=True, kw_only=True):
    """A further address of a node."""

    interface: Annotated[
        Interface,
        Key(
            "The address, with a prefix length where other machines share its network.",
            ["192.0.2.1/24"],
            alias="address",
        ),
    ]
    device: Annotated[DeviceName, Key("The device: eth0, another uplink of the node, or lo.")] = UPLINK
    deprecated: Annotated[
        bool,
        Key(
            "Whether its preferred lifetime is over, as keepalived adds virtual addresses: IPv6 does not choose it as "
            "a source while there is another."
        ),
    ] = False


class Uplink(Declared, frozen=True):
    """A further device of a node, on a segment. The lab chooses its addresses."""

    device: Annotated[DeviceName, OWN_NAME]
    segment: Annotated[Name, Key("The segment: nodes, or one of network.segments.", ["storage"])]
    netem: Annotated[
        AnyNetem | None,
        Key("What its link does to packets.", [{"loss": "10%", "delay": "20ms"}]),
    ] = None


class NodeRoute(Declared, frozen=True):
    """A further route of a node."""

    destination: Annotated[
        Destination,
        Key(
            "The destination: a network, or default, in place of the node's default route to the router through eth0.",
            ["198.51.100.0/24", "default"],
            alias="to",
        ),
    ]
    device: Annotated[DeviceName, Key("The device that packets leave through.", ["eth1"])]
    via: Annotated[Address | None, Key("The gateway; without it the destination is on the link.", ["172.19.0.1"])] = (
        None
    )
    source: Annotated[
        Network | None,
        Key("Makes it a policy route, for packets from that network.", ["172.19.0.0/16"], alias="from"),
    ] = None
    mtu: Annotated[
        Mtu | None,
        Key("The largest packet that the node sends by it; of a larger one it tells the sender.", [1400]),
    ] = None


class Daemon(Declared, frozen=True, kw_only=True):
    """A program that listens on the node itself."""

    name: Annotated[Name, OWN_NAME]
    port: Annotated[PortNumber, Key("The port it listens on.", [8080])]
    protocol: Annotated[Protocol, Key("The transport protocol.")] = Protocol.TCP
    address: Annotated[Address | None, Key("The address it listens on; the default is all.", ["127.0.0.1"])] = None


def _end(value: object) -> object:
    with suppress(ValueError):
        if isinstance(value, str) and SocketAddress.parse(value):
            return value
    raise refused(
        f"must be an address and port, is {describe(value)}", allowed="write it as 10.0.0.1:80 or [fd00::1]:80"
    )


_End = Annotated[SocketAddress, WrittenAs(Annotated[str, Read(_end)], SocketAddress.parse)]


class ConnectionWay(NamedTuple):
    """Packets of connections in one direction, which no other connection may have; those of several in ``lastPort``."""

    protocol: Protocol
    source: IPAddress
    source_ports: range
    destination: IPAddress
    destination_ports: range

    def meets(self, other: "ConnectionWay") -> bool:
        """Whether some packet belongs to both."""
        ends = (self.protocol, self.source, self.destination)
        return (
            ends == (other.protocol, other.source, other.destination)
            and _overlap(self.source_ports, other.source_ports)
            and _overlap(self.destination_ports, other.destination_ports)
        )


def _overlap(one: range, other: range) -> bool:
    return max(one[0], other[0]) <= min(one[-1], other[-1])


class TrackedConnection(Declared, frozen=True, kw_only=True):
    """A connection that a node knows before its engine starts. One of TCP is established.

    Packets of the flow meet no rule. So send them as a stream: a probe is inconclusive if no rule counts its packet.
    With ``lastPort`` they are many connections, which fill the table.
    """

    protocol: Annotated[Protocol, Key("The transport protocol.", ["UDP"])]
    source: Annotated[_End, Key("The sender's address and port.", ["10.244.0.10:40000"], alias="from")]
    destination: Annotated[_End, Key("The address and port that it dialled.", ["10.96.0.10:53"], alias="to")]
    reply_from: Annotated[
        _End | None,
        Key(
            "Where the kernel sends the packets instead (DNAT), so that replies come from there.", ["10.244.1.10:5353"]
        ),
    ] = None
    reply_to: Annotated[
        _End | None,
        Key("The source that the kernel gives the packets (SNAT), so that replies go there.", ["172.18.0.2:40000"]),
    ] = None
    last_port: Annotated[
        PortNumber | None,
        Key(
            "Makes an entry for each port of the sender from that in from up to this one: unrelated connections that "
            "fill the table, or hold every port that masquerading could choose.",
            [65535],
        ),
    ] = None

    @property
    def ends(self) -> dict[str, SocketAddress]:
        """Its addresses and ports by their keys."""
        ends = {"from": self.source, "to": self.destination, "replyFrom": self.reply_from, "replyTo": self.reply_to}
        return {key: end for key, end in ends.items() if end is not None}

    @property
    def ports(self) -> range:
        """The ports of the sender, one for each entry."""
        return range(self.source.port, (self.last_port or self.source.port) + 1)

    @property
    def ways(self) -> tuple[ConnectionWay, ConnectionWay]:
        """Its packets as they come first, and the replies to them as they come."""
        answering, asking = self.reply_from or self.destination, self.reply_to or self.source
        asked = self.ports if self.reply_to is None else _one(asking.port)
        there = (self.source.address, self.ports, self.destination.address, _one(self.destination.port))
        back = (answering.address, _one(answering.port), asking.address, asked)
        return ConnectionWay(self.protocol, *there), ConnectionWay(self.protocol, *back)


def _one(port: int) -> range:
    return range(port, port + 1)


def _restorable(text: str) -> str:
    lines = text.splitlines()
    if not any(line.startswith("*") for line in lines) or "COMMIT" not in lines:
        raise refused("is not input for iptables-restore", allowed="allowed: tables as iptables-save prints them")
    return text


class Leftovers(Declared, frozen=True, kw_only=True):
    """Rules that a node holds before its engine starts. The lab skips rules of a family that it does not have."""

    iptables: Annotated[
        str,
        Check(_restorable),
        Key(
            "Input for iptables-restore, as iptables-save prints it.",
            ["*nat\n:KUBE-SERVICES - [0:0]\n-A PREROUTING -j KUBE-SERVICES\nCOMMIT\n"],
        ),
    ] = ""
    ip6tables: Annotated[
        str,
        Check(_restorable),
        Key("Input for ip6tables-restore, as ip6tables-save prints it.", ["*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n"]),
    ] = ""
    nft: Annotated[str, NOT_EMPTY, Key("Input for nft, of any family.", ["table ip kube-proxy {\n}\n"])] = ""

    @property
    def by_tool(self) -> dict[str, str]:
        """The rules by the tool that reads them, without tools that have none."""
        texts = {"iptables": self.iptables, "ip6tables": self.ip6tables, "nft": self.nft}
        return {tool: text for tool, text in texts.items() if text}


def _path(text: str) -> str:
    if not text.startswith("/"):
        raise refused(f"{shown(text)} is not the path of a program", allowed="allowed: a path from /, such as /opt/nft")
    return text


PROGRAMS: Final = ("nft", "iptables")
"""The names of the programs that may be others than the machine's own."""


class NodePrograms(Declared, frozen=True, kw_only=True):
    """Programs of this machine that the proxies of nodes run in place of its own ones of that name."""

    nft: Annotated[
        Annotated[str, Check(_path)] | None,
        Key("The path of nft, for mode nftables. The lab lists rules by the machine's own.", ["/opt/nft-1.0.6/nft"]),
    ] = None
    iptables: Annotated[
        Annotated[str, Check(_path)] | None,
        Key(
            "The path of a program that is iptables, iptables-save, iptables-restore and those of IPv6, by the name "
            "by which it is run, such as xtables-nft-multi. The lab reads rules by the machine's own of that variant.",
            ["/opt/iptables-1.8.8/xtables-nft-multi"],
        ),
    ] = None

    @property
    def by_name(self) -> dict[str, str]:
        """The paths of those that the author names."""
        return {name: path for name in PROGRAMS if (path := getattr(self, name)) is not None}

    def over(self, others: "NodePrograms") -> "NodePrograms":
        """These, and of the others those that are not named here."""
        return NodePrograms(nft=self.nft or others.nft, iptables=self.iptables or others.iptables)


def _address_of_text(value: object) -> object:
    return {"address": value} if isinstance(value, str) else value


_ANY_ADDRESS: Final = Read(_address_of_text, str | NodeAddress)


class LabNode(Declared, frozen=True, kw_only=True):
    """A node: a network namespace with an engine in it."""

    name: Annotated[Name, OWN_NAME]
    labels: Annotated[
        Labels,
        Key("Labels of the Node object, such as its zone.", [{"topology.kubernetes.io/zone": "zone-a"}]),
    ] = field(default_factory=dict)
    taints: Annotated[
        tuple[TaintText, ...],
        Check(distinct),
        Key(
            "The Node object's taints: keys, or KEY=VALUE:EFFECT. Workloads keep away from taints that they do not "
            "tolerate. A proxy reports itself unhealthy on a node that the cluster autoscaler is about to remove.",
            [["ToBeDeletedByClusterAutoscaler"]],
        ),
    ] = ()
    terminating: Annotated[bool, Key("Whether the Node object is being deleted. Its proxy is then unhealthy too.")] = (
        False
    )
    present: Annotated[
        bool,
        Key(
            "Whether the API knows the node when the lab begins. One that joins later needs a real control plane: its "
            "machine is there, and its proxy starts when kubectl or a step makes its Node object."
        ),
    ] = True
    sysctls: Annotated[
        Sysctls,
        Key(
            "Sysctls to set in the node, by dotted name, instead of the lab's own values.",
            [{"net.ipv4.conf.all.route_localnet": 1}],
        ),
    ] = field(default_factory=dict)
    internal_ips: Annotated[
        tuple[Address, ...],
        Check(distinct),
        Key(
            "Fixed addresses of the node, one of each family, in nodeCIDR. By default the lab chooses them.",
            [["172.18.0.77"]],
            alias="internalIPs",
        ),
    ] = ()
    addresses: Annotated[
        tuple[Annotated[NodeAddress, _ANY_ADDRESS], ...],
        Key(
            "Further addresses of the node: plain ones for eth0, or mappings with a device.",
            [["192.0.2.1/24", {"address": "192.0.2.9", "device": "lo"}]],
        ),
    ] = ()
    uplinks: Annotated[
        tuple[Uplink, ...], Key("Further devices by name, each on a segment.", [{"eth1": {"segment": "storage"}}])
    ] = ()
    routes: Annotated[
        tuple[NodeRoute, ...],
        Key("Further routes of the node.", [[{"to": "198.51.100.0/24", "device": "eth1", "via": "172.19.0.1"}]]),
    ] = ()
    netem: Annotated[
        AnyNetem | None,
        Key("What the node's link to its segment (eth0) does to packets.", [{"loss": "10%", "delay": "20ms"}]),
    ] = None
    daemons: Annotated[
        tuple[Daemon, ...],
        Key("Programs by name that listen on the node itself.", [{"kubelet": {"port": 10250}}]),
    ] = ()
    leftovers: Annotated[
        Leftovers,
        Key(
            "Rules that another proxy, or this one in another mode or version, has left in the node. The lab loads "
            "them before the engine starts, in the order iptables, ip6tables, nft.",
            [{"nft": "table ip kube-proxy {\n}\n"}],
        ),
    ] = Leftovers()
    programs: Annotated[
        NodePrograms,
        Key(
            "Programs that the node's proxy, and commands there, run in place of the machine's own.",
            [{"nft": "/opt/nft-1.0.6/nft"}],
        ),
    ] = NodePrograms()
    conntrack: Annotated[
        tuple[TrackedConnection, ...],
        Key(
            "Entries of the node's connection tracking table from before its engine starts.",
            [
                [
                    {
                        "protocol": "UDP",
                        "from": "10.244.0.10:40000",
                        "to": "10.96.0.10:53",
                        "replyFrom": "10.244.1.10:5353",
                    }
                ]
            ],
        ),
    ] = ()
    position: Position

    @property
    def fixed_addresses(self) -> tuple[IPAddress, ...]:
        """Its own addresses that the author fixes."""
        return self.internal_ips
