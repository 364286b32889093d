"""Finds the listeners behind the addresses of EndpointSlices: pods, programs on nodes, and machines outside."""

from collections.abc import Iterable
from ipaddress import ip_address

from proxylab.addresses import IPAddress, Protocol, without_leading_zeros
from proxylab.cluster.objects import PortKey
from proxylab.features.import_.live_objects import LiveNode, LivePod
from proxylab.features.import_.omissions import Omissions
from proxylab.features.import_.reading import Raw, at, namespaced

PodKey = tuple[str, str]
"""Namespace and name of a pod."""

Listener = PodKey | IPAddress
"""A pod, or the address of a machine outside the cluster."""


class Backing:
    """Follows slices.

    Attributes:
        pods: all known pods, with those that stand for programs on nodes.
        ports: the ports, with their names, of each pod that the scenario needs.
        strangers: the addresses of machines outside the cluster.
        listeners: the pod or machine that listens at an address and port.
    """

    def __init__(self, pods: Iterable[LivePod], nodes: Iterable[LiveNode], omissions: Omissions) -> None:
        self.pods: dict[PodKey, LivePod] = {(pod.namespace, pod.name): pod for pod in pods}
        self.ports: dict[PodKey, dict[PortKey, str]] = {}
        self.strangers: dict[IPAddress, None] = {}
        self.listeners: dict[tuple[IPAddress, PortKey], Listener] = {}
        self._omissions = omissions
        self._node_of = {address: node.name for node in nodes for address in node.addresses}
        self._on_nodes: dict[tuple[str, PortKey], LivePod] = {}
        for pod in self.pods.values():
            if pod.host_network and not pod.finished:
                for port in pod.ports:
                    self._on_nodes.setdefault((pod.node, port), pod)
        self._by_address = {
            address: pod
            for pod in self.pods.values()
            if not pod.host_network and not pod.finished
            for address in pod.addresses
        }

    def follow_slices(self, slices: Iterable[Raw]) -> None:
        """Find the listener behind each address of the slices."""
        for raw in slices:
            entries = [each for each in at(raw, "ports") or [] if each.get("port")]
            ports = [(Protocol(each.get("protocol") or "TCP"), int(each["port"])) for each in entries]
            for endpoint in at(raw, "endpoints") or []:
                address = ip_address(without_leading_zeros(endpoint["addresses"][0]))
                for port in ports:
                    self.listeners[address, port] = self._behind(address, port, endpoint, namespaced(raw)[0])

    def _behind(self, address: IPAddress, port: PortKey, endpoint: Raw, namespace: str) -> Listener:
        target = at(endpoint, "targetRef")
        pod = self._by_address.get(address)
        if at(target, "kind") == "Pod":
            pod = self.pods.get((str(at(target, "namespace") or namespace), str(at(target, "name"))), pod)
        if pod is None and address in self._node_of:
            pod = self._program(self._node_of[address], port, address)
        elif pod is None and endpoint.get("nodeName"):
            pod = self._unseen(namespace, endpoint, address)
        if pod is None:
            self.strangers[address] = None
            return address
        key = (pod.namespace, pod.name)
        self.ports.setdefault(key, {}).setdefault(port, pod.ports.get(port, ""))
        return key

    def _program(self, node: str, port: PortKey, address: IPAddress) -> LivePod:
        """The pod with the node's network that declares the port; else a new one that stands for the program."""
        if (pod := self._on_nodes.get((node, port))) is not None:
            return pod
        protocol, number = port
        name = f"{node.partition('.')[0]}-{protocol.lower()}-{number}"
        what = f"{node}, {protocol} port {number}"
        self._omissions.add("programs on nodes; pods with their nodes' network stand for them", what)
        made = LivePod(name=name, node=node, addresses=(address,), host_network=True, ports={port: ""})
        return self._on_nodes.setdefault((node, port), self.pods.setdefault((made.namespace, name), made))

    def _unseen(self, namespace: str, endpoint: Raw, address: IPAddress) -> LivePod:
        """A pod that only a slice mentions."""
        pod = LivePod(
            namespace=namespace,
            name=str(at(endpoint, "targetRef", "name") or f"endpoint-{str(address).replace(':', '-')}"),
            node=str(endpoint["nodeName"]),
            addresses=(address,),
            ready=at(endpoint, "conditions", "ready") is not False,
            leaving=bool(at(endpoint, "conditions", "terminating")),
        )
        self._by_address[address] = pod
        return self.pods.setdefault((namespace, pod.name), pod)
