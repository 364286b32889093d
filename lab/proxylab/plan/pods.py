"""The three pod networks: how a node connects its pods, and the network namespaces of pods.

``ptp``, as in kind's CNI: the node's end of every pod's veth has the node's gateway address, and permanent neighbours
on both ends replace ARP. The pod's own address is a /32, and everything else goes via the gateway. So a pod reaches
another pod on the same node through the node's IP stack and its rules. The gateway address has global scope, so that a
masquerade towards a pod finds it on the outgoing device (inet_select_addr, net/ipv4/devinet.c).

``ptp-unnumbered``, as in Calico: the node's ends have no address of their own. Pods send to 169.254.1.1, which no
device has: the node answers ARP for it as a proxy, since its route there leads elsewhere (arp_process,
net/ipv4/arp.c). In IPv6 the gateway is a link-local address on the node's end of every pod's veth.

``bridge``, as in flannel: all pods of a node are ports of one bridge, which has the gateway address. Traffic between
pods of a node bypasses its IP stack, except where bridge-nf-call-iptables passes it to the rules. A bridge does not
send a frame back out of its ingress port, so a pod reaches itself through a Service only if its port is a hairpin port
or, in part, if the bridge is promiscuous.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final

from proxylab.addresses import Family, IPAddress, IPNetwork, Protocol
from proxylab.cluster.kube_dns import COREDNS, DNS_PORT
from proxylab.plan.addresses import AddressPlan
from proxylab.plan.device_names import POD_BRIDGE
from proxylab.plan.draft import Draft, NamespaceDraft, only
from proxylab.plan.model import Forwarding, Listener, Neighbour, PodPlacement, Role, Sysctl
from proxylab.plan.name_servers import namespace_of_name_server, serves_names
from proxylab.scenario.dns import NameServer
from proxylab.scenario.model import Scenario
from proxylab.scenario.network import NODES, PODS, UPLINK
from proxylab.scenario.pods import PodGroup

_EVERYWHERE: Final[Mapping[int, IPNetwork]] = {4: IPv4Network("0.0.0.0/0"), 6: IPv6Network("::/0")}
_UNNUMBERED: Final[Mapping[int, IPAddress]] = {
    4: IPv4Address("169.254.1.1"),
    6: IPv6Address("fe80::ecee:eeff:feee:eeee"),
}
_LINK_LOCAL: Final = IPv6Network("fe80::/64")
_VXLAN_OVERHEAD: Final = {4: 50, 6: 70}  # VXLAN_HEADROOM and VXLAN6_HEADROOM, include/net/vxlan.h
_ETHERNET_MTU: Final = 1500
_FORWARDING: Final[Mapping[Family, Mapping[str, str]]] = {
    Family.IPV4: {
        "net.ipv4.ip_forward": "1",
        "net.ipv4.conf.default.forwarding": "1",
        "net.ipv4.conf.all.send_redirects": "0",
        "net.ipv4.conf.default.send_redirects": "0",
    },
    Family.IPV6: {"net.ipv6.conf.all.forwarding": "1", "net.ipv6.conf.default.forwarding": "1"},
}


def everywhere(address: IPAddress) -> IPNetwork:
    """The destination of a default route of the family of ``address``."""
    return _EVERYWHERE[address.version]


def add_pods(scenario: Scenario, addresses: AddressPlan, draft: Draft, nodes: Mapping[str, NamespaceDraft]) -> None:
    """Draw every pod of the scenario."""
    wirer = _PodLinker(scenario, addresses, draft)
    for group in scenario.pods:
        for home, names in _homes(group).items():
            node = nodes[group.node_of(group.pod_names.index(names[0]))]
            if group.host_network:
                namespace = node
            else:
                sysctls = {**_forwarding(scenario), **group.sysctls} if group.forwards_to else group.sysctls
                namespace = draft.namespace(home, Role.POD, sysctls)
                wirer.network(namespace, node, names)
            for name in names:
                own = addresses.pod[name]
                listening = _listeners(name, group, own if group.shared_netns else (None,))
                listening = [] if group.forwards_to else listening
                if serves_names(scenario, group):
                    listening = [
                        replace(each, serves_names=True, program=each.program or _program_of_names(scenario))
                        for each in listening
                    ]
                namespace.listeners += listening
                draft.pod(
                    PodPlacement(
                        name=name,
                        node=node.name,
                        namespace=namespace.name,
                        device=UPLINK,
                        addresses=own,
                        commands=group.commands,
                        forwards=_forwards(group),
                    )
                )
    if addresses.name_server:
        program = _program_of_names(scenario)
        _add_name_server(nodes[scenario.nodes[0].name], addresses.name_server, draft, wirer, program)


def _forwarding(scenario: Scenario) -> dict[str, str]:
    """The sysctls with which a pod passes packets on: those of K3s' ServiceLB, and no redirects, as in all forwarders.

    A device begins with the values of ``default``.
    """
    return {key: value for family in scenario.network.families for key, value in _FORWARDING[family].items()}


def _forwards(group: PodGroup) -> Forwarding | None:
    if not group.forwards_to:
        return None
    namespace, service = group.forwards_to_service
    ports = tuple(each.in_api for each in group.ports)
    return Forwarding(namespace=namespace, service=service, ports=ports)


def _program_of_names(scenario: Scenario) -> str:
    """The real program that serves names; empty for the lab's own name server."""
    server = scenario.name_server.server
    return server.value if server is NameServer.COREDNS else ""


def _add_name_server(
    node: NamespaceDraft, own: Sequence[IPAddress], draft: Draft, wirer: "_PodLinker", program: str
) -> None:
    """Draw the lab's own name server: connected like any pod, but in no list of pods."""
    namespace = draft.namespace(namespace_of_name_server(node.name), Role.POD)
    wirer.link_by(namespace, node, own)
    namespace.listeners += [
        Listener(COREDNS, protocol, DNS_PORT, serves_names=True, program=program)
        for protocol in (Protocol.UDP, Protocol.TCP)
    ]


def _homes(group: PodGroup) -> dict[str, list[str]]:
    """The pods in each namespace of the group. No author's name can hold ``@``."""
    homes: dict[str, list[str]] = {}
    for ordinal, name in enumerate(group.pod_names):
        home = f"{group.name}@{group.node_of(ordinal)}" if group.shared_netns else name
        homes.setdefault(home, []).append(name)
    return homes


def _listeners(name: str, group: PodGroup, addresses: tuple[IPAddress | None, ...]) -> list[Listener]:
    where, program = str(group.position), group.program.value if group.program else ""
    program = group.commands[0][0] if group.commands else program
    return [
        Listener(
            name,
            port.protocol,
            port.port,
            address,
            program=program,
            tls=port.has_tls,
            silent=port.silent,
            position=where,
        )
        for address in addresses
        for port in group.ports
    ]


class _PodLinker:
    """The pod network of one lab."""

    def __init__(self, scenario: Scenario, addresses: AddressPlan, draft: Draft) -> None:
        network = scenario.network
        self._network = {"ptp": self._ptp, "ptp-unnumbered": self._unnumbered, "bridge": self._bridge}[
            network.pod_network
        ]
        self._hairpin = network.hairpin
        self._addresses = addresses
        self._draft = draft
        self._bridges: dict[str, str] = {}
        mtu = network.mtu.get(PODS)
        if mtu is None and network.inter_node == "vxlan":
            outer = next(iter(addresses.node.values()))[0]
            mtu = network.mtu.get(NODES, _ETHERNET_MTU) - _VXLAN_OVERHEAD[outer.version]
        self._mtu = mtu
        self._mtus = {name: group.mtu for group in scenario.pods if group.mtu for name in group.pod_names}

    def network(self, pod: NamespaceDraft, node: NamespaceDraft, names: list[str]) -> None:
        """Link the namespace of the pods ``names`` to their node."""
        self.link_by(pod, node, [address for name in names for address in self._addresses.pod[name]])

    def link_by(self, pod: NamespaceDraft, node: NamespaceDraft, own: Sequence[IPAddress]) -> None:
        """Link a namespace to its node by these addresses."""
        self._network(pod, node, list(own))

    def _ptp(self, pod: NamespaceDraft, node: NamespaceDraft, own: list[IPAddress]) -> None:
        outer, inner = self._draft.pod_link(node, pod, UPLINK, mtu=self._mtus.get(pod.name, self._mtu)).ends
        for gateway in self._addresses.gateway[node.name]:
            node.address(outer.device, gateway)
        for address in own:
            node.route(only(address), outer.device)
            node.neighbours.append(Neighbour(outer.device, address, inner.mac))
            pod.address(inner.device, address)
        for gateway in self._addresses.gateway[node.name]:
            pod.route(only(gateway), inner.device)
            pod.route(everywhere(gateway), inner.device, via=gateway)
            pod.neighbours.append(Neighbour(inner.device, gateway, outer.mac))

    def _unnumbered(self, pod: NamespaceDraft, node: NamespaceDraft, own: list[IPAddress]) -> None:
        mtu = self._mtus.get(pod.name, self._mtu)
        outer, inner = self._draft.pod_link(node, pod, UPLINK, mtu=mtu, proxy_arp=True).ends
        node.device_sysctls.append(Sysctl(f"net.ipv4.conf.{outer.device.replace('.', '/')}.proxy_arp", "1"))
        for address in own:
            node.route(only(address), outer.device)
            pod.address(inner.device, address)
        for gateway in (_UNNUMBERED[address.version] for address in self._addresses.gateway[node.name]):
            if gateway.version == 6:
                node.address(outer.device, gateway, _LINK_LOCAL)
            pod.route(only(gateway), inner.device)
            pod.route(everywhere(gateway), inner.device, via=gateway)

    def _bridge(self, pod: NamespaceDraft, node: NamespaceDraft, own: list[IPAddress]) -> None:
        networks = self._addresses.pod_network[node.name]
        gateways = self._addresses.gateway[node.name]
        if node.name not in self._bridges:
            promiscuous = self._hairpin == "promiscuous-bridge"
            bridge = self._draft.bridge(node, POD_BRIDGE, promiscuous=promiscuous)
            self._bridges[node.name] = bridge.device
            for gateway, network in zip(gateways, networks, strict=True):
                node.address(bridge.device, gateway, network)
                if network.version == 6:
                    node.link_local(bridge.device, bridge.mac)
        hairpin = self._hairpin == "hairpin-veth"
        master = self._bridges[node.name]
        mtu = self._mtus.get(pod.name, self._mtu)
        inner = self._draft.pod_link(node, pod, UPLINK, mtu=mtu, master=master, hairpin=hairpin).second
        for address in own:
            pod.address(inner.device, address, next(network for network in networks if address in network))
        for gateway in gateways:
            pod.route(everywhere(gateway), inner.device, via=gateway)
