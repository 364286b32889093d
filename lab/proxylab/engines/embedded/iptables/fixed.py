"""The rules that depend on no Service.

Owns the jumps from built-in chains, KUBE-POSTROUTING, KUBE-MARK-MASQ, KUBE-FORWARD, KUBE-FIREWALL, and the jump to
KUBE-NODEPORTS.
"""

from proxylab.addresses import Family
from proxylab.engines.embedded.iptables import names
from proxylab.engines.embedded.iptables.matches import INVALID_COUNTER, TO_LOCAL, comment, count_into, mark
from proxylab.engines.embedded.iptables.names import Chain
from proxylab.engines.embedded.iptables.rules import Rule
from proxylab.engines.embedded.node import NodeFacts, node_port_addresses
from proxylab.engines.embedded.settings import LOOPBACK, ProxySettings

NEW = "-m conntrack --ctstate NEW"
"""Only the first packet is refused: an established connection survives the loss of its endpoint's readiness."""

NODE_PORTS_REMARK = comment("kubernetes service nodeports; NOTE: this must be the last rule in this chain")

SHARED_CHAINS: tuple[Chain, ...] = (
    names.REJECT_INTERNAL,
    names.REJECT_EXTERNAL,
    names.FORWARD,
    names.ACCEPT_HEALTH_CHECKS,
    names.PROXY_FIREWALL,
    names.SERVICES,
    names.NODE_PORTS,
    names.POSTROUTING,
    names.MARK_MASQ,
)


def _jump(source: Chain, target: Chain, remark: str, match: str = "") -> Rule:
    return Rule(source, (match, comment(remark) if remark else ""), target.name)


# In kube-proxy's order. Each goes to the top of its chain, so fresh built-in chains have them in reverse order.
JUMPS: tuple[Rule, ...] = (
    _jump(names.FILTER_INPUT, names.REJECT_EXTERNAL, "kubernetes externally-visible service portals", NEW),
    _jump(names.FILTER_FORWARD, names.REJECT_EXTERNAL, "kubernetes externally-visible service portals", NEW),
    _jump(names.FILTER_INPUT, names.ACCEPT_HEALTH_CHECKS, "kubernetes health check service ports"),
    _jump(names.FILTER_FORWARD, names.REJECT_INTERNAL, "kubernetes service portals", NEW),
    _jump(names.FILTER_OUTPUT, names.REJECT_INTERNAL, "kubernetes service portals", NEW),
    _jump(names.FILTER_FORWARD, names.FORWARD, "kubernetes forwarding rules"),
    _jump(names.FILTER_INPUT, names.PROXY_FIREWALL, "kubernetes load balancer firewall", NEW),
    _jump(names.FILTER_OUTPUT, names.PROXY_FIREWALL, "kubernetes load balancer firewall", NEW),
    _jump(names.FILTER_FORWARD, names.PROXY_FIREWALL, "kubernetes load balancer firewall", NEW),
    _jump(names.NAT_OUTPUT, names.SERVICES, "kubernetes service portals"),
    _jump(names.NAT_PREROUTING, names.SERVICES, "kubernetes service portals"),
    _jump(names.NAT_POSTROUTING, names.POSTROUTING, "kubernetes postrouting rules"),
    _jump(names.FILTER_INPUT, names.FIREWALL, ""),
    _jump(names.FILTER_OUTPUT, names.FIREWALL, ""),
)


def kept_chains(family: Family, settings: ProxySettings) -> tuple[Chain, ...]:
    """Chains that must exist but that no load rewrites: the canaries, and KUBE-FIREWALL where its rule is not ours."""
    return names.CANARIES if _serves_loopback(family, settings) else (*names.CANARIES, names.FIREWALL)


def fixed_chains(family: Family, settings: ProxySettings) -> tuple[Chain, ...]:
    """The shared chains, with KUBE-FIREWALL where its rule is ours."""
    return (*SHARED_CHAINS, names.FIREWALL) if _serves_loopback(family, settings) else SHARED_CHAINS


def fixed_rules(family: Family, settings: ProxySettings) -> tuple[Rule, ...]:
    """The rules that do not depend on any object."""
    return (
        *postrouting(settings),
        *mark_for_masquerading(settings),
        *(loopback_guard() if _serves_loopback(family, settings) else ()),
        *forwarding(settings),
    )


def postrouting(settings: ProxySettings) -> tuple[Rule, ...]:
    """KUBE-POSTROUTING: packets with the mark lose it and are masqueraded.

    A packet may pass twice: the outer packet of VXLAN inherits the mark of the inner one, and must not be masqueraded
    too. So the rule clears the mark.
    """
    bit = settings.masquerade_mark
    return (
        Rule(names.POSTROUTING, (f"-m mark ! --mark {mark(bit)}",), "RETURN"),
        Rule(names.POSTROUTING, (), f"MARK --xor-mark {bit:#08x}"),
        *masquerade(settings),
    )


def masquerade(settings: ProxySettings) -> tuple[Rule, ...]:
    """The masquerading; a random source port keeps two clients from racing for the same one."""
    target = "MASQUERADE --random-fully" if settings.random_fully else "MASQUERADE"
    return (Rule(names.POSTROUTING, (comment("kubernetes service traffic requiring SNAT"),), target),)


def mark_for_masquerading(settings: ProxySettings) -> tuple[Rule, ...]:
    """KUBE-MARK-MASQ: marks packets before routing, for KUBE-POSTROUTING to masquerade."""
    return (Rule(names.MARK_MASQ, (), f"MARK --or-mark {settings.masquerade_mark:#08x}"),)


def loopback_guard() -> tuple[Rule, ...]:
    """KUBE-FIREWALL: node ports on loopback need ``route_localnet``, which lets neighbours reach 127.0.0.0/8.

    This rule closes that hole (CVE-2020-8558). The kubelet writes an identical one.
    """
    foreign = f"-d {LOOPBACK} ! -s {LOOPBACK} -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT"
    return (Rule(names.FIREWALL, (comment("block incoming localnet connections"), foreign), "DROP"),)


def forwarding(settings: ProxySettings) -> tuple[Rule, ...]:
    """KUBE-FORWARD: lets Service traffic through a closed FORWARD policy.

    The kernel does not translate a packet back that conntrack calls INVALID. Forwarded with the pod's own address, it
    would make the client's stack reset the connection (kubernetes#74839).
    """
    counted = count_into(INVALID_COUNTER) if settings.packet_counters else ""
    invalid = Rule(names.FORWARD, ("-m conntrack --ctstate INVALID", counted), "DROP")
    return (
        *(() if settings.conntrack_tcp_be_liberal else (invalid,)),
        Rule(
            names.FORWARD,
            (comment("kubernetes forwarding rules"), f"-m mark --mark {mark(settings.masquerade_mark)}"),
            "ACCEPT",
        ),
        Rule(
            names.FORWARD,
            (comment("kubernetes forwarding conntrack rule"), "-m conntrack --ctstate RELATED,ESTABLISHED"),
            "ACCEPT",
        ),
    )


def node_port_jumps(family: Family, settings: ProxySettings, node: NodeFacts) -> tuple[Rule, ...]:
    """The end of KUBE-SERVICES: other packets to the node's own addresses may be for a node port."""
    return tuple(
        Rule(names.SERVICES, (NODE_PORTS_REMARK, addresses), names.NODE_PORTS.name)
        for addresses in _matches_of_node_ports(family, settings, node)
    )


def _matches_of_node_ports(family: Family, settings: ProxySettings, node: NodeFacts) -> tuple[str, ...]:
    own = node_port_addresses(family, settings, node)
    if own is not None:
        return tuple(
            f"-d {address}" for address in own if _serves_loopback(family, settings) or not address.is_loopback
        )
    if _serves_loopback(family, settings):
        return (TO_LOCAL,)
    # IPv6 has no route_localnet, so ::1 can never serve a node port.
    return (f"{TO_LOCAL} ! -d {'::1/128' if family is Family.IPV6 else LOOPBACK}",)


def _serves_loopback(family: Family, settings: ProxySettings) -> bool:
    return family is Family.IPV4 and settings.serves_loopback
