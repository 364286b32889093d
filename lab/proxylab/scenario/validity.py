"""The rules between the fields of a Service, as the API server checks them.

The rules and their messages are those of ``ValidateService`` in pkg/apis/core/validation/validation.go and of the
allocators in pkg/registry/core/service of Kubernetes. ``proxylab.scenario.references`` compares Services with each
other.
"""

from collections.abc import Callable
from ipaddress import ip_address, ip_network

from msgspec import Struct

from proxylab.addresses import Family, IPAddress, Protocol
from proxylab.cluster.objects import ServiceType, TrafficPolicy
from proxylab.scenario.document import Location, Spot
from proxylab.scenario.model import Network
from proxylab.scenario.problems import Problems, listed, shown
from proxylab.scenario.schema.service import FamilyPolicy, ServiceShape, ServiceSpecShape, SessionAffinity
from proxylab.scenario.syntax import is_dns1035_label, is_label, is_subdomain, label_key_fault, label_value_fault

__all__ = ["check_service"]

_LINK_LOCAL_MULTICAST = (ip_network("224.0.0.0/24"), ip_network("ff02::/16"))
_KUBELET_PORT = 10250
_LONGEST_AFFINITY = 86400
_ANOTHER = "choose another"
_LEAVE_OUT = "remove it, or change the type"
_EXPOSED = (ServiceType.NODE_PORT, ServiceType.LOAD_BALANCER)


class _Subject(Struct, frozen=True):
    """The Service under check."""

    shape: ServiceShape
    location: Location
    network: Network | None
    problems: Problems

    @property
    def spec(self) -> ServiceSpecShape:
        return self.shape.spec or ServiceSpecShape()

    @property
    def at(self) -> Location:
        return self.location["spec"]

    @property
    def type(self) -> ServiceType:
        return self.spec.type or ServiceType.CLUSTER_IP

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


def check_service(shape: ServiceShape, location: Location, network: Network | None, problems: Problems) -> None:
    """Note everything that the API server would refuse.

    Args:
        shape: the Service.
        location: its place.
        network: the networks of cluster IPs and the range of node ports; ``None`` if they are unknown.
        problems: takes the mistakes.
    """
    subject = _Subject(shape, location, network, problems)
    for check in _CHECKS:
        check(subject)


def _metadata(subject: _Subject) -> None:
    metadata, at, add = subject.shape.metadata, subject.location["metadata"], subject.problems.add
    if not is_dns1035_label(metadata.name):
        what = f"{shown(metadata.name)} is not a Service's name"
        allowed = "allowed: 63 lower-case letters, digits and '-' at most, a letter first (RFC 1035)"
        add(at["name"].spot, what, allowed=allowed)
    if metadata.namespace and not is_label(metadata.namespace):
        add(at["namespace"].spot, f"{shown(metadata.namespace)} is not a namespace", allowed="allowed: a DNS label")
    for key, value in (metadata.labels or {}).items():
        _label(at["labels"], key, value, subject.problems)
    for key, value in (subject.spec.selector or {}).items():
        _label(subject.at["selector"], key, value, subject.problems)


def _label(at: Location, key: str, value: str, problems: Problems) -> None:
    if fault := label_key_fault(key):
        problems.add(at[key].key, f"{shown(key)}: {fault}")
    if fault := label_value_fault(value):
        problems.add(at[key].spot, f"{shown(value)}: {fault}")


def _ports(subject: _Subject) -> None:
    ports = subject.spec.ports or []
    add = subject.problems.add
    if not ports and not subject.headless and subject.type is not ServiceType.EXTERNAL_NAME:
        add(subject.at["ports"].key, "a Service needs at least one port")
    numbers: set[tuple[Protocol, int]] = set()
    names: set[str] = set()
    for index, port in enumerate(ports):
        at, protocol = subject.at["ports"][index], port.protocol or Protocol.TCP
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
        names.add(port.name or "")
        if subject.type is ServiceType.LOAD_BALANCER and port.port == _KUBELET_PORT:
            add(
                at["port"].spot,
                f"may not expose port {_KUBELET_PORT} externally since it is used by kubelet",
                allowed=_ANOTHER,
            )


def _node_ports(subject: _Subject) -> None:
    taken: set[tuple[Protocol, int]] = set()
    for index, port in enumerate(subject.spec.ports or []):
        if not port.node_port:
            continue
        spot = subject.at["ports"][index]["nodePort"].spot
        key = (port.protocol or Protocol.TCP, port.node_port)
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
    allowed = f"allowed: an address in spec.network.serviceCIDR, {listed(map(str, networks.values()))}"
    network = networks.get(address.version)
    if network is None:
        subject.problems.add(location.spot, f"{address} is not of a family the cluster has", allowed=allowed)
    elif address not in network or address in (network.network_address, network.broadcast_address):
        subject.problems.add(location.spot, f"{address} is not in the valid range", allowed=allowed)
    elif address == network.network_address + 1 and subject.shape.metadata.name != "kubernetes":
        subject.problems.add(location.spot, f"{address} is the address of the API server itself", allowed=_ANOTHER)


def _families(subject: _Subject) -> None:
    spec, at, add = subject.spec, subject.at, subject.problems.add
    families = spec.ip_families or []
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
    timeout = config.client_ip.timeout_seconds if config.client_ip else None
    if timeout is not None and not 0 < timeout <= _LONGEST_AFFINITY:
        allowed = f"allowed: 1 to {_LONGEST_AFFINITY} seconds"
        subject.problems.add(at["clientIP"]["timeoutSeconds"].spot, f"{timeout} is out of range", allowed=allowed)


def _external_ips(subject: _Subject) -> None:
    for index, address in enumerate(subject.spec.external_ips or []):
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
    spec = subject.spec
    if subject.type is ServiceType.LOAD_BALANCER:
        return
    given = {
        "loadBalancerSourceRanges": bool(spec.load_balancer_source_ranges),
        "allocateLoadBalancerNodePorts": spec.allocate_load_balancer_node_ports is not None,
        "loadBalancerClass": spec.load_balancer_class is not None,
    }
    for key in [key for key, is_given in given.items() if is_given]:
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
    name = (subject.spec.external_name or "").removesuffix(".")
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
