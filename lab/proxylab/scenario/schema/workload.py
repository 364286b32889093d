"""EndpointSlice, Endpoints, Pod and Node as ``kubectl get -o yaml`` prints them.

The shapes of EndpointSlices know every key. Pods and Nodes have hundreds of keys; their shapes know those that a
Service proxy or the lab reads, and accept all others. ``proxylab.scenario.workloads`` fills in defaults.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from proxylab.addresses import Protocol, without_leading_zeros
from proxylab.cluster.objects import SERVICE_NAME_LABEL
from proxylab.scenario.schema.base import Ignored, ManifestShape, word_of
from proxylab.scenario.schema.service import AnyAddress, MetadataShape
from proxylab.scenario.syntax import PortName, PortNumber, distinct

__all__ = [
    "AddressType",
    "EndpointShape",
    "EndpointSliceShape",
    "EndpointsShape",
    "NodeObjectShape",
    "PodObjectShape",
]

_LOOSE = ConfigDict(extra="ignore")
_StoredAddress = Annotated[str, AfterValidator(without_leading_zeros)]
_PROTOCOL = BeforeValidator(word_of(Protocol))


class AddressType(StrEnum):
    """``addressType``."""

    IPV4 = "IPv4"
    IPV6 = "IPv6"
    FQDN = "FQDN"


class ConditionsShape(ManifestShape):
    """``conditions`` of an endpoint; the default is true, but for ``terminating`` false."""

    ready: bool | None = Field(default=None, description="Whether the endpoint takes traffic; true by default.")
    serving: bool | None = Field(
        default=None,
        description="Whether it would take traffic if it did not terminate; the value of ready by default.",
    )
    terminating: bool | None = Field(
        default=None, description="Whether the endpoint is being deleted; false by default."
    )


class HintShape(ManifestShape):
    """A zone or node that should use the endpoint."""

    name: str = Field(description="The name of the zone or node.")


class HintsShape(ManifestShape):
    """``hints``."""

    for_zones: list[HintShape] | None = Field(default=None, description="The zones that should use the endpoint.")
    for_nodes: list[HintShape] | None = Field(default=None, description="The nodes that should use the endpoint.")


class TargetRefShape(ManifestShape):
    """``targetRef``: the object behind an endpoint."""

    model_config = _LOOSE

    kind: str | None = Field(default=None, description="Its kind.")
    name: str | None = Field(default=None, description="Its name.")


class EndpointShape(ManifestShape):
    """One endpoint of a slice."""

    addresses: Annotated[list[_StoredAddress], Field(min_length=1), AfterValidator(distinct)] = Field(
        description="The addresses; proxies use the first."
    )
    conditions: ConditionsShape | None = Field(default=None, description="Whether the endpoint takes traffic.")
    hostname: str | None = Field(default=None, description="Its name in DNS.")
    node_name: str | None = Field(default=None, description="The node it runs on.")
    zone: str | None = Field(default=None, description="The zone it runs in.")
    hints: HintsShape | None = Field(default=None, description="The zones and nodes that should use the endpoint.")
    target_ref: TargetRefShape | None = Field(default=None, description="The pod behind it.")
    deprecated_topology: Ignored = Field(default=None, description="A key of v1beta1.")


class EndpointPortShape(ManifestShape):
    """One port of a slice."""

    name: str | None = Field(default=None, description="The name of the Service's port.")
    protocol: Annotated[Protocol, _PROTOCOL] | None = Field(default=None, description="TCP by default.")
    port: PortNumber | None = Field(default=None, description="The port on the endpoints.")
    app_protocol: Ignored = Field(default=None, description="The application's protocol.")


class EndpointSliceShape(ManifestShape):
    """A discovery.k8s.io/v1 EndpointSlice."""

    api_version: str = Field(description="discovery.k8s.io/v1.")
    kind: str = Field(description="EndpointSlice.")
    metadata: MetadataShape = Field(
        description=f"Name, namespace and labels; the label {SERVICE_NAME_LABEL} names the Service."
    )
    address_type: Annotated[AddressType, BeforeValidator(word_of(AddressType))] = Field(
        description="The type of the addresses."
    )
    endpoints: list[EndpointShape] | None = Field(default=None, description="The endpoints.")
    ports: list[EndpointPortShape] | None = Field(default=None, description="The ports of all of them.")


class EndpointAddressShape(ManifestShape):
    """One address of a subset."""

    ip: AnyAddress = Field(description="The address.")
    hostname: str | None = Field(default=None, description="Its name in DNS.")
    node_name: str | None = Field(default=None, description="The node it is on.")
    target_ref: TargetRefShape | None = Field(default=None, description="The pod behind it.")


class SubsetShape(ManifestShape):
    """One entry of ``subsets``."""

    addresses: list[EndpointAddressShape] | None = Field(default=None, description="The ready addresses.")
    not_ready_addresses: list[EndpointAddressShape] | None = Field(
        default=None, description="The addresses that are not ready."
    )
    ports: list[EndpointPortShape] | None = Field(default=None, description="The ports of all of them.")


class EndpointsShape(ManifestShape):
    """A v1 Endpoints, which the control plane mirrors into EndpointSlices."""

    api_version: str = Field(description="v1.")
    kind: str = Field(description="Endpoints.")
    metadata: MetadataShape = Field(description="The name is the name of the Service.")
    subsets: list[SubsetShape] | None = Field(default=None, description="Addresses with their ports.")


class ContainerPortShape(ManifestShape):
    """One port of a container."""

    model_config = _LOOSE

    name: PortName | None = Field(default=None, description="The name that a Service's targetPort may use.")
    container_port: PortNumber = Field(description="The port.")
    protocol: Annotated[Protocol, _PROTOCOL] | None = Field(default=None, description="TCP by default.")


class ContainerShape(ManifestShape):
    """One container."""

    model_config = _LOOSE

    ports: list[ContainerPortShape] | None = Field(default=None, description="The ports it listens on.")


class PodSpecShape(ManifestShape):
    """``spec`` of a Pod."""

    model_config = _LOOSE

    node_name: str | None = Field(default=None, description="The node it runs on.")
    host_network: bool | None = Field(default=None, description="Whether it uses its node's network.")
    hostname: str | None = Field(default=None, description="Its name in DNS below its subdomain.")
    subdomain: str | None = Field(default=None, description="The headless Service under which it has a DNS name.")
    containers: list[ContainerShape] | None = Field(default=None, description="Its containers.")


class ConditionShape(ManifestShape):
    """One entry of ``status.conditions``."""

    model_config = _LOOSE

    type: str = Field(description="The condition, such as Ready.")
    status: str = Field(description="True, False or Unknown.")


class PodIPShape(ManifestShape):
    """One entry of ``status.podIPs``."""

    ip: AnyAddress = Field(description="The address.")


class PodStatusShape(ManifestShape):
    """``status`` of a Pod."""

    model_config = _LOOSE

    pod_ip: AnyAddress | None = Field(default=None, alias="podIP", description="Its address.")
    pod_ips: list[PodIPShape] | None = Field(default=None, alias="podIPs", description="Its addresses.")
    conditions: list[ConditionShape] | None = Field(default=None, description="Ready, among others.")


class PodObjectShape(ManifestShape):
    """A v1 Pod."""

    model_config = _LOOSE

    metadata: MetadataShape = Field(description="Its name, namespace and labels.")
    spec: PodSpecShape | None = Field(default=None, description="Where it runs and listens.")
    status: PodStatusShape | None = Field(default=None, description="Its addresses, and whether it is ready.")


class NodeAddressObjectShape(ManifestShape):
    """One entry of ``status.addresses``."""

    type: str = Field(description="InternalIP, Hostname and others.")
    address: _StoredAddress = Field(description="The address.")


class TaintShape(ManifestShape):
    """One entry of ``spec.taints``."""

    model_config = _LOOSE

    key: str = Field(description="The taint's key.")


class NodeSpecShape(ManifestShape):
    """``spec`` of a Node."""

    model_config = _LOOSE

    taints: list[TaintShape] | None = Field(default=None, description="The taints; the lab reads their keys.")


class NodeStatusShape(ManifestShape):
    """``status`` of a Node."""

    model_config = _LOOSE

    addresses: list[NodeAddressObjectShape] | None = Field(default=None, description="Its addresses.")


class NodeObjectShape(ManifestShape):
    """A v1 Node."""

    model_config = _LOOSE

    metadata: MetadataShape = Field(description="Its name and labels.")
    spec: NodeSpecShape | None = Field(default=None, description="The desired Node.")
    status: NodeStatusShape | None = Field(default=None, description="Its addresses.")
