"""The sets of mode ipvs: their names, types and comments, and the rules' matches of them.

The names are kube-proxy's own (pkg/proxy/ipvs/ipset.go). A few rules match whole sets, so the number of rules does not
grow with the cluster.
"""

from enum import Enum

from proxylab.addresses import Family
from proxylab.engines.embedded.iptables.matches import comment
from proxylab.evidence.ipvs import IpSet, Member

_NAME_LENGTH = 31
"""The kernel's limit without the terminator (IPSET_MAXNAMELEN)."""

_PORTS = "bitmap:port"


class NodeSet(Enum):
    """A set of every node: its name, its type, and the comment of rules that match it."""

    LOOP_BACK = (
        "KUBE-LOOP-BACK",
        "hash:ip,port,ip",
        "Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose",
    )
    CLUSTER_IP = "KUBE-CLUSTER-IP", "hash:ip,port", "Kubernetes service cluster ip + port for masquerade purpose"
    EXTERNAL_IP = (
        "KUBE-EXTERNAL-IP",
        "hash:ip,port",
        "Kubernetes service external ip + port for masquerade and filter purpose",
    )
    EXTERNAL_IP_LOCAL = (
        "KUBE-EXTERNAL-IP-LOCAL",
        "hash:ip,port",
        "Kubernetes service external ip + port with externalTrafficPolicy=local",
    )
    LOAD_BALANCER = "KUBE-LOAD-BALANCER", "hash:ip,port", "Kubernetes service lb portal"
    LOAD_BALANCER_FW = (
        "KUBE-LOAD-BALANCER-FW",
        "hash:ip,port",
        "Kubernetes service load balancer ip + port for load balancer with sourceRange",
    )
    LOAD_BALANCER_LOCAL = (
        "KUBE-LOAD-BALANCER-LOCAL",
        "hash:ip,port",
        "Kubernetes service load balancer ip + port with externalTrafficPolicy=local",
    )
    LOAD_BALANCER_SOURCE_IP = (
        "KUBE-LOAD-BALANCER-SOURCE-IP",
        "hash:ip,port,ip",
        "Kubernetes service load balancer ip + port + source IP for packet filter purpose",
    )
    LOAD_BALANCER_SOURCE_CIDR = (
        "KUBE-LOAD-BALANCER-SOURCE-CIDR",
        "hash:ip,port,net",
        "Kubernetes service load balancer ip + port + source cidr for packet filter purpose",
    )
    NODE_PORT_TCP = "KUBE-NODE-PORT-TCP", _PORTS, "Kubernetes nodeport TCP port for masquerade purpose"
    NODE_PORT_LOCAL_TCP = (
        "KUBE-NODE-PORT-LOCAL-TCP",
        _PORTS,
        "Kubernetes nodeport TCP port with externalTrafficPolicy=local",
    )
    NODE_PORT_UDP = "KUBE-NODE-PORT-UDP", _PORTS, "Kubernetes nodeport UDP port for masquerade purpose"
    NODE_PORT_LOCAL_UDP = (
        "KUBE-NODE-PORT-LOCAL-UDP",
        _PORTS,
        "Kubernetes nodeport UDP port with externalTrafficPolicy=local",
    )
    NODE_PORT_SCTP = (
        "KUBE-NODE-PORT-SCTP-HASH",
        "hash:ip,port",
        "Kubernetes nodeport SCTP port for masquerade purpose with type 'hash ip:port'",
    )
    NODE_PORT_LOCAL_SCTP = (
        "KUBE-NODE-PORT-LOCAL-SCTP-HASH",
        "hash:ip,port",
        "Kubernetes nodeport SCTP port with externalTrafficPolicy=local with type 'hash ip:port'",
    )
    HEALTH_CHECK_NODE_PORT = "KUBE-HEALTH-CHECK-NODE-PORT", _PORTS, "Kubernetes health check node port"
    IPVS_IPS = "KUBE-IPVS-IPS", "hash:ip", "Addresses on kube-ipvs0"

    def name_in(self, family: Family) -> str:
        """The name of the family's set: both families have one of each, and IPv4 kept the names of old versions."""
        name, *_ = self.value
        return name if family is Family.IPV4 else f"KUBE-6-{name.removeprefix('KUBE-')}"[:_NAME_LENGTH]

    def of(self, family: Family, members: frozenset[Member] = frozenset()) -> IpSet:
        """The set of a family with these members."""
        _, kind, _ = self.value
        return IpSet(name=self.name_in(family), kind=kind, family=None if kind == _PORTS else family, members=members)

    @property
    def remark(self) -> str:
        """The comment of rules that match it."""
        return comment(self.value[2])

    def match(self, family: Family, fields: str) -> str:
        """The match of packets whose ``fields``, such as ``dst,dst``, are a member."""
        return f"-m set --match-set {self.name_in(family)} {fields}"
