"""The fields of Nodes and Pods that the import needs, as types."""

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address, ip_network

from msgspec import Struct, field

from proxylab.addresses import Family, IPAddress, IPNetwork, Protocol, without_leading_zeros
from proxylab.cluster.documents import running_containers
from proxylab.cluster.objects import PortKey
from proxylab.features.import_.reading import Raw, at, namespaced

_KEPT_LABELS = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")
_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_FINISHED = ("Succeeded", "Failed")


class LiveNode(Struct, frozen=True, kw_only=True):
    """A node.

    Attributes:
        addresses: the first internal one of each family, which are the Node's own for a proxy, primary first.
        further_addresses: its other internal ones.
        other_addresses: its external ones.
    """

    name: str
    addresses: tuple[IPAddress, ...] = ()
    further_addresses: tuple[IPAddress, ...] = ()
    other_addresses: tuple[str, ...] = ()
    pod_networks: tuple[IPNetwork, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()
    ready: bool = True
    leaving: bool = False

    @property
    def is_control_plane(self) -> bool:
        """Whether it has a taint of the control plane."""
        return any(taint in _CONTROL_PLANE for taint in self.taints)


class LivePod(Struct, frozen=True, kw_only=True):
    """A pod. ``ports`` are those that its containers declare, with their names; they may listen on others too."""

    namespace: str = "default"
    name: str
    node: str
    addresses: tuple[IPAddress, ...]
    host_network: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[PortKey, str] = field(default_factory=dict)
    finished: bool = False
    ready: bool = True
    leaving: bool = False


class PodsByLabel:
    """The pods that may be endpoints, by label: a large cluster has thousands of them, and of Services."""

    def __init__(self, pods: Iterable[LivePod]) -> None:
        self._with: dict[tuple[str, tuple[str, str]], list[LivePod]] = {}
        for pod in pods:
            if pod.addresses and not pod.finished:
                for label in pod.labels.items():
                    self._with.setdefault((pod.namespace, label), []).append(pod)

    def selected(self, namespace: str, selector: Mapping[str, str]) -> list[LivePod]:
        """The pods that have all these labels, in their order; none for an empty selector."""
        of_each = (self._with.get((namespace, label), []) for label in selector.items())
        fewest = min(of_each, key=len, default=[])
        return [pod for pod in fewest if selector.items() <= pod.labels.items()]


def read_node(raw: Raw) -> LiveNode:
    given = [(at(each, "type"), str(at(each, "address"))) for each in at(raw, "status", "addresses") or []]
    networks = at(raw, "spec", "podCIDRs") or filter(None, [at(raw, "spec", "podCIDR")])
    labels = at(raw, "metadata", "labels") or {}
    internal = dict.fromkeys(ip_address(without_leading_zeros(each)) for kind, each in given if kind == "InternalIP")
    addresses = _one_of_each_family(internal)
    return LiveNode(
        name=namespaced(raw)[1],
        addresses=addresses,
        further_addresses=tuple(each for each in internal if each not in addresses),
        other_addresses=tuple(address for kind, address in given if kind == "ExternalIP"),
        pod_networks=tuple(ip_network(str(each), strict=False) for each in networks),
        labels={key: str(labels[key]) for key in _KEPT_LABELS if key in labels},
        taints=tuple(dict.fromkeys(str(at(each, "key")) for each in at(raw, "spec", "taints") or [])),
        ready=_condition(raw, "Ready"),
        leaving=at(raw, "metadata", "deletionTimestamp") is not None,
    )


def read_pod(raw: Raw) -> LivePod:
    namespace, name = namespaced(raw)
    addresses = [at(each, "ip") for each in at(raw, "status", "podIPs") or []] or [at(raw, "status", "podIP")]
    return LivePod(
        namespace=namespace,
        name=name,
        node=str(at(raw, "spec", "nodeName") or ""),
        addresses=_one_of_each_family(ip_address(without_leading_zeros(str(each))) for each in addresses if each),
        host_network=bool(at(raw, "spec", "hostNetwork")),
        labels=at(raw, "metadata", "labels") or {},
        ports=dict(_ports(raw)),
        finished=at(raw, "status", "phase") in _FINISHED,
        ready=_condition(raw, "Ready"),
        leaving=at(raw, "metadata", "deletionTimestamp") is not None,
    )


def _ports(raw: Raw) -> Iterator[tuple[PortKey, str]]:
    for container in running_containers(at(raw, "spec")):
        for port in at(container, "ports") or []:
            yield (Protocol(at(port, "protocol") or "TCP"), int(at(port, "containerPort"))), str(at(port, "name") or "")


def _condition(raw: Raw, wanted: str) -> bool:
    """Whether a condition is True; a missing condition counts as True."""
    found = [at(each, "status") for each in at(raw, "status", "conditions") or [] if at(each, "type") == wanted]
    return found[0] == "True" if found else True


def _one_of_each_family(addresses: Iterable[IPAddress]) -> tuple[IPAddress, ...]:
    by_family: dict[Family, IPAddress] = {}
    for address in addresses:
        by_family.setdefault(Family.of(address), address)
    return tuple(by_family.values())
