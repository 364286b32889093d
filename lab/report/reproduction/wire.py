"""The wire of a lab as commands of iproute2.

Owns: which command makes which part of a plan, in the order in which ``kernel.realise`` makes them.
Must not: choose anything, or know rules or probes.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from lab.ip import Family
from lab.plan.errand import Detour
from lab.plan.model import (
    BEHIND_LOCAL,
    DETOUR_TABLE,
    MAIN_TABLE,
    Address,
    Bridge,
    LinkEnd,
    Namespace,
    Plan,
    PolicyRule,
    Route,
    Sysctl,
    Veth,
    Vxlan,
    ends_by_namespace,
)
from lab.plan.reach import Absences

__all__ = ["absent", "changed", "detour", "furnishing", "links", "names", "path_of", "rerouted", "sysctls"]

_DOTS = str.maketrans("./", "/.")


def names(plan: Plan) -> tuple[str, ...]:
    """The namespaces, in the order of the plan."""
    return tuple(namespace.name for namespace in plan.namespaces)


def sysctls(plan: Plan) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """What is written before the first link: namespaces, and a line ``path value`` for each sysctl they share."""
    ordered = sorted(plan.namespaces, key=lambda namespace: [each.name + each.value for each in namespace.sysctls])
    for values, namespaces in groupby(ordered, key=lambda namespace: namespace.sysctls):
        if values:
            yield tuple(namespace.name for namespace in namespaces), _paths(values)


def links(plan: Plan) -> Iterator[str]:
    """Every veth, both ends in place."""
    for link in plan.links:
        yield _veth(link)


def furnishing(plan: Plan, namespace: Namespace) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What happens inside one namespace once its veths exist: a program that reads lines, and the lines for it."""
    ends = ends_by_namespace(plan)[namespace.name]
    yield "ip -batch -", tuple(map(_bridge, namespace.bridges))
    yield "sysctls", _paths(namespace.device_sysctls)
    yield "ip -batch -", tuple(_devices(namespace, ends))
    yield (
        "bridge -batch -",
        tuple(f"fdb append {entry.mac} dev {entry.device} dst {entry.remote}" for entry in namespace.forwarding),
    )
    yield "ip -batch -", tuple(map(_route, namespace.routes))
    for family, option in ((Family.IPV4, ""), (Family.IPV6, "-6 ")):
        rules = tuple(_rule(rule) for rule in namespace.rules if rule.family is family)
        yield f"ip {option}-batch -", rules


def detour(way: Detour) -> str:
    """The route that one probe needs in the router."""
    return f"route replace {way.destination} via {way.via} dev {way.device} table {DETOUR_TABLE}"


def absent(plan: Plan, absences: Absences) -> Iterator[tuple[str, str]]:
    """Namespace and command for each thing that steps have taken out of the lab."""
    for end in absences.down(plan):
        yield end.namespace, f"ip link set dev {end.device} down"
    yield from _rules_of_silence(plan, absences.mute(plan), "add")


def changed(
    plan: Plan, before: Absences, after: Absences
) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    """Namespace and command for what a step does at once, and for what it does when it has waited (``lab.advance``)."""
    down, was_down, mute, was_mute = after.down(plan), before.down(plan), after.mute(plan), before.mute(plan)
    at_once = [(end.namespace, f"ip link set dev {end.device} down") for end in down if end not in was_down]
    for end in was_down:
        if end not in down:
            at_once += ((end.namespace, command) for command in _mended(plan.namespace(end.namespace), end))
    at_once += _rules_of_silence(plan, [name for name in was_mute if name not in mute], "del")
    return tuple(at_once), tuple(_rules_of_silence(plan, [name for name in mute if name not in was_mute], "add"))


def rerouted(before: Plan, after: Plan) -> Iterator[tuple[str, str]]:
    """Namespace and command for each route that is another, or gone, in the second plan."""
    for old, new in zip(before.namespaces, after.namespaces, strict=True):
        yield from ((new.name, f"ip {_route(each, 'replace')}") for each in new.routes if each not in old.routes)
        kept = {(each.destination, each.table) for each in new.routes}
        for each in old.routes:
            if (each.destination, each.table) not in kept:
                yield new.name, f"ip {_route(each, 'del')}"


def _rules_of_silence(plan: Plan, names: Iterable[str], verb: str) -> Iterator[tuple[str, str]]:
    for name in names:
        for family in sorted({each.interface.version for each in plan.namespace(name).addresses}):
            yield name, f"ip -{family} rule {verb} from all blackhole priority {BEHIND_LOCAL}"


def _mended(namespace: Namespace, end: LinkEnd) -> Iterator[str]:
    """A link that is whole again, with what had gone with its end; some of it is there still."""
    device = end.device
    yield f"ip link set dev {device} up"
    yield from (f"ip {_address(each, 'replace')}" for each in namespace.addresses if each.device == device)
    for each in namespace.neighbours:
        if each.device == device:
            yield f"ip neigh replace {each.address} lladdr {each.mac} dev {device} nud permanent"
    yield from (f"ip {_route(route, 'replace')}" for route in namespace.routes if device in route.devices)


def path_of(key: str) -> str:
    """A sysctl's file below /proc/sys."""
    return key.translate(_DOTS)


def _paths(values: Iterable[Sysctl]) -> tuple[str, ...]:
    return tuple(f"{path_of(each.name)} {each.value}".rstrip() for each in values)


def _veth(link: Veth) -> str:
    first, second = link.ends
    return f"link add {_end(first)} type veth peer {_end(second)}"


def _end(end: LinkEnd) -> str:
    mtu = f" mtu {end.mtu}" if end.mtu else ""
    return f"name {end.device} netns {end.namespace} address {end.mac}{mtu}"


def _bridge(bridge: Bridge) -> str:
    return f"link add name {bridge.device} address {bridge.mac} type bridge"


def _devices(namespace: Namespace, ends: Sequence[LinkEnd]) -> Iterator[str]:
    yield "link set dev lo up"
    yield from map(_vxlan, namespace.vxlans)
    yield from map(_address, namespace.addresses)
    for end in ends:
        yield f"link set dev {end.device}" + (f" master {end.master}" if end.master else "") + " up"
    yield from (f"link set dev {end.device} type bridge_slave hairpin on" for end in ends if end.hairpin)
    yield from (f"ntable change name arp_cache dev {end.device} proxy_delay 0" for end in ends if end.proxy_arp)
    for bridge in namespace.bridges:
        yield f"link set dev {bridge.device}" + (" promisc on" if bridge.promiscuous else "") + " up"
    yield from (f"link set dev {vxlan.device} up" for vxlan in namespace.vxlans)
    for each in namespace.neighbours:
        yield f"neigh replace {each.address} lladdr {each.mac} dev {each.device} nud permanent"


def _vxlan(vxlan: Vxlan) -> str:
    about = f"id {vxlan.vni} dev {vxlan.underlay} local {vxlan.local} dstport {vxlan.port} nolearning"
    return f"link add name {vxlan.device} address {vxlan.mac} type vxlan {about}"


def _address(address: Address, verb: str = "add") -> str:
    return f"address {verb} {address.interface} dev {address.device}" + (
        " nodad" if address.interface.version == 6 else ""
    )


def _route(route: Route, verb: str = "add") -> str:
    words = [f"route {verb} {route.destination}"]
    if route.unreachable:
        words = [f"route {verb} unreachable {route.destination}"]
    elif route.hops:
        words += [f"nexthop via {hop.via} dev {hop.device}" for hop in route.hops]
    else:
        words += [f"via {route.via}"] if route.via else []
        words += [f"dev {route.device}"] + (["onlink"] if route.onlink else [])
    words += [f"src {route.source}"] if route.source else []
    words += [f"table {route.table}"] if route.table != MAIN_TABLE else []
    return " ".join(words)


def _rule(rule: PolicyRule) -> str:
    return f"rule add from {rule.source or 'all'} lookup {rule.table} priority {rule.priority}"
