"""EndpointSlice, Endpoints, Pod and Node as ``kubectl get -o yaml`` prints them, with the API server's defaults.

The records of EndpointSlices know every key. Pods and Nodes have hundreds of keys; their records know those that a
Service proxy or the lab reads, and accept all others. The module also mirrors Endpoints into EndpointSlices;
``proxylab.scenario.validity`` checks slices and labels.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from ipaddress import ip_address
from typing import Annotated, ClassVar

from proxylab.addresses import Family, IPAddress, Protocol, without_leading_zeros
from proxylab.cluster.documents import object_of
from proxylab.cluster.objects import SERVICE_NAME_LABEL, Endpoint, EndpointPort, EndpointSlice, Taint
from proxylab.scenario.document import Location
from proxylab.scenario.keys import NOT_EMPTY, Check, Key, Manifest, written
from proxylab.scenario.nodes import LabNode
from proxylab.scenario.pod_spec import Loose, PodSpec
from proxylab.scenario.pods import PodGroup
from proxylab.scenario.services import ObjectMetadata, StoredAddress
from proxylab.scenario.syntax import PortNumber, distinct, is_address

_StoredText = Annotated[str, Check(without_leading_zeros)]


class AddressType(StrEnum):
    """``addressType``."""

    IPV4 = "IPv4"
    IPV6 = "IPv6"
    FQDN = "FQDN"


class _Conditions(Manifest, frozen=True):
    """``conditions`` of an endpoint."""

    ready: Annotated[bool, Key("Whether the endpoint takes traffic.")] = True
    serving: Annotated[
        bool | None, Key("Whether it would take traffic if it did not terminate; the value of ready by default.")
    ] = None
    terminating: Annotated[bool, Key("Whether the endpoint is being deleted.")] = False


class _Hint(Manifest, frozen=True):
    """A zone or node that should use the endpoint."""

    name: Annotated[str, Key("The name of the zone or node.")]


class _Hints(Manifest, frozen=True):
    """``hints``."""

    for_zones: Annotated[tuple[_Hint, ...], Key("The zones that should use the endpoint.")] = ()
    for_nodes: Annotated[tuple[_Hint, ...], Key("The nodes that should use the endpoint.")] = ()


class _TargetRef(Manifest, frozen=True):
    """``targetRef``: the object behind an endpoint."""

    loose = True

    kind: Annotated[str, Key("Its kind.")] = ""
    name: Annotated[str, Key("Its name.")] = ""

    @property
    def pod(self) -> str:
        """The pod's name; empty for another object."""
        return self.name if self.kind == "Pod" else ""


class _Endpoint(Manifest, frozen=True, kw_only=True):
    """One endpoint of a slice."""

    without_effect: ClassVar[Mapping[str, str]] = {"deprecatedTopology": "A key of v1beta1."}

    addresses: Annotated[
        tuple[_StoredText, ...], NOT_EMPTY, Check(distinct), Key("The addresses; proxies use the first.")
    ]
    conditions: Annotated[_Conditions, Key("Whether the endpoint takes traffic.")] = _Conditions()
    hostname: Annotated[str, Key("Its name in DNS.")] = ""
    node_name: Annotated[str, Key("The node it runs on.")] = ""
    zone: Annotated[str, Key("The zone it runs in.")] = ""
    hints: Annotated[_Hints, Key("The zones and nodes that should use the endpoint.")] = _Hints()
    target_ref: Annotated[_TargetRef, Key("The pod behind it.")] = _TargetRef()


class _Port(Manifest, frozen=True):
    """One port of a slice."""

    without_effect: ClassVar[Mapping[str, str]] = {"appProtocol": "The application's protocol."}

    name: Annotated[str, Key("The name of the Service's port.")] = ""
    protocol: Annotated[Protocol, Key("The transport protocol.")] = Protocol.TCP
    port: Annotated[PortNumber | None, Key("The port on the endpoints.")] = None


class EndpointSliceManifest(Manifest, frozen=True, kw_only=True):
    """A discovery.k8s.io/v1 EndpointSlice."""

    api_version: Annotated[str, Key("discovery.k8s.io/v1.")]
    kind: Annotated[str, Key("EndpointSlice.")]
    metadata: Annotated[
        ObjectMetadata, Key(f"Name, namespace and labels; the label {SERVICE_NAME_LABEL} names the Service.")
    ]
    address_type: Annotated[AddressType, Key("The type of the addresses.")]
    endpoints: Annotated[tuple[_Endpoint, ...], Key("The endpoints.")] = ()
    ports: Annotated[tuple[_Port, ...], Key("The ports of all of them.")] = ()


class _EndpointAddress(Manifest, frozen=True, kw_only=True):
    """One address of a subset."""

    ip: Annotated[StoredAddress, Key("The address.")]
    hostname: Annotated[str, Key("Its name in DNS.")] = ""
    node_name: Annotated[str, Key("The node it is on.")] = ""
    target_ref: Annotated[_TargetRef, Key("The pod behind it.")] = _TargetRef()


class _Subset(Manifest, frozen=True):
    """One entry of ``subsets``."""

    addresses: Annotated[tuple[_EndpointAddress, ...], Key("The ready addresses.")] = ()
    not_ready_addresses: Annotated[tuple[_EndpointAddress, ...], Key("The addresses that are not ready.")] = ()
    ports: Annotated[tuple[_Port, ...], Key("The ports of all of them.")] = ()


class EndpointsManifest(Manifest, frozen=True, kw_only=True):
    """A v1 Endpoints, which the control plane mirrors into EndpointSlices."""

    api_version: Annotated[str, Key("v1.")]
    kind: Annotated[str, Key("Endpoints.")]
    metadata: Annotated[ObjectMetadata, Key("The name is the name of the Service.")]
    subsets: Annotated[tuple[_Subset, ...], Key("Addresses with their ports.")] = ()


class _Condition(Loose, frozen=True):
    """One entry of ``status.conditions``."""

    type: Annotated[str, Key("The condition, such as Ready.")]
    status: Annotated[str, Key("True, False or Unknown.")]


class _PodIP(Manifest, frozen=True):
    """One entry of ``status.podIPs``."""

    ip: Annotated[StoredAddress, Key("The address.")]


class _PodStatus(Loose, frozen=True):
    """``status`` of a Pod."""

    pod_ip: Annotated[StoredAddress | None, Key("Its address.", alias="podIP")] = None
    pod_ips: Annotated[tuple[_PodIP, ...], Key("Its addresses.", alias="podIPs")] = ()
    conditions: Annotated[tuple[_Condition, ...], Key("Ready, among others.")] = ()


class PodManifest(Loose, frozen=True, kw_only=True):
    """A v1 Pod."""

    api_version: Annotated[str, Key("v1.")]
    kind: Annotated[str, Key("Pod.")]
    metadata: Annotated[ObjectMetadata, Key("Its name, namespace and labels.")]
    spec: Annotated[PodSpec, Key("Where it runs and listens.")] = PodSpec()
    status: Annotated[_PodStatus, Key("Its addresses, and whether it is ready.")] = _PodStatus()


class _StatusAddress(Manifest, frozen=True):
    """One entry of ``status.addresses``."""

    type: Annotated[str, Key("InternalIP, Hostname and others.")]
    address: Annotated[_StoredText, Key("The address.")]


class _Taint(Loose, frozen=True):
    """One entry of ``spec.taints``."""

    key: Annotated[str, Key("The taint's key.")]
    value: Annotated[str, Key("Its value.")] = ""
    effect: Annotated[str, Key("What it does to pods that do not tolerate it.")] = "NoSchedule"


class _NodeSpec(Loose, frozen=True):
    """``spec`` of a Node."""

    taints: Annotated[tuple[_Taint, ...], Key("The taints.")] = ()


class _NodeStatus(Loose, frozen=True):
    """``status`` of a Node."""

    addresses: Annotated[tuple[_StatusAddress, ...], Key("Its addresses.")] = ()


class NodeManifest(Loose, frozen=True, kw_only=True):
    """A v1 Node."""

    api_version: Annotated[str, Key("v1.")]
    kind: Annotated[str, Key("Node.")]
    metadata: Annotated[ObjectMetadata, Key("Its name and labels.")]
    spec: Annotated[_NodeSpec, Key("The desired LabNode.")] = _NodeSpec()
    status: Annotated[_NodeStatus, Key("Its addresses.")] = _NodeStatus()


def slice_of(manifest: EndpointSliceManifest) -> EndpointSlice | None:
    """The object of the cluster; ``None`` for host names, which no proxy uses."""
    if manifest.address_type is AddressType.FQDN:
        return None
    return object_of(EndpointSlice, written(manifest))


def _ports(ports: Iterable[_Port]) -> tuple[EndpointPort, ...]:
    """The ports with a number: a port without one means every port, which no proxy can program."""
    return tuple(
        EndpointPort(name=each.name, protocol=each.protocol, port=each.port) for each in ports if each.port is not None
    )


def mirrored_slices(manifest: EndpointsManifest) -> Iterator[EndpointSlice]:
    """The slices that the mirroring controller makes from Endpoints: one for each subset and family."""
    namespace, name = manifest.metadata.namespace, manifest.metadata.name
    for number, subset in enumerate(manifest.subsets):
        entries = [(True, each) for each in subset.addresses] + [(False, each) for each in subset.not_ready_addresses]
        for family in Family:
            endpoints = tuple(
                Endpoint(
                    addresses=(each.ip,),
                    ready=ready,
                    serving=ready,
                    node_name=each.node_name,
                    hostname=each.hostname,
                    target=each.target_ref.pod,
                )
                for ready, each in entries
                if Family.of(each.ip) is family
            )
            if endpoints:
                yield EndpointSlice(
                    namespace=namespace,
                    name=f"{name}-{family.lower()}-{number}",
                    service=name,
                    address_type=family,
                    ports=_ports(subset.ports),
                    endpoints=endpoints,
                )


def pod_of_object(manifest: PodManifest, name: Location) -> PodGroup:
    """The entry of ``spec.pods`` that is equivalent to a Pod with its name at that place."""
    spec, metadata = manifest.spec, manifest.metadata
    conditions = {each.type: each.status for each in manifest.status.conditions}
    return PodGroup(
        name=metadata.name,
        nodes=(spec.node_name,) if spec.node_name else (),
        namespace=metadata.namespace,
        labels=metadata.labels,
        ports=spec.ports,
        ready=conditions.get("Ready", "True") == "True",
        terminating=metadata.deletion_timestamp is not None,
        host_network=spec.host_network,
        # Kubernetes gives an endpoint a DNS name only if the pod has both.
        hostname=spec.hostname,
        subdomain=spec.subdomain if spec.hostname else "",
        addresses=tuple(_pod_addresses(manifest.status)) if not spec.host_network else (),
        position=name.key.position,
    )


def _pod_addresses(status: _PodStatus) -> Sequence[IPAddress]:
    return [each.ip for each in status.pod_ips] or ([status.pod_ip] if status.pod_ip else [])


def node_of_object(manifest: NodeManifest, name: Location) -> LabNode:
    """The entry of ``spec.nodes`` that is equivalent to a Node with its name at that place."""
    metadata = manifest.metadata
    return LabNode(
        name=metadata.name,
        labels=metadata.labels,
        taints=tuple(dict.fromkeys(str(Taint(each.key, each.value, each.effect)) for each in manifest.spec.taints)),
        terminating=metadata.deletion_timestamp is not None,
        internal_ips=tuple(
            ip_address(each.address)
            for each in manifest.status.addresses
            if each.type == "InternalIP" and is_address(each.address)
        ),
        position=name.key.position,
    )
