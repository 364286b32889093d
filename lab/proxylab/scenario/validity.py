"""The rules between the fields of a Service or an EndpointSlice, as the API server checks them.

The rules and their messages are those of ``ValidateService`` in pkg/apis/core/validation/validation.go and of the
allocators in pkg/registry/core/service of Kubernetes. ``proxylab.scenario.manifests`` compares Services with each
other.
"""

from collections.abc import Callable, Mapping
from ipaddress import ip_address, ip_network

from msgspec import Struct

from proxylab.addresses import Family, IPAddress, Protocol
from proxylab.cluster.allocate import is_host_address
from proxylab.cluster.objects import ServiceType, TrafficPolicy
from proxylab.scenario.document import Location, Problems, Spot, listed, shown
from proxylab.scenario.network import Network
from proxylab.scenario.services import FamilyPolicy, ServiceManifest, ServiceSpec, SessionAffinity
from proxylab.scenario.syntax import (
    is_address,
    is_label,
    is_subdomain,
    label_key_fault,
    label_value_fault,
)
from proxylab.scenario.workloads import AddressType, EndpointSliceManifest

_LINK_LOCAL_MULTICAST = (ip_network("224.0.0.0/24"), ip_network("ff02::/16"))
_KUBELET_PORT = 10250
_MOST_ENDPOINTS = 1000
_MOST_SLICE_PORTS = 100
_LONGEST_AFFINITY = 86400
_ANOTHER = "choose another"
_LEAVE_OUT = "remove it, or change the type"
_EXPOSED = (ServiceType.NODE_PORT, ServiceType.LOAD_BALANCER)


class _Subject(Struct, frozen=True):
    """The Service under check."""

    manifest: ServiceManifest
    location: Location
    network: Network | None
    problems: Problems

    @property
    def spec(self) -> ServiceSpec:
        return self.manifest.spec

    @property
    def at(self) -> Location:
        return self.location["spec"]

    @property
    def type(self) -> ServiceType:
        return self.spec.type

    @property
    def cluster_ips(self) -> list[tuple[Location, str]]:
        """The addresses that the author wrote, with the place of each: ``clusterIPs``, else ``clusterIP``."""
        if self.spec.cluster_ips:
            return [(self.at["clusterIPs"][index], text) for index, text in enumerate(self.spec.cluster_ips)]
        return [(self.at["clusterIP"], self.spec.cluster_ip)] if self.spec.cluster_ip else []

    @property
    def families(self) -> tuple[Family, ...]:
        """The cluster's families; empty if they are unknown."""
        return tuple(map(Family.of, self.network.service_cidrs)) if self.network else ()

    @property
    def headless(self) -> bool:
        return any(text == "None" for _, text in self.cluster_ips)

    @property
    def externally_accessible(self) -> bool:
        return self.type in _EXPOSED or (self.type is ServiceType.CLUSTER_IP and bool(self.spec.external_ips))


def check_service(manifest: ServiceManifest, location: Location, network: Network | None, problems: Problems) -> None:
    """Note everything that the API server would refuse.

    ``network`` is ``None`` if the ranges of cluster IPs and node ports are unknown.
    """
    subject = _Subject(manifest, location, network, problems)
    for check in _CHECKS:
        check(subject)


def _metadata(subject: _Subject) -> None:
    metadata, at, add = subject.manifest.metadata, subject.location["metadata"], subject.problems.add
    if not is_label(metadata.name):  # before 1.36 the first character was a letter (RelaxedServiceNameValidation)
        what = f"{shown(metadata.name)} is not a Service's name"
        allowed = "allowed: 63 lower-case letters, digits and '-' at most, a letter or digit first and last (RFC 1123)"
        add(at["name"].spot, what, allowed=allowed)
    if not is_label(metadata.namespace):
        add(at["namespace"].spot, f"{shown(metadata.namespace)} is not a namespace", allowed="allowed: a DNS label")
    check_labels(metadata.labels, at["labels"], subject.problems)
    check_labels(subject.spec.selector, subject.at["selector"], subject.problems)


def _ports(subject: _Subject) -> None:
    ports = subject.spec.ports
    add = subject.problems.add
    if not ports and not subject.headless and subject.type is not ServiceType.EXTERNAL_NAME:
        add(subject.at["ports"].key, "a Service needs at least one port")
    numbers: set[tuple[Protocol, int]] = set()
    names: set[str] = set()
    for index, port in enumerate(ports):
        at, protocol = subject.at["ports"][index], port.protocol
        if (protocol, port.port) in numbers:
            add(
                at["port"].spot,
                f"{port.port} appears twice for {protocol}",
                allowed="protocol and port together are unique",
            )
        numbers.add((protocol, port.port))
        if not port.name and len(ports) > 1:
            add(at["name"].key, "is missing: a Service with several ports must name them all", allowed="add it")
        if port.name and not is_label(port.name):
            add(at["name"].spot, f"{shown(port.name)} is not a name", allowed="allowed: a DNS label")
        if port.name and port.name in names:
            add(at["name"].spot, f"{shown(port.name)} appears twice", allowed="the names of ports are unique")
        names.add(port.name)
        if subject.type is ServiceType.LOAD_BALANCER and port.port == _KUBELET_PORT:
            add(
                at["port"].spot,
                f"may not expose port {_KUBELET_PORT} externally since it is used by kubelet",
                allowed=_ANOTHER,
            )


def _node_ports(subject: _Subject) -> None:
    taken: set[tuple[Protocol, int]] = set()
    for index, port in enumerate(subject.spec.ports):
        if not port.node_port:
            continue
        spot = subject.at["ports"][index]["nodePort"].spot
        key = (port.protocol, port.node_port)
        if subject.type not in _EXPOSED:
            subject.problems.add(spot, f"may not be used when type is {subject.type}", allowed=_LEAVE_OUT)
        elif key in taken:
            subject.problems.add(spot, f"{port.node_port} appears twice for {key[0]}", allowed=_ANOTHER)
        else:
            _node_port_in_range(subject, spot, port.node_port)
        taken.add(key)


def _node_port_in_range(subject: _Subject, spot: Spot, number: int) -> None:
    if subject.network is not None and number not in subject.network.node_ports.numbers:
        allowed = f"the range of valid ports is {subject.network.node_ports} (spec.network.serviceNodePortRange)"
        subject.problems.add(spot, f"{number}: provided port is not in the valid range", allowed=allowed)


def _cluster_ips(subject: _Subject) -> None:
    spec, add = subject.spec, subject.problems.add
    asked = subject.cluster_ips
    if subject.type is ServiceType.EXTERNAL_NAME:
        for location, _ in asked:
            add(location.spot, "may not be set for ExternalName services", allowed=_LEAVE_OUT)
        return
    if spec.cluster_ip and spec.cluster_ips and spec.cluster_ip != spec.cluster_ips[0]:
        add(subject.at["clusterIPs"][0].spot, f"must be the same as clusterIP, {spec.cluster_ip}")
    if subject.headless and len(asked) > 1:
        add(asked[1][0].spot, "'None' must be the only entry of clusterIPs")
    if subject.headless and subject.type in _EXPOSED:
        add(asked[0][0].spot, f"may not be set to 'None' for {subject.type} services", allowed=_LEAVE_OUT)
    seen: set[Family] = set()
    for location, text in asked:
        if text not in ("", "None"):
            address = ip_address(text)
            if Family.of(address) in seen:
                add(
                    location.spot,
                    f"a second {Family.of(address)} address",
                    allowed="at most one address of each family",
                )
            seen.add(Family.of(address))
            _in_range(subject, location, address)


def _in_range(subject: _Subject, location: Location, address: IPAddress) -> None:
    if subject.network is None:
        return
    networks = {network.version: network for network in subject.network.service_cidrs}
    if is_host_address(address, subject.network.further_service_cidrs):
        return
    allowed = f"allowed: an address in spec.network.serviceCIDR, {listed(map(str, networks.values()))}"
    network = networks.get(address.version)
    if network is None:
        subject.problems.add(location.spot, f"{address} is not of a family the cluster has", allowed=allowed)
    elif address not in network or address in (network.network_address, network.broadcast_address):
        subject.problems.add(location.spot, f"{address} is not in the valid range", allowed=allowed)
    elif address == network.network_address + 1 and subject.manifest.metadata.name != "kubernetes":
        subject.problems.add(location.spot, f"{address} is the address of the API server itself", allowed=_ANOTHER)


def _families(subject: _Subject) -> None:
    spec, at, add = subject.spec, subject.at, subject.problems.add
    families = spec.ip_families
    if subject.type is ServiceType.EXTERNAL_NAME:
        for key, value in (("ipFamilies", spec.ip_families), ("ipFamilyPolicy", spec.ip_family_policy)):
            if value:
                add(at[key].spot, "may not be set for ExternalName services", allowed=_LEAVE_OUT)
        return
    seen: set[Family] = set()
    for index, family in enumerate(families):
        if family in seen:
            add(at["ipFamilies"][index].spot, f"{family} appears twice", allowed="remove one of the two")
        elif subject.families and family not in subject.families:
            add(
                at["ipFamilies"][index].spot,
                f"{family} is not configured on the cluster",
                allowed="remove it, or add it to network.families",
            )
        seen.add(family)
    if spec.ip_family_policy is FamilyPolicy.REQUIRE_DUAL and len(subject.families) == 1:
        add(at["ipFamilyPolicy"].spot, "RequireDualStack needs a cluster with two families")
    if len(families) > 1 and spec.ip_family_policy in (None, FamilyPolicy.SINGLE):
        add(
            at["ipFamilies"].spot,
            "may only hold two families when ipFamilyPolicy is PreferDualStack or RequireDualStack",
        )


def _affinity(subject: _Subject) -> None:
    config = subject.spec.session_affinity_config
    if config is None:
        return
    at = subject.at["sessionAffinityConfig"]
    if subject.spec.session_affinity is not SessionAffinity.CLIENT_IP:
        subject.problems.add(at.key, "must not be set when sessionAffinity is None")
    timeout = config.client_ip.timeout_seconds
    if not 0 < timeout <= _LONGEST_AFFINITY:
        allowed = f"allowed: 1 to {_LONGEST_AFFINITY} seconds"
        subject.problems.add(at["clientIP"]["timeoutSeconds"].spot, f"{timeout} is out of range", allowed=allowed)


def _external_ips(subject: _Subject) -> None:
    for index, address in enumerate(subject.spec.external_ips):
        spot = subject.at["externalIPs"][index].spot
        if reason := _special(address):
            subject.problems.add(spot, f"{address} may not be used: it is {reason}", allowed=_ANOTHER)


def _special(address: IPAddress) -> str:
    """Why no Service can have that address, or an empty string."""
    if address.is_unspecified:
        return "unspecified (0.0.0.0 or ::)"
    if address.is_loopback:
        return "a loopback address"
    if address.is_link_local:
        return "a link-local address"
    return "a link-local multicast address" if any(address in network for network in _LINK_LOCAL_MULTICAST) else ""


def _balancer(subject: _Subject) -> None:
    keys = ("loadBalancerSourceRanges", "allocateLoadBalancerNodePorts", "loadBalancerClass")
    for key in keys if subject.type is not ServiceType.LOAD_BALANCER else ():
        if subject.at[key].value not in (None, []):
            subject.problems.add(subject.at[key].key, "may only be used when type is LoadBalancer", allowed=_LEAVE_OUT)


def _external_policy(subject: _Subject) -> None:
    spec, at = subject.spec, subject.at
    if spec.external_traffic_policy is not None and not subject.externally_accessible:
        what = "may only be set for externally-accessible services"
        subject.problems.add(
            at["externalTrafficPolicy"].key, what, allowed="those of type NodePort or LoadBalancer, or with externalIPs"
        )
    if not spec.health_check_node_port:
        return
    spot = at["healthCheckNodePort"].spot
    if subject.type is not ServiceType.LOAD_BALANCER or spec.external_traffic_policy is not TrafficPolicy.LOCAL:
        subject.problems.add(spot, "may only be set when type is LoadBalancer and externalTrafficPolicy is Local")
    else:
        _node_port_in_range(subject, spot, spec.health_check_node_port)


def _external_name(subject: _Subject) -> None:
    if subject.type is not ServiceType.EXTERNAL_NAME:
        return
    name = subject.spec.external_name.removesuffix(".")
    if not name:
        subject.problems.add(subject.at["externalName"].key, "is missing: an ExternalName service needs it")
    elif not is_subdomain(name):
        subject.problems.add(
            subject.at["externalName"].spot,
            f"{shown(name)} is not a DNS subdomain",
            allowed="write it as db.example.org",
        )


_CHECKS: tuple[Callable[[_Subject], None], ...] = (
    _metadata,
    _ports,
    _node_ports,
    _cluster_ips,
    _families,
    _affinity,
    _external_ips,
    _balancer,
    _external_policy,
    _external_name,
)


def check_labels(labels: Mapping[str, str], location: Location, problems: Problems) -> None:
    """Note labels that the API server refuses."""
    for key, value in labels.items():
        if fault := label_key_fault(key):
            problems.add(location[key].key, f"{shown(key)}: {fault}")
        if fault := label_value_fault(value):
            problems.add(location[key].spot, f"{shown(value)}: {fault}")


def check_slice(manifest: EndpointSliceManifest, location: Location, problems: Problems) -> None:
    """Note everything that the API server refuses (``ValidateEndpointSlice`` in pkg/apis/discovery/validation)."""
    endpoints, ports = manifest.endpoints, manifest.ports
    if len(endpoints) > _MOST_ENDPOINTS:
        what = f"{len(endpoints)} endpoints are too many for a slice"
        problems.add(location["endpoints"].key, what, allowed=f"allowed: {_MOST_ENDPOINTS}")
    if len(ports) > _MOST_SLICE_PORTS:
        problems.add(location["ports"].key, f"{len(ports)} ports are too many", allowed=f"allowed: {_MOST_SLICE_PORTS}")
    for index, endpoint in enumerate(endpoints):
        for number, address in enumerate(endpoint.addresses):
            at = location["endpoints"][index]["addresses"][number]
            _check_address(manifest.address_type, address, at, problems)
    names: set[str] = set()
    for index, port in enumerate(ports):
        if port.name in names:
            what = f"{shown(port.name)} appears twice"
            problems.add(location["ports"][index].spot, what, allowed="the names of ports are unique")
        names.add(port.name)


def _check_address(kind: AddressType, text: str, location: Location, problems: Problems) -> None:
    if kind is AddressType.FQDN:
        return
    if not is_address(text) or Family.of(ip_address(text)) != kind.value:
        problems.add(
            location.spot, f"{shown(text)} is not an {kind} address", allowed="write one, or another addressType"
        )
        return
    address = ip_address(text)
    if address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast:
        problems.add(
            location.spot,
            f"{address} may not be an endpoint: it is valid on one machine or segment only",
            allowed="choose another",
        )
