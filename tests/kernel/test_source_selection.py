"""The sources that the plan predicts are those that the kernel gives: to its own packets, and to masqueraded ones.

A router with many addresses on two uplinks, on ``lo`` and on a device without any, sends to drawn destinations. The
source of its own packets is what getsockname(2) says after connect(2). The source of masqueraded packets is that of a
client's datagram as it leaves the router.
"""

import os
import socket
import subprocess
from contextlib import ExitStack
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_interface, ip_network
from typing import Final, NamedTuple

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from sandboxed import sandboxed
from thoroughness import examples

from proxylab.addresses import Family, IPAddress, IPInterface
from proxylab.kernel.netlink.build import realise
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import NetNs, inside
from proxylab.plan.forwarding import route_to
from proxylab.plan.model import Address, LinkEnd, Neighbour, Plan, PlannedNamespace, Role, Route, Veth
from proxylab.plan.sources import masquerade_source, own_source
from proxylab.plan.sysctls import sysctls_for

ETH_P_ALL: Final = 3
PACKET_OUTGOING: Final = 4
SECONDS: Final = 2.0
DERANDOMIZED: Final = "LAB_THOROUGH" not in os.environ
MASQUERADE: Final = "table inet t {\n chain c {\n type nat hook postrouting priority 100\n masquerade\n }\n}\n"
CLIENT = {Family.IPV4: IPv4Address("198.18.0.2"), Family.IPV6: IPv6Address("2001:db8:c::2")}
UPLINKS = ("eth0", "eth1")
PORT = 4000

# Few networks, so that addresses share one; of several scopes, labels and lengths (rules 2, 6 and 8).
IPV4 = st.builds(
    lambda network, host, length: ip_interface(f"192.0.{network}.{host}/{length}"),
    st.integers(2, 4),
    st.sampled_from([1, 5, 9, 17, 18]),  # the next one is the broadcast address of no network
    st.sampled_from([24, 28, 29, 32]),
)
PREFIXES = (
    "2001:db8:1::",
    "2001:db8:1:8000::",
    "2001:db8:9::",
    "2600:1::",
    "fd00:1::",
    "fd00:1:8::",
    "fec0:1::",
    "2002:1::",
    "2001:10::",
)
IPV6 = st.builds(
    lambda prefix, host, length: ip_interface(f"{ip_address(int(ip_address(prefix)) + host)}/{length}"),
    st.sampled_from(PREFIXES),
    st.integers(1, 14),
    st.sampled_from([40, 64, 112, 128]),
)
NETWORKS = tuple(
    map(
        ip_network,
        (
            *("203.0.113.0/24", "10.0.0.0/8", "2001:db8:1:c000::/50", "fd00:1:9::/48", "2001:10:1::/48"),
            *("2002:5::/32", "fec0:5::/32"),
        ),
    )
)


class Router(NamedTuple):
    """What is drawn: a router, and the destinations of packets that it sends."""

    addresses: list[Address]
    routes: list[Route]
    destinations: list[IPAddress]


def on_devices(interfaces: st.SearchStrategy[IPInterface]) -> st.SearchStrategy[list[Address]]:
    """Addresses of one family, each once. Those of ``lo`` are alone in their network, as in a scenario."""

    def address(interface: IPInterface, device: str, deprecated: bool) -> Address:
        return Address(device, ip_interface(interface.ip) if device == "lo" else interface, deprecated)

    drawn = st.builds(address, interfaces, st.sampled_from(["lo", *UPLINKS]), st.booleans())
    return st.lists(drawn, min_size=1, max_size=6, unique_by=lambda each: each.interface.ip)


@st.composite
def routers(draw: st.DrawFn) -> Router:
    addresses = list[Address]()
    for each in (*draw(on_devices(IPV4)), *draw(on_devices(IPV6))):
        # One network on two devices has two equal routes, and a node of a lab has none such.
        if all(each.device == other.device or each.interface.network != other.interface.network for other in addresses):
            addresses.append(each)
    own = {each.interface.ip for each in addresses}
    near = {
        device: [
            each.interface.ip + 1 for each in addresses if each.device == device and each.interface.ip + 1 not in own
        ]
        for device in (*UPLINKS, "client")
    }
    routes = []
    for network in NETWORKS:
        device = draw(st.sampled_from([*UPLINKS, "client"]))
        # IPv6 does not ask for the next hop.
        vias = [each for each in near[device] if each.version == network.version == 4]
        via = draw(st.sampled_from([None, *vias]))
        routes.append(Route(network, device, via, onlink=via is not None))
    beyond = [network[draw(st.integers(1, 200))] for network in NETWORKS]
    networks = [each.interface.network for each in addresses if each.device in UPLINKS]
    connected = [each for some in near.values() for each in some if any(each in network for network in networks)]
    return Router(addresses, routes, [*dict.fromkeys([*beyond, *connected, *sorted(own, key=str)])])


def mac(number: int) -> str:
    return f"02:00:00:00:00:{number:02x}"


def plan_of(router: Router) -> Plan:
    """The router, a client that sends everything through it, and a namespace at the far ends of its uplinks."""
    far = {"eth0": mac(11), "eth1": mac(13), "client": mac(16)}
    links = (
        Veth(LinkEnd("far", "eth0", 11, far["eth0"]), LinkEnd("router", "eth0", 12, mac(12))),
        Veth(LinkEnd("far", "eth1", 13, far["eth1"]), LinkEnd("router", "eth1", 14, mac(14))),
        Veth(LinkEnd("router", "client", 15, mac(15)), LinkEnd("client", "eth0", 16, far["client"])),
    )
    own = {each.interface.ip for each in router.addresses}
    vias = [route.via for route in router.routes if route.via is not None]
    met = [each for each in dict.fromkeys([*vias, *router.destinations]) if each not in own]
    return Plan(
        namespaces=(
            PlannedNamespace(name="far", role=Role.HOST, sysctls=sysctls_for(Role.HOST, tuple(Family))),
            PlannedNamespace(
                name="router",
                role=Role.NODE,
                sysctls=sysctls_for(Role.NODE, tuple(Family)),
                addresses=tuple(router.addresses),
                routes=tuple(router.routes),
                neighbours=tuple(Neighbour(device, each, far[device]) for each in met for device in far),
            ),
            PlannedNamespace(
                name="client",
                role=Role.HOST,
                sysctls=sysctls_for(Role.HOST, tuple(Family)),
                addresses=tuple(Address("eth0", ip_interface(address)) for address in CLIENT.values()),
                routes=(Route(ip_network("0.0.0.0/0"), "eth0"), Route(ip_network("::/0"), "eth0")),
                neighbours=tuple(Neighbour("eth0", each, mac(15)) for each in router.destinations),
            ),
        ),
        links=links,
    )


def own_source_of(netns: NetNs, destination: IPAddress) -> str:
    """The source that the kernel gives a socket of the namespace."""
    with inside(netns), udp(destination) as sock:
        sock.connect((str(destination), PORT))
        return str(sock.getsockname()[0])


def udp(of: IPAddress) -> socket.socket:
    return socket.socket(socket.AF_INET if of.version == 4 else socket.AF_INET6, socket.SOCK_DGRAM)


def listening(netns: NetNs, device: str) -> socket.socket:
    """A socket that hears what comes in at a device."""
    with inside(netns):
        made = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
        made.bind((device, ETH_P_ALL))
    made.settimeout(SECONDS)
    return made


def masqueraded_as(client: NetNs, heard: socket.socket, destination: IPAddress, number: int) -> str:
    """The source of a client's datagram behind the router."""
    payload = f"datagram {number}".encode()
    with inside(client), udp(destination) as sock:
        sock.sendto(payload, (str(destination), PORT))
    while True:
        packet, (*_, way, _, _) = heard.recvfrom(2000)
        if packet.endswith(payload) and way != PACKET_OUTGOING:
            source = packet[12:16] if destination.version == 4 else packet[8:24]
            return str(ip_address(source))


def masqueraded_to_itself(router: NetNs, destination: IPAddress, addresses: list[Address]) -> str:
    """The source of a packet of the router's own for its own address, sent from the last of its other ones."""
    others = (each.interface.ip for each in reversed(addresses) if each.interface.version == destination.version)
    with inside(router), udp(destination) as receiver, udp(destination) as sender:
        receiver.settimeout(SECONDS)
        receiver.bind((str(destination), PORT))
        sender.bind((str(next((each for each in others if each != destination), destination)), 0))
        sender.sendto(b"to itself", (str(destination), PORT))
        return str(receiver.recvfrom(100)[1][0])


@settings(max_examples=examples(30), database=None, deadline=None, phases=[Phase.generate], derandomize=DERANDOMIZED)
@given(routers())
def sources_agree(router: Router) -> None:
    plan = plan_of(router)
    placement = plan.namespace("router")
    with realise(plan) as wiring, ExitStack() as stack:
        netns = wiring.namespaces["router"]
        own = {each: str(own_source(plan, "router", each)) for each in router.destinations}
        assert {each: own_source_of(netns, each) for each in router.destinations} == own
        with inside(netns):
            subprocess.run(["nft", "-f", "-"], input=MASQUERADE, text=True, check=True, capture_output=True)
        ears = {
            device: stack.enter_context(listening(wiring.namespaces[peer], there))
            for device, peer, there in (("eth0", "far", "eth0"), ("eth1", "far", "eth1"), ("client", "client", "eth0"))
        }
        for number, destination in enumerate(router.destinations):
            if placement.has(destination):
                device, found = "lo", masqueraded_to_itself(netns, destination, router.addresses)
            else:
                device = route_to(placement, destination).device
                found = masqueraded_as(wiring.namespaces["client"], ears[device], destination, number)
            planned = str(masquerade_source(plan, "router", device, destination))
            assert (str(destination), device, found) == (str(destination), device, planned)


async def kernel_and_plan_agree(_: Launcher) -> None:
    sources_agree()


def test_the_plan_predicts_the_kernels_sources() -> None:
    sandboxed(kernel_and_plan_agree, ordinary=True, seconds=100 * examples(1))
