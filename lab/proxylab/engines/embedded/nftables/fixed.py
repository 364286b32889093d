"""The part of the table that depends on no Service: base chains, maps, sets, and the rules that look them up.

Every full sync writes it anew; a partial sync leaves it alone.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from proxylab.addresses import Family, IPAddress, IPNetwork
from proxylab.engines.embedded.nftables import names
from proxylab.engines.embedded.nftables.scope import ProxyScope


class _Base(NamedTuple):
    """A chain that a hook of the kernel calls."""

    name: str
    kind: str
    hook: str
    priority: str


# Source ranges apply to the address that the client dialled, so they are checked before DNAT.
_BASES: Final = (
    _Base("filter-prerouting-pre-dnat", "filter", "prerouting", "-110"),
    _Base("filter-output-pre-dnat", "filter", "output", "-110"),
    _Base("filter-input", "filter", "input", "0"),
    _Base("filter-forward", "filter", "forward", "0"),
    _Base("filter-output", "filter", "output", "0"),
    _Base("nat-prerouting", "nat", "prerouting", "-100"),
    _Base("nat-output", "nat", "output", "-100"),
    _Base("nat-postrouting", "nat", "postrouting", "100"),
)
BASE_CHAINS: Final = tuple(base.name for base in _BASES)

_NEW: Final = "ct state new "
"""Only the first packet is refused: an established connection survives the loss of its endpoint's readiness."""

_JUMPS: Final = (
    ("filter-input", f"{_NEW}jump nodeport-endpoints-check"),
    ("filter-input", f"{_NEW}jump service-endpoints-check"),
    ("filter-forward", f"{_NEW}jump service-endpoints-check"),
    ("filter-output", f"{_NEW}jump service-endpoints-check"),
    ("filter-prerouting-pre-dnat", f"{_NEW}jump firewall-check"),
    ("filter-output-pre-dnat", f"{_NEW}jump firewall-check"),
    ("nat-output", "jump services"),
    ("nat-prerouting", "jump services"),
    ("nat-postrouting", "jump masquerading"),
    ("filter-forward", f"{_NEW}jump cluster-ips-check"),
    ("filter-output", f"{_NEW}jump cluster-ips-check"),
)
_CHAINS: Final = (
    "nodeport-endpoints-check",
    "service-endpoints-check",
    "firewall-check",
    "services",
    "masquerading",
    "cluster-ips-check",
)

_TO_ADDRESS: Final = "ADDRESS . inet_proto . inet_service"
_TO_PORT: Final = "inet_proto . inet_service"

_SETS: Final = (
    (names.HAIRPINS, f"ADDRESS . {_TO_ADDRESS}", "service hairpin connections"),
    (names.CLUSTER_IPS, "ADDRESS", "Active ClusterIPs"),
)
_MAPS: Final = (
    (names.NO_ENDPOINT_SERVICES, _TO_ADDRESS, "vmap to drop or reject packets to services with no endpoints"),
    (names.NO_ENDPOINT_NODE_PORTS, _TO_PORT, "vmap to drop or reject packets to service nodeports with no endpoints"),
    (names.FIREWALL_IPS, _TO_ADDRESS, "destinations that are subject to LoadBalancerSourceRanges"),
    (names.SERVICE_IPS, _TO_ADDRESS, "ClusterIP, ExternalIP and LoadBalancer IP traffic"),
    (names.SERVICE_NODE_PORTS, _TO_PORT, "NodePort traffic"),
)
CONTAINERS: Final = {name: "set" for name, _, _ in _SETS} | {name: "map" for name, _, _ in _MAPS}
"""The sets and maps with elements of service ports, and which of the two each is."""


def fixed_commands(
    proxy: ProxyScope, node_ports: Sequence[IPAddress] | None, service_cidrs: Sequence[IPNetwork]
) -> tuple[str, ...]:
    """The commands for the whole fixed part, with every set and map left empty.

    ``node_ports`` are the addresses that serve node ports; ``None`` for all of the node's.
    """
    table = f"{proxy.ip} {names.TABLE}"
    rules = (*_JUMPS, *_rules(proxy, service_cidrs, restricted=node_ports is not None))
    return (
        f'add table {table} {{ comment "rules for kube-proxy" ; }}',
        *(
            f"add chain {table} {base.name} {{ type {base.kind} hook {base.hook} priority {base.priority} ; }}"
            for base in _BASES
        ),
        *(f"add chain {table} {name}" for name in _CHAINS),
        f'add chain {table} {names.REJECT} {{ comment "helper for @no-endpoint-services / @no-endpoint-nodeports" ; }}',
        *(f"flush chain {table} {name}" for name in (*BASE_CHAINS, *_CHAINS, names.REJECT)),
        *_containers(proxy, table, node_ports),
        *(f"add rule {table} {chain} {rule}" for chain, rule in rules),
    )


def _containers(proxy: ProxyScope, table: str, node_ports: Sequence[IPAddress] | None) -> Iterator[str]:
    address = "ipv4_addr" if proxy.family is Family.IPV4 else "ipv6_addr"
    for name, key, remark in _SETS:
        yield f'add set {table} {name} {{ type {key.replace("ADDRESS", address)} ; comment "{remark}" ; }}'
    for name, key, remark in _MAPS:
        kind = f"{key.replace('ADDRESS', address)} : verdict"
        yield f'add map {table} {name} {{ type {kind} ; comment "{remark}" ; }}'
    for name, kind in CONTAINERS.items():
        yield f"flush {kind} {table} {name}"
    yield f'add set {table} {names.NODE_PORT_IPS} {{ type {address} ; comment "IPs that accept NodePort traffic" ; }}'
    if node_ports is None:
        # "delete" alone fails where there is no such set.
        yield f"delete set {table} {names.NODE_PORT_IPS}"
    else:
        yield f"flush set {table} {names.NODE_PORT_IPS}"
        for each in node_ports:
            if not each.is_loopback:
                yield f"add element {table} {names.NODE_PORT_IPS} {{ {each} }}"


def _rules(proxy: ProxyScope, service_cidrs: Sequence[IPNetwork], *, restricted: bool) -> Iterator[tuple[str, str]]:
    """The rules besides the jumps from base chains, each with its chain."""
    ip, masquerade = proxy.ip, proxy.masquerade
    to_address = f"{ip} daddr . meta l4proto . th dport"
    to_port = "meta l4proto . th dport"
    not_loopback = "ip daddr != 127.0.0.0/8" if proxy.family is Family.IPV4 else "ip6 daddr != ::1"
    yield (
        "masquerading",
        # The outer packet of VXLAN inherits the mark of the inner one, and must not be masqueraded too.
        f"mark and {proxy.mark} != 0 mark set mark xor {proxy.mark} masquerade fully-random",
    )
    hairpin = f"{ip} saddr . {ip} daddr . meta l4proto . th dport @{names.HAIRPINS}"
    yield "masquerading", f"ct status dnat {hairpin} masquerade fully-random"
    remark = "Reject traffic to invalid ports of ClusterIPs"
    yield names.CLUSTER_IPS_CHECK, f'{ip} daddr @{names.CLUSTER_IPS} reject comment "{remark}"'
    if cidrs := ",".join(str(cidr) for cidr in service_cidrs if Family.of(cidr) is proxy.family):
        yield names.CLUSTER_IPS_CHECK, f'{ip} daddr {{ {cidrs} }} drop comment "{names.UNASSIGNED}"'
    yield names.REJECT, "reject"
    yield "service-endpoints-check", f"{to_address} vmap @{names.NO_ENDPOINT_SERVICES}"
    to_node = f"{ip} daddr @{names.NODE_PORT_IPS}" if restricted else not_loopback
    yield "nodeport-endpoints-check", f"{to_node} {to_port} vmap @{names.NO_ENDPOINT_NODE_PORTS}"
    yield "firewall-check", f"{to_address} vmap @{names.FIREWALL_IPS}"
    if proxy.masquerade_all:
        remark = "masquerade all clusterIP traffic"
        yield "services", f'{ip} daddr @{names.CLUSTER_IPS} {masquerade} comment "{remark}"'
    elif proxy.detector is not None:
        remark = "masquerade clusterIP traffic from outside cluster"
        outside = proxy.detector.if_not_local
        yield "services", f'{ip} daddr @{names.CLUSTER_IPS} {outside} {masquerade} comment "{remark}"'
    yield "services", f"{to_address} vmap @{names.SERVICE_IPS}"
    to_node = to_node if restricted else f"fib daddr type local {not_loopback}"
    yield "services", f"{to_node} {to_port} vmap @{names.SERVICE_NODE_PORTS}"
