"""The part of a lab that the packets of one probe can meet, and the commands of iproute2 that build it.

The commands leave out the other IP family and what the kernel does by itself: MAC addresses, permanent neighbours and
link-local addresses, unless a route or a tunnel names them.
"""

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_network
from itertools import groupby
from typing import Final, NamedTuple

from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress
from proxylab.evidence.evidence import Evidence
from proxylab.plan.device_names import FABRIC
from proxylab.plan.forwarding import UnreachableError, next_hop, route_to
from proxylab.plan.impairments import without_netem
from proxylab.plan.model import (
    BEHIND_LOCAL,
    MAIN_TABLE,
    POLICY_TABLE,
    LinkEnd,
    Plan,
    PlannedNamespace,
    PolicyRule,
    Role,
    Route,
    Sysctl,
    Veth,
    ends_by_namespace,
)
from proxylab.plan.outages import Absences
from proxylab.plan.resolved import PolicyRoute, ResolvedProbe
from proxylab.plan.sysctls import device_of, path_of, sysctls_for
from proxylab.scenario.network import UPLINK

_FROM_THE_MACHINE: Final = {
    f"net.ipv4.conf.{which}.{key}": "0" for which in ("all", "default") for key in ("rp_filter", "send_redirects")
}
"""Settings that a new namespace copies from the machine, and that would change a packet's path."""

# Not every machine has sysctl(8), and a kernel may lack a setting.
_SET_SYSCTLS: Final = """\
set_sysctls() {  # NAMESPACE FILE=VALUE...
    ip netns exec "$1" sh -ec 'shift; cd /proc/sys; for each; do
        [ ! -e "${each%%=*}" ] || echo "${each#*=}" > "${each%%=*}"; done' sh "$@"
}
"""

_ROLES: Final = {
    Role.SEGMENT: "the switches",
    Role.ROUTER: "the router between nodes and hosts",
    Role.NODE: "nodes",
    Role.POD: "pods",
    Role.HOST: "hosts outside the cluster",
}


def reachable_part(plan: Plan, resolved: ResolvedProbe, evidence: Evidence, targets: Collection[IPAddress]) -> Plan:
    """The plan without the namespaces that no packet of the probe can meet, and without the other IP family.

    It keeps the sender, every namespace where a tap saw a packet, the owners of the dialled address and of addresses to
    which a rule translates, and all namespaces between them.
    """
    homes = {each.name: each.namespace for each in plan.pods}
    nodes = {each.namespace: each.node for each in plan.pods}
    plan = _routed_to_announcer(without_netem(plan), resolved.destination)
    wanted = {*targets, resolved.destination}
    kept = {resolved.sender.namespace, *(homes.get(each.netns_name, each.netns_name) for each in evidence.observations)}
    kept |= {each.name for each in plan.namespaces if wanted & {address.interface.ip for address in each.addresses}}
    kept |= {each.name for each in plan.namespaces if resolved.policy_route and each.has(resolved.policy_route.via)}
    kept |= {nodes[name] for name in kept if name in nodes}
    kept.update(_way(plan, resolved.sender.namespace, resolved.destination, through=not targets))
    for netns_name in tuple(kept):
        for address in (*targets, resolved.sender.address):
            kept.update(_way(plan, netns_name, address))
    kept |= {FABRIC} if any(_joins(link, FABRIC, kept) for link in plan.links) else set()
    return _of_family(_only(plan, kept), resolved.destination.version, resolved.destination)


def _routed_to_announcer(plan: Plan, address: IPAddress) -> Plan:
    """The plan with routes to the node that announces an address: in the script no program answers for it."""
    node = plan.announcer(address)
    if not node:
        return plan
    own = (each.interface.ip for each in plan.namespace(node).addresses if each.device == UPLINK)
    via = next(each for each in own if each.version == address.version and not each.is_link_local)
    for namespace in (each for each in plan.namespaces if each.name != node):
        with suppress(UnreachableError):
            on_link = route_to(namespace, address)
            if on_link.via is None and not on_link.hops:
                plan = plan.with_routes(namespace.name, (Route(ip_network(address), on_link.device, via=via),))
    return plan


def _way(plan: Plan, netns_name: str, address: IPAddress, *, through: bool = True) -> Iterator[str]:
    """The namespaces on the path to an address: ``through`` nodes, or up to the first node, which translates it.

    The path ends where it would loop.
    """
    seen = {netns_name}
    if not through and plan.namespace(netns_name).role is Role.NODE:
        return
    while not plan.namespace(netns_name).has(address):
        try:
            netns_name = next_hop(plan, netns_name, address).into.namespace
        except (UnreachableError, KeyError):
            return
        if netns_name in seen:
            return
        seen.add(netns_name)
        yield netns_name
        if not through and plan.namespace(netns_name).role is Role.NODE:
            return


def _joins(link: Veth, one: str, others: Collection[str]) -> bool:
    first, second = (end.namespace for end in link.ends)
    return (first == one and second in others) or (second == one and first in others)


def _only(plan: Plan, kept: Collection[str]) -> Plan:
    links = tuple(link for link in plan.links if all(end.namespace in kept for end in link.ends))
    devices = {(end.namespace, end.device) for link in links for end in link.ends}

    def stays(namespace: PlannedNamespace, device: str) -> bool:
        tops = [each.device for each in namespace.bridges] + [each.device for each in namespace.vxlans]
        return device in ("lo", *tops) or (namespace.name, device) in devices

    def without(each: PlannedNamespace) -> PlannedNamespace:
        return replace(
            each,
            device_sysctls=tuple(one for one in each.device_sysctls if stays(each, device_of(one.name) or "lo")),
            addresses=tuple(one for one in each.addresses if stays(each, one.device)),
            routes=tuple(one for one in each.routes if all(stays(each, device) for device in one.devices)),
            neighbours=tuple(one for one in each.neighbours if stays(each, one.device)),
        )

    return Plan(
        namespaces=tuple(without(each) for each in plan.namespaces if each.name in kept),
        links=links,
        pods=tuple(each for each in plan.pods if each.namespace in kept),
    )


def _of_family(plan: Plan, version: int, dialled: IPAddress) -> Plan:
    """The plan without the other family, and without routes to destinations that it does not contain."""
    there = {each.interface.ip for namespace in plan.namespaces for each in namespace.addresses}
    there |= {dialled, *(route.via for namespace in plan.namespaces for route in namespace.routes if route.via)}
    tunnels = {each.local for namespace in plan.namespaces for each in namespace.vxlans}

    def of(each: PlannedNamespace) -> PlannedNamespace:
        routes = tuple(
            one
            for one in each.routes
            if one.destination.version == version and (one.unreachable or any(ip in one.destination for ip in there))
        )
        named = {one.via for one in routes} | tunnels | {one.via for other in plan.namespaces for one in other.routes}
        own = (one for one in each.addresses if one.interface.version == version or one.interface.ip in tunnels)
        family = Family.IPV4 if version == 4 else Family.IPV6
        return replace(
            each,
            addresses=tuple(one for one in own if not one.interface.is_link_local or one.interface.ip in named),
            routes=routes,
            rules=tuple(one for one in each.rules if one.family is family),
            masquerades=tuple(one for one in each.masquerades if one.family is family),
        )

    return replace(plan, namespaces=tuple(map(of, plan.namespaces)))


class Described(NamedTuple):
    """A namespace in words."""

    name: str
    role: str
    addresses: str


def described(plan: Plan) -> Iterator[Described]:
    """Each namespace of a plan."""
    homes = {each.namespace: each.node for each in plan.pods if each.namespace != each.node}
    for each in plan.namespaces:
        what = _ROLES[each.role]
        addresses = dict.fromkeys(str(one.interface.ip) for one in each.addresses)
        what = {Role.POD: f"pod on {homes.get(each.name)}", Role.NODE: "node", Role.HOST: "host"}.get(each.role, what)
        yield Described(each.name, what, ", ".join(addresses))


def built(plan: Plan, version: int, policy_route: PolicyRoute | None) -> Iterator[str]:
    """The commands that build the network, namespace by namespace."""
    yield from _SET_SYSCTLS.splitlines()
    yield f"names='{' '.join(each.name for each in plan.namespaces)}'"
    yield "for name in $names; do"
    yield '    ip netns add "$name"'
    own = {"net.ipv6.conf.default.accept_dad": "0"}
    if version == 4:
        own = {"net.ipv4.ip_forward": "0", **_FROM_THE_MACHINE}
    yield f'    set_sysctls "$name" {_words(own)}'
    yield "done"
    for link in plan.links:
        first, second = link.ends
        yield f"ip link add {_end(first)} type veth peer name {_end(second)}"
    yield 'for name in $names; do ip -n "$name" link set group default up; done  # every device, and lo'
    ends = ends_by_namespace(plan)
    by_role = sorted(plan.namespaces, key=lambda each: (list(_ROLES).index(each.role), each.name))
    for role, namespaces in groupby(by_role, key=lambda each: each.role):
        yield from ["", f"# {_ROLES[role]}"]
        for namespace in namespaces:
            name = namespace.name
            yield from (f"ip -n {name} {words}" for words in _inside(namespace, ends[name]))
            for each in namespace.forwarding:
                yield f"bridge -n {name} fdb append {each.mac} dev {each.device} dst {each.remote}"
    settings = {each.name: settings for each in plan.namespaces if (settings := _sysctls(each, version))}
    for words in dict.fromkeys(settings.values()):
        names = [name for name, own in settings.items() if own == words]
        one = f'for name in {" ".join(names)}; do set_sysctls "$name" {words}; done'
        yield one if len(names) > 1 else f"set_sysctls {names[0]} {words}"
    if policy_route is not None:
        yield "# The router sends the probe to the node that the scenario names."
        words = f"{policy_route.destination} via {policy_route.via} dev {policy_route.device} table {POLICY_TABLE}"
        yield f"ip -n {policy_route.namespace} route replace {words}"


def absent(plan: Plan, absences: Absences) -> Iterator[str]:
    """The commands that remove what steps removed before the probe: links that are down, pods that are gone."""
    for end in absences.down(plan):
        yield f"ip -n {end.namespace} link set dev {end.device} down"
    for name in absences.blackhole(plan):
        for version in sorted({each.interface.version for each in plan.namespace(name).addresses}):
            yield f"ip -n {name} -{version} rule add from all blackhole priority {BEHIND_LOCAL}"


def _sysctls(namespace: PlannedNamespace, version: int) -> str:
    """The settings of a router, and those of the scenario or the engine, as arguments of ``set_sysctls``."""
    usual = {each for families in ([Family.IPV4], list(Family)) for each in sysctls_for(namespace.role, families)}
    wanted = {}
    if namespace.role in (Role.NODE, Role.ROUTER) and version == 4:
        wanted = {"net.ipv4.ip_forward": "1", "net.ipv4.icmp_ratelimit": "0"}
    elif namespace.role in (Role.NODE, Role.ROUTER):
        wanted = {"net.ipv6.conf.all.forwarding": "1", "net.ipv6.icmp.ratelimit": "0"}
    wanted |= {each.name: each.value for each in namespace.sysctls if each not in usual and _matters(each)}
    wanted |= {each.name: each.value for each in namespace.device_sysctls}
    if namespace.role is Role.SEGMENT:
        wanted |= {f"net.bridge.bridge-nf-call-{each}": "0" for each in ("iptables", "ip6tables")}
    return _words(wanted)


def _words(sysctls: Mapping[str, str]) -> str:
    return " ".join(shlex.quote(f"{path_of(name)}={value}") for name, value in sysctls.items())


def _matters(sysctl: Sysctl) -> bool:
    return "_timeout" not in sysctl.name and not sysctl.name.endswith("conntrack_max")


def _end(end: LinkEnd) -> str:
    return f"{end.device} netns {end.namespace}" + (f" mtu {end.mtu}" if end.mtu else "")


def _inside(namespace: PlannedNamespace, ends: Iterable[LinkEnd]) -> Iterator[str]:
    used = {end.master for end in ends} | {each.device for each in namespace.addresses}
    for bridge in (each for each in namespace.bridges if each.device in used):
        yield f"link add {bridge.device} up type bridge"
        if bridge.promiscuous:
            yield f"link set {bridge.device} promisc on"
    for each in namespace.vxlans:
        about = f"id {each.vni} dev {each.underlay} local {each.local} dstport {each.port} nolearning"
        yield f"link add {each.device} up address {each.mac} type vxlan {about}"
    for address in namespace.addresses:
        nodad = " nodad" if address.interface.version == 6 else ""
        yield f"addr add {address.interface} dev {address.device}{nodad}"
    for end in ends:
        if end.master:
            yield f"link set {end.device} master {end.master}"
        if end.hairpin:
            yield f"link set {end.device} type bridge_slave hairpin on"
    tunnels = {each.device for each in namespace.vxlans}
    for neighbour in namespace.neighbours:
        if neighbour.device in tunnels:
            yield f"neigh add {neighbour.address} lladdr {neighbour.mac} dev {neighbour.device} nud permanent"
    yield from map(_route, _merged(namespace.routes))
    yield from map(_rule, namespace.rules)


def _merged(routes: Sequence[Route]) -> Iterator[Route]:
    """The routes; a host route to a gateway is merged into the routes via that gateway, which become ``onlink``."""
    alone = {each.destination.network_address: each for each in routes if _is_to_one(each) and each.via is None}
    gateways = {each.via for each in routes if each.via in alone and alone[each.via].device == each.device}
    for each in routes:
        if not (each.via is None and _is_to_one(each) and each.destination.network_address in gateways):
            yield replace(each, onlink=True) if each.via in gateways else each


def _is_to_one(route: Route) -> bool:
    return route.destination.prefixlen == route.destination.max_prefixlen and not route.unreachable


def _route(route: Route) -> str:
    everywhere = route.destination.prefixlen == 0
    words = [f"route add {'default' if everywhere else route.destination}"]
    if route.unreachable:
        words = [f"route add unreachable {route.destination}"]
    elif route.hops:
        words += [f"nexthop via {hop.via} dev {hop.device}" for hop in route.hops]
    else:
        words += [f"via {route.via}"] if route.via else []
        words += [f"dev {route.device}"] + (["onlink"] if route.onlink else [])
    words += [f"src {route.source}"] if route.source else []
    words += [f"mtu {route.mtu}"] if route.mtu else []
    words += [f"table {route.table}"] if route.table != MAIN_TABLE else []
    return " ".join(words)


def _rule(rule: PolicyRule) -> str:
    family = "-6 " if rule.family is Family.IPV6 else ""
    return f"{family}rule add from {rule.source or 'all'} lookup {rule.table} priority {rule.priority}"
