"""What a plan says about the devices that a probe's packets cross: bridges, hairpin ports, reverse path filters.

The functions read the plan only; ``causes`` decides whether that explains a loss.
"""

from collections.abc import Iterator

from msgspec import Struct

from proxylab.addresses import IPAddress
from proxylab.plan.device_names import POD_BRIDGE
from proxylab.plan.forwarding import UnreachableError, next_hop, route_to
from proxylab.plan.model import LinkEnd, Plan, PlannedNamespace, Role
from proxylab.scenario.network import UPLINK

_MOST_HOPS = 8


class BridgePort(Struct, frozen=True):
    """A pod's port of a bridge on its node."""

    node: str
    bridge: str
    end: LinkEnd


class RefusedEntry(Struct, frozen=True):
    """The device by which a packet came into a node, and the one by which the node would answer its source."""

    node: str
    device: str
    back: str

    def because(self, source: IPAddress) -> str:
        """Why the node refuses a packet with that source, as a clause."""
        back = f"and the way back to {source} leads by {self.back}" if self.back else f"and no way leads to {source}"
        return f"rp_filter is 1 there, it came in by {self.device}, {back}"


def port_of(plan: Plan, namespace: str, device: str) -> BridgePort | None:
    """The bridge port at the other end of a pod's link; ``None`` without a bridge."""
    try:
        end = plan.peer(namespace, device)
    except KeyError:
        return None
    return BridgePort(end.namespace, end.master, end) if end.master else None


def bridge_of(plan: Plan, one: tuple[str, str], other: tuple[str, str]) -> BridgePort | None:
    """The bridge port of the first of two pods, if both are on one bridge."""
    first, second = port_of(plan, *one), port_of(plan, *other)
    together = first and second and (first.node, first.bridge) == (second.node, second.bridge)
    return first if together else None


def is_hairpin(plan: Plan, port: BridgePort) -> bool:
    """Whether the bridge sends frames back by the port they came in by, or its node takes all of them itself."""
    bridges = plan.namespace(port.node).bridges
    return port.end.hairpin or any(each.promiscuous for each in bridges if each.device == port.bridge)


def holder(plan: Plan, address: IPAddress) -> str:
    """Who has an address, and as what: ``node-a's gateway to its pods``; empty if several have it, or none.

    A node may have its gateway's address on the link of each pod.
    """
    held = {
        _held(plan, each, own.device)
        for each in plan.namespaces
        for own in each.addresses
        if own.interface.ip == address
    }
    return held.pop() if len(held) == 1 else ""


def _held(plan: Plan, namespace: PlannedNamespace, device: str) -> str:
    if namespace.role is Role.ROUTER:
        return "the router"
    if namespace.role is not Role.NODE:
        return f"{namespace.role} {namespace.name}"
    ends = {(end.namespace, end.device): far for link in plan.links for end, far in (link.ends, link.ends[::-1])}
    far = ends.get((namespace.name, device))
    if device == POD_BRIDGE or (far is not None and plan.namespace(far.namespace).role is Role.POD):
        return f"{namespace.name}'s gateway to its pods"
    return f"{namespace.name} on its {'uplink' if device == UPLINK else f'device {device}'}"


def calls_iptables(plan: Plan, node: str, address: IPAddress) -> bool:
    """Whether the rules of a node see what its bridges carry (br_netfilter)."""
    name = "net.bridge.bridge-nf-call-iptables" if address.version == 4 else "net.bridge.bridge-nf-call-ip6tables"
    return _value(plan.namespace(node), name) != "0"


def rp_filter_refusal(plan: Plan, start: str, source: IPAddress, destination: IPAddress) -> RefusedEntry | None:
    """The first node on the path with a reverse path filter that refuses the packet (RFC 3704, strict).

    A node with ``rp_filter`` at 1 takes a packet only by the device by which it would answer the packet's source
    (__fib_validate_source in net/ipv4/fib_frontend.c); of the values for all devices and for one, the higher counts.
    Without a holder of the destination the path ends where the routes end.
    """
    if source.version == 6:
        return None
    for node, device in _entries(plan, start, destination):
        namespace = plan.namespace(node)
        if _reverse_path(namespace, device) != "1":
            continue
        try:
            back = route_to(namespace, source)
        except UnreachableError:
            return RefusedEntry(node, device, "")
        if device not in {back.device, *(hop.device for hop in back.hops)}:
            return RefusedEntry(node, device, back.device)
    return None


def _entries(plan: Plan, netns_name: str, destination: IPAddress) -> Iterator[tuple[str, str]]:
    """The nodes and devices by which a packet comes in, as the plan routes it."""
    for _ in range(_MOST_HOPS):
        try:
            into = next_hop(plan, netns_name, destination).into
        except UnreachableError:
            return
        netns_name = into.namespace
        if plan.namespace(netns_name).role is Role.NODE:
            yield netns_name, into.device
        if plan.namespace(netns_name).has(destination):
            return


def _reverse_path(namespace: PlannedNamespace, device: str) -> str:
    own = _value(namespace, f"net.ipv4.conf.{device}.rp_filter") or _value(namespace, "net.ipv4.conf.default.rp_filter")
    return max(own, _value(namespace, "net.ipv4.conf.all.rp_filter"))


def _value(namespace: PlannedNamespace, name: str) -> str:
    values = {each.name: each.value for each in (*namespace.sysctls, *namespace.device_sysctls)}
    return values.get(name, "")
