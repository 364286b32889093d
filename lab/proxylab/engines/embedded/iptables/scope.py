"""One service port, and everything that its rules depend on."""

from typing import NamedTuple

from msgspec import Struct

from proxylab.addresses import Family, IPAddress
from proxylab.engines.embedded.categories import EndpointCategories, categorize_endpoints
from proxylab.engines.embedded.iptables.matches import LocalDetector, comment, local_detector, to_address
from proxylab.engines.embedded.iptables.names import PortChains, endpoint_chain, port_chains
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ServicePortInfo
from proxylab.engines.embedded.settings import ProxySettings


class ProxyScope(Struct, frozen=True):
    """What all service ports of one proxy share.

    Attributes:
        counts_localhost: whether an extra rule counts packets to node ports on loopback addresses.
        omits_comments: omit the comments of endpoint rules, as kube-proxy does in large clusters.
    """

    node: NodeFacts
    node_address: IPAddress
    detector: LocalDetector | None
    masquerade_all: bool
    counts_localhost: bool
    omits_comments: bool

    @classmethod
    def of(cls, family: Family, node: NodeFacts, settings: ProxySettings, *, omits_comments: bool) -> "ProxyScope":
        """The scope of the proxy of that family on that node."""
        detector = local_detector(settings.detect_local, family, node)
        counts = family is Family.IPV4 and settings.serves_loopback and settings.packet_counters
        return cls(node, node.primary_address(family), detector, settings.masquerade_all, counts, omits_comments)


class PortScope(NamedTuple):
    """One service port on the node of one proxy.

    Attributes:
        endpoint_chains: the ``KUBE-SEP-`` chain of each reachable endpoint, by the endpoint's name.
        cluster_ip_match: matches packets to the cluster IP and its port.
        endpoint_comment: the comment of rules about one endpoint, with a space before it; empty in large clusters.
    """

    proxy: ProxyScope
    port: ServicePortInfo
    endpoints: EndpointCategories
    chains: PortChains
    endpoint_chains: dict[str, str]
    cluster_ip_match: str
    endpoint_comment: str

    @classmethod
    def of(cls, proxy: ProxyScope, port: ServicePortInfo) -> "PortScope":
        """The scope of a service port."""
        endpoints = categorize_endpoints(port, proxy.node)
        identity = f"{port.name}{port.protocol.lower()}"
        return cls(
            proxy,
            port,
            endpoints,
            port_chains(identity),
            {each.name: endpoint_chain(identity, each.name) for each in endpoints.reachable},
            to_address(port.protocol, port.cluster_ip, port.port),
            "" if proxy.omits_comments else f" {comment(port.name)}",
        )

    @property
    def internal_chain(self) -> str:
        """The chain for traffic to the cluster IP."""
        return self.chains.local if self.port.internal_policy_local else self.chains.cluster

    @property
    def external_policy_chain(self) -> str:
        """The chain that chooses an endpoint for traffic from outside the cluster."""
        return self.chains.local if self.port.external_policy_local else self.chains.cluster

    @property
    def uses_external_chain(self) -> bool:
        """Whether there is a KUBE-EXT- chain. Even without a local endpoint it serves pods and the node itself."""
        return self.endpoints.has_endpoints and self.port.externally_accessible

    @property
    def uses_firewall_chain(self) -> bool:
        """Whether only some sources may use the load-balancer IPs."""
        return bool(self.endpoints.has_endpoints and self.port.load_balancer_vips and self.port.source_ranges)
