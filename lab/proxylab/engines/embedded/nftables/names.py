"""The names of kube-proxy's chains, sets and maps in mode nftables (pkg/proxy/nftables/proxier.go).

A name may have 256 characters, so chains bear the names of their Service and endpoint behind a short hash. Only names
of chains that belong to a service port contain a slash.
"""

from base64 import b32encode
from hashlib import sha256
from typing import Final, NamedTuple

from proxylab.addresses import Protocol
from proxylab.engines.embedded.ports import EndpointInfo, ServicePortInfo

TABLE: Final = "kube-proxy"
"""The table, one in each family."""

CLUSTER_IPS: Final = "cluster-ips"
CLUSTER_IPS_CHECK: Final = "cluster-ips-check"
UNASSIGNED: Final = "Drop traffic to unallocated ClusterIPs"
"""The comment of the rule for addresses of a service network that no Service has."""
SERVICE_IPS: Final = "service-ips"
SERVICE_NODE_PORTS: Final = "service-nodeports"
NO_ENDPOINT_SERVICES: Final = "no-endpoint-services"
NO_ENDPOINT_NODE_PORTS: Final = "no-endpoint-nodeports"
FIREWALL_IPS: Final = "firewall-ips"
HAIRPINS: Final = "hairpin-connections"
NODE_PORT_IPS: Final = "nodeport-ips"
REJECT: Final = "reject-chain"
AFFINITY: Final = "affinity-"
"""Begins the names of sets that remember clients."""

_NAME_CHARACTERS: Final = 240
_HASH_BYTES: Final = 5
_HASH_CHARACTERS: Final = 8  # of base32
_OF_PORTS: Final = frozenset({"service", "local", "external", "firewall", "endpoint", "affinity"})
"""What begins the names of chains and sets of one service port."""


class PortChains(NamedTuple):
    """The names of one service port's chains, needed or not.

    Attributes:
        cluster: ``service-``: chooses among the endpoints of policy Cluster.
        local: ``local-``: chooses among the endpoints of policy Local.
        external: ``external-``: takes traffic to node ports, external and load-balancer IPs.
        firewall: ``firewall-``: drops what the source ranges of a load balancer do not include.
    """

    cluster: str
    local: str
    external: str
    firewall: str


def port_chains(port: ServicePortInfo) -> PortChains:
    """The chains of a service port."""
    base = _hashed(_identity(port))
    return PortChains("service-" + base, "local-" + base, "external-" + base, "firewall-" + base)


def endpoint_base(port: ServicePortInfo, endpoint: EndpointInfo) -> str:
    """What follows ``endpoint-`` and ``affinity-`` in the names of an endpoint's chain and set.

    >>> from proxylab.cluster.objects import Key
    >>> from ipaddress import ip_address
    >>> port = ServicePortInfo(Key("Service", "ns1", "svc1"), "ns1/svc1:p80", Protocol.TCP, ip_address("10.0.0.1"), 80)
    >>> endpoint_base(port, EndpointInfo(ip_address("10.180.0.1"), "10.180.0.1", 80, "", False, True, True, False))
    '5OJB2KTY-ns1/svc1/tcp/p80__10.180.0.1/80'
    """
    return _hashed(f"{_identity(port)}__{endpoint.ip.replace(':', '.')}/{endpoint.port}")


def without_hash(name: str) -> str:
    """The name of a service port's chain or set without what only it has: ``service-*``. Another name as it is."""
    kind, _, rest = name.partition("-")
    hashed, dash, _ = rest.partition("-")
    is_own = kind in _OF_PORTS and dash and len(hashed) == _HASH_CHARACTERS and hashed == hashed.upper()
    return f"{kind}-*" if is_own else name


def is_of_service(chain: str) -> bool:
    """Whether a chain belongs to a service port."""
    return "/" in chain


def _identity(port: ServicePortInfo) -> str:
    service, _, name = port.name.partition(":")
    return f"{service}/{_PROTOCOLS[port.protocol]}/{name}"


_PROTOCOLS: Final = {protocol: protocol.lower() for protocol in Protocol}


def _hashed(name: str) -> str:
    whole = f"{b32encode(sha256(name.encode()).digest()[:_HASH_BYTES]).decode()}-{name}"
    return whole if len(whole) <= _NAME_CHARACTERS else f"{whole[: _NAME_CHARACTERS - 3]}..."
