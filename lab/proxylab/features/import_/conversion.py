"""Turns kubectl's output into the parts of a scenario: its nodes, pods and hosts with their names and addresses.

Theory of operation. Proxies act on Services and EndpointSlices, so the import keeps both as they are. The scenario
has a pod because a slice has its address, with the ports of the slice; its containers need not declare them. Any other
address of a slice belongs to a program on a node, which becomes a pod with the node's network, or to a machine outside
the cluster, which becomes a host with an address of the lab's choice. For a Service with a selector and without slices,
the import finds the pods by their labels, and the lab derives the slices. Each name is one DNS label, and unique, since
nodes, pods and hosts share one name space, and with the lab's own.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address, ip_network
from itertools import count
from typing import Final

from msgspec import Struct

from proxylab.addresses import Family, IPAddress, IPNetwork, Protocol, without_leading_zeros
from proxylab.cluster.allocate import NODE_PORTS, PortRange
from proxylab.cluster.kube_dns import KUBE_DNS
from proxylab.cluster.objects import SERVICE_NAME_LABEL, PortKey
from proxylab.features.import_.implied_slices import derived_slices, mirrored_slices, sliced_services
from proxylab.features.import_.listeners import Backing, Listener, PodKey
from proxylab.features.import_.live_objects import LiveNode, LivePod, PodsByLabel, read_node, read_pod
from proxylab.features.import_.manifests import Data, pruned, reduced_service, reduced_slice
from proxylab.features.import_.networks import Networks, find_networks
from proxylab.features.import_.omissions import Omissions, note_unneeded
from proxylab.features.import_.proxy_settings import LiveProxy, read_proxy
from proxylab.features.import_.reading import KubectlOutput, Raw, at, namespaced
from proxylab.plan.device_names import OWN_NAMESPACES
from proxylab.scenario.syntax import is_label

CLIENT: Final = "client"
OUTSIDE_CLIENT: Final = "outside"
"""The names of the pod and of the machine outside that send the probes."""

_OWN_NAMES: Final = (*sorted(OWN_NAMESPACES), CLIENT, OUTSIDE_CLIENT)
_OTHERS_NAMES: Final = "names of pods that others have, or that are too long"
_KUBE_DNS: Final = (KUBE_DNS.namespace, KUBE_DNS.name)
_LABEL_CHARACTERS: Final = 63
_OUTSIDE: Final = {Family.IPV4: ip_network("203.0.113.0/24"), Family.IPV6: ip_network("2001:db8:113::/64")}
_FIRST_NODE: Final = 2
_FIRST_HOST: Final = 10
"""The positions of nodes and outside hosts in their networks, in the order of the scenario."""

Translation = Mapping[IPAddress, IPAddress]
"""The lab's addresses for those addresses of the cluster that the lab cannot use."""


class GivenNames:
    """Gives names, and remembers them by key."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._given: dict[tuple[str, ...], str] = {}
        self._taken = set(taken)

    def of(self, key: tuple[str, ...], *wanted: str) -> str:
        """The name of the object with that key: the first of the wanted names that is free."""
        if key not in self._given:
            self._given[key] = name = next(filter(self._is_free, _tries(wanted)))
            self._taken.add(name)
        return self._given[key]

    def _is_free(self, name: str) -> bool:
        return is_label(name) and name not in self._taken


def _tries(wanted: tuple[str, ...]) -> Iterator[str]:
    """The names themselves, then as labels, then numbered without end."""
    yield from wanted
    labels = [_cut(each.lower().replace(".", "-").replace("_", "-")) for each in wanted]
    yield from labels
    last = labels[-1] if is_label(labels[-1]) else "nameless"
    yield from (f"{_cut(last[: _LABEL_CHARACTERS - 6])}-{number}" for number in count(2))


def _cut(text: str) -> str:
    return text[:_LABEL_CHARACTERS].strip("-")


class Converted(Struct, frozen=True, kw_only=True):
    """The parts of the scenario.

    Attributes:
        network: ``spec.network``.
        nodes: ``spec.nodes``, in the order of kubectl's output.
        pods: ``spec.pods``.
        hosts: ``spec.hosts``.
        slices: those of the scenario; ``derived`` are those that the lab makes by itself.
        listeners: the name of the pod or host that listens at an address and port of a slice.
        node_addresses: the fixed addresses of nodes, by name.
        workers: the nodes without a control-plane taint.
        serves_names: whether pods of the cluster's kube-dns are in the scenario.
        proxy: the cluster's proxies, as far as kubectl's output shows them.
    """

    network: Data
    nodes: Mapping[str, Data]
    pods: Mapping[str, Data]
    hosts: Mapping[str, Data]
    services: tuple[Data, ...]
    slices: tuple[Data, ...]
    derived: tuple[Data, ...]
    listeners: Mapping[tuple[IPAddress, PortKey], str]
    node_addresses: Mapping[str, tuple[IPAddress, ...]]
    workers: tuple[str, ...]
    serves_names: bool
    proxy: LiveProxy


def convert(
    kubectl_output: KubectlOutput, omissions: Omissions, service_networks: Sequence[IPNetwork] = ()
) -> Converted:
    """Make the parts of the scenario; ``omissions`` gets what they leave out.

    ``service_networks`` are the ServiceCIDRs of some families, where the user knows them.
    """
    told = _told_networks(kubectl_output, service_networks)
    services = {namespaced(each): each for each in kubectl_output.services}
    slices = [each for each in kubectl_output.slices if _is_of_use(each, services, omissions)]
    slices += _mirrored(kubectl_output, services, sliced_services(slices), omissions)
    pods = list(map(read_pod, kubectl_output.pods))
    nodes = _nodes(kubectl_output, pods, slices)
    sliced, by_label = sliced_services(slices), PodsByLabel(pods)
    derived = [
        each
        for key, service in services.items()
        if key not in sliced
        for each in derived_slices(service, by_label, _families_of(service))
    ]
    if not (kubectl_output.slices or kubectl_output.endpoints):
        for key, service in services.items():
            if not at(service, "spec", "selector") and at(service, "spec", "type") != "ExternalName":
                omissions.add("endpoints of Services without selector, which have none here", "/".join(key))
    backing = Backing(pods, nodes, omissions)
    backing.follow_slices([*slices, *derived])
    return _Converter(kubectl_output, slices, derived, nodes, backing, omissions, told).converted()


def _mirrored(
    kubectl_output: KubectlOutput,
    services: Collection[tuple[str, str]],
    sliced: Collection[object],
    omissions: Omissions,
) -> list[Raw]:
    """The slices of Services that have Endpoints, and no slice in kubectl's output."""
    wanted = [each for each in kubectl_output.endpoints if namespaced(each) in services]
    made = [each for each in wanted if namespaced(each) not in sliced]
    for each in made:
        omissions.add("Endpoints without EndpointSlices, which mirror them here", "/".join(namespaced(each)))
    return [slice_ for each in made for slice_ in mirrored_slices(each)]


def _families_of(service: Raw) -> list[Family]:
    given = [Family(each) for each in at(service, "spec", "ipFamilies") or []]
    return given or list(dict.fromkeys(map(Family.of, _cluster_ips(service)))) or list(Family)


class _Converter:
    """Gives the needed nodes, pods and hosts their names and addresses."""

    def __init__(
        self,
        kubectl_output: KubectlOutput,
        slices: list[Raw],
        derived: list[Raw],
        nodes: list[LiveNode],
        backing: Backing,
        omissions: Omissions,
        service_networks: Sequence[IPNetwork],
    ) -> None:
        self._kubectl_output = kubectl_output
        self._slices = slices
        self._derived = derived
        self._nodes = nodes
        self._backing = backing
        self._omissions = omissions
        self._names = GivenNames(_OWN_NAMES)
        self._selected: dict[str, set[str]] = {}
        for raw in kubectl_output.services:
            self._selected.setdefault(namespaced(raw)[0], set()).update(at(raw, "spec", "selector") or {})
        self._networks = _networks(kubectl_output.services, nodes, backing, service_networks)
        for each in self._networks.services:
            if each not in service_networks:
                omissions.add("the ServiceCIDR, which no object tells; give --service-cidr", f"{each} stands for it")
        self._here = _translation(self._networks, nodes, backing)
        self._outside = {address: f"outside-{number}" for number, address in enumerate(backing.strangers, 1)}

    def converted(self) -> Converted:
        """Nodes choose their names first, then pods, then hosts."""
        networks = self._networks
        note_unneeded(
            self._kubectl_output,
            self._backing.pods.values(),
            self._backing.ports,
            self._nodes,
            networks,
            self._omissions,
        )
        nodes = {self._node_name(each.name): self._node_entry(each) for each in self._nodes}
        pods = {self._pod_name(key): self._pod_entry(key) for key in self._backing.ports}
        return Converted(
            network={
                "families": [str(Family.of(each)) for each in networks.services],
                "podCIDR": list(map(str, networks.pods)),
                "serviceCIDR": list(map(str, networks.services)),
                "nodeCIDR": list(map(str, networks.nodes)),
                **_node_ports(self._kubectl_output.services),
            },
            nodes=nodes,
            pods=pods,
            hosts={self._listener_name(each): {} for each in self._backing.strangers},
            services=tuple(map(reduced_service, self._kubectl_output.services)),
            slices=tuple(reduced_slice(each, self._node_name, self._address) for each in self._slices),
            derived=tuple(reduced_slice(each, self._node_name, self._address) for each in self._derived),
            listeners={
                (self._here.get(address, address), port): self._listener_name(listener)
                for (address, port), listener in self._backing.listeners.items()
            },
            node_addresses={
                self._node_name(each.name): each.addresses if networks.nodes_stay else () for each in self._nodes
            },
            workers=tuple(self._node_name(each.name) for each in self._nodes if not each.is_control_plane),
            serves_names=any(self._backs_kube_dns(each) for each in (*self._slices, *self._derived)),
            proxy=read_proxy(
                self._kubectl_output.config_maps,
                self._kubectl_output.pods,
                self._kubectl_output.workloads,
                self._kubectl_output.nodes,
                self._omissions,
            ),
        )

    def _backs_kube_dns(self, raw: Raw) -> bool:
        service = (namespaced(raw)[0], at(raw, "metadata", "labels", SERVICE_NAME_LABEL))
        return service == _KUBE_DNS and any(
            at(each, "targetRef", "kind") == "Pod" for each in at(raw, "endpoints") or []
        )

    def _address(self, text: str) -> str:
        return str(self._here.get(ip_address(without_leading_zeros(text)), text))

    def _node_name(self, name: str) -> str:
        here = self._names.of(("node", name), name, name.partition(".")[0])
        if here != name:
            why = "names that the lab has itself" if name in _OWN_NAMES else "names that a lab's nodes cannot have"
            self._omissions.add(why, f"{name} is called {here}")
        return here

    def _pod_name(self, key: PodKey) -> str:
        here = self._names.of(("pod", *key), key[1], f"{key[0]}-{key[1]}")
        if here != key[1]:
            why = "names that the lab has itself" if key[1] in _OWN_NAMES else _OTHERS_NAMES
            self._omissions.add(why, f"{'/'.join(key)} is called {here}")
        return here

    def _listener_name(self, listener: Listener) -> str:
        if isinstance(listener, tuple):
            return self._pod_name(listener)
        what = "addresses outside the cluster; hosts with other addresses stand for them"
        name = self._names.of(("host", str(listener)), self._outside[listener])
        self._omissions.add(what, f"{listener} is {name}")
        return name

    def _node_entry(self, node: LiveNode) -> Data:
        return pruned(
            {
                "labels": dict(node.labels),
                "taints": list(node.taints),
                "terminating": True if node.leaving else None,
                "internalIPs": self._own(node.addresses) if self._networks.nodes_stay else None,
                "addresses": self._further(node) if self._networks.nodes_stay else None,
            }
        )

    def _further(self, node: LiveNode) -> list[str]:
        """The node's further addresses, on the same link where the network of nodes holds them."""
        written = []
        for each in node.further_addresses:
            network = next((one for one in self._networks.nodes if one.version == each.version), None)
            if network is None or each in (network[0], network[1], network[-1]):
                self._omissions.add("further addresses of nodes that the lab cannot use", f"{node.name} ({each})")
            else:
                written.append(f"{each}/{network.prefixlen}" if each in network else str(each))
        return written

    def _pod_entry(self, key: PodKey) -> Data:
        pod, ports = self._backing.pods[key], self._backing.ports[key]
        selected = self._selected.get(pod.namespace, set())
        return pruned(
            {
                "namespace": pod.namespace if pod.namespace != "default" else None,
                "nodes": [self._node_name(pod.node)] if pod.node else None,
                "hostNetwork": True if pod.host_network else None,
                "addresses": self._own(pod.addresses) if not pod.host_network else None,
                "labels": {label: value for label, value in pod.labels.items() if label in selected},
                "ports": [_port_entry(port, name) for port, name in sorted(ports.items())],
                "ready": None if pod.ready else False,
                "terminating": True if pod.leaving else None,
            }
        )

    def _own(self, addresses: tuple[IPAddress, ...]) -> list[str]:
        """The addresses in the lab, of the lab's families only."""
        families = {Family.of(each) for each in self._networks.nodes}
        return [str(self._here.get(each, each)) for each in addresses if Family.of(each) in families]


def _is_of_use(raw: Raw, services: Mapping[tuple[str, str], Raw], omissions: Omissions) -> bool:
    namespace, name = namespaced(raw)
    if (namespace, at(raw, "metadata", "labels", SERVICE_NAME_LABEL)) not in services:
        omissions.add("EndpointSlices of no Service that is there", f"{namespace}/{name}")
        return False
    if at(raw, "addressType") not in list(Family):
        omissions.add("EndpointSlices of names instead of addresses, which no proxy looks at", f"{namespace}/{name}")
        return False
    return True


def _nodes(kubectl_output: KubectlOutput, pods: list[LivePod], slices: list[Raw]) -> list[LiveNode]:
    """The listed nodes, and those that only pods and slices mention."""
    nodes = {node.name: node for node in map(read_node, kubectl_output.nodes)}
    spoken_of = [pod.node for pod in pods]
    spoken_of += [str(each.get("nodeName") or "") for raw in slices for each in at(raw, "endpoints") or []]
    for name in filter(None, spoken_of):
        nodes.setdefault(name, LiveNode(name=name))
    return list(nodes.values()) or [LiveNode(name="node-a")]


def _networks(
    services: Collection[Raw], nodes: list[LiveNode], backing: Backing, service_networks: Sequence[IPNetwork]
) -> Networks:
    """The networks; the families are those of the Services, the first Service's first, or else those of the nodes."""
    cluster_ips = [address for raw in services for address in _cluster_ips(raw)]
    spoken = [Family(each) for raw in services for each in at(raw, "spec", "ipFamilies") or []]
    spoken += map(Family.of, cluster_ips)
    spoken += [Family.of(address) for node in nodes for address in node.addresses[:1]]
    pods = [backing.pods[key] for key in backing.ports]
    return find_networks(
        list(dict.fromkeys(spoken)) or [Family.IPV4],
        nodes=[address for node in nodes for address in node.addresses],
        pods=[
            *(network for node in nodes for network in node.pod_networks),
            *(address for pod in pods if not pod.host_network for address in pod.addresses),
        ],
        services=cluster_ips,
        service_networks=service_networks,
        number_of_nodes=len(nodes),
    )


def _told_networks(kubectl_output: KubectlOutput, given: Sequence[IPNetwork]) -> Sequence[IPNetwork]:
    """The ServiceCIDRs that the user gives, and for other families those of objects that hold all cluster IPs."""
    cluster_ips = [address for raw in kubectl_output.services for address in _cluster_ips(raw)]
    stated = [ip_network(each) for raw in kubectl_output.service_cidrs for each in at(raw, "spec", "cidrs") or []]
    whole = [each for each in stated if all(one in each for one in cluster_ips if one.version == each.version)]
    return [*given, *whole]


def _node_ports(services: Iterable[Raw]) -> dict[str, str]:
    """The range of node ports, widened to the cluster's own where the default does not hold them all."""
    given = [at(raw, "spec", "healthCheckNodePort") for raw in services]
    given += [port.get("nodePort") for raw in services for port in at(raw, "spec", "ports") or []]
    found = [NODE_PORTS.first, NODE_PORTS.last, *filter(None, given)]
    whole = PortRange(min(found), max(found))
    return {} if whole == NODE_PORTS else {"serviceNodePortRange": str(whole)}


def _cluster_ips(raw: Raw) -> Iterator[IPAddress]:
    texts = at(raw, "spec", "clusterIPs") or [at(raw, "spec", "clusterIP") or ""]
    yield from (ip_address(without_leading_zeros(each)) for each in texts if each not in ("", "None"))


def _translation(networks: Networks, nodes: list[LiveNode], backing: Backing) -> Translation:
    here: dict[IPAddress, IPAddress] = {}
    for number, address in enumerate(backing.strangers):
        here[address] = _OUTSIDE[Family.of(address)][_FIRST_HOST + number]
    if not networks.nodes_stay:
        for number, node in enumerate(nodes):
            here |= {each: _of(networks.nodes, each)[_FIRST_NODE + number] for each in node.addresses}
    if not networks.pods_stay:
        pods = [backing.pods[key] for key in backing.ports if not backing.pods[key].host_network]
        addresses = [address for pod in pods for address in pod.addresses]
        # From the end of the network, which belongs to no node unless there are hundreds.
        here |= {address: _of(networks.pods, address)[-2 - number] for number, address in enumerate(addresses)}
    return here


def _of(networks: tuple[IPNetwork, ...], address: IPAddress) -> IPNetwork:
    return next(each for each in networks if each.version == address.version)


def _port_entry(port: PortKey, name: str) -> object:
    protocol, number = port
    if not name and protocol is Protocol.TCP:
        return number
    return pruned({"name": name, "port": number, "protocol": str(protocol) if protocol is not Protocol.TCP else None})
