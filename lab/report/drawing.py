"""The wire of a lab as a picture of text: a tree, or Mermaid.

Owns: what a picture shows (``things``, ``segments``, ``tunnels`` and ``fronted``), for ``svg`` too, and its two forms
of text.
Must not: know scenarios; a plan has everything.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from lab.plan.model import Plan, Role

__all__ = ["Group", "Thing", "fronted", "mermaid_lines", "segments", "text_lines", "things", "tunnels"]


@dataclass(frozen=True, slots=True)
class Thing:
    """A box: a namespace with its addresses, and whom it hangs on."""

    name: str
    role: Role
    about: str
    on: str

    @property
    def title(self) -> str:
        """What it is called in a picture."""
        return self.name if self.name == str(self.role) else f"{self.role} {self.name}"


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that something joins which is no segment: a tunnel, or the balancer before them. ``about`` is by node."""

    title: str
    about: str
    nodes: Mapping[str, str]


def things(plan: Plan) -> list[Thing]:
    """What a picture shows: everything but the fabric: hosts and router, nodes, and the pods on them."""
    found = [
        Thing(each.name, each.role, _about(plan, each.name), _segment(plan, each.name))
        for role in (Role.HOST, Role.ROUTER, Role.NODE)
        for each in plan.namespaces
        if each.role is role
    ]
    return found + [Thing(pod.name, Role.POD, " ".join(map(str, pod.addresses)), pod.node) for pod in plan.pods]


def segments(found: Iterable[Thing]) -> tuple[str, ...]:
    """The segments that anything stands on, those of outside hosts first."""
    return tuple(dict.fromkeys(name for thing in found if thing.role is not Role.POD for name in thing.on.split()))


def tunnels(plan: Plan) -> tuple[Group, ...]:
    """The overlays between nodes, with the address of each node's end."""
    ends: dict[tuple[str, str], dict[str, str]] = {}
    for namespace in plan.namespaces:
        for vxlan in namespace.vxlans:
            own = [str(each.interface.ip) for each in namespace.addresses if each.device == vxlan.device]
            tunnel = (f"tunnel {vxlan.device}", f"VXLAN {vxlan.vni}, port {vxlan.port}")
            ends.setdefault(tunnel, {})[namespace.name] = " ".join(own)
    return tuple(Group(title, about, nodes) for (title, about), nodes in ends.items())


def fronted(plan: Plan) -> tuple[Group, ...]:
    """The balancers, each with the nodes that it sends to."""
    return tuple(
        Group(f"balancer {each.name}", " ".join(map(str, each.pool)), dict.fromkeys(each.nodes, ""))
        for each in plan.balancers
    )


def _about(plan: Plan, name: str) -> str:
    own = [each.interface for each in plan.namespace(name).addresses if each.device != "lo"]
    ends = {end.device for link in plan.links for end in link.ends if end.namespace == name}
    wired = [each.interface for each in plan.namespace(name).addresses if each.device in ends]
    shown = [str(each.ip) for each in wired or own if each.network.prefixlen < each.max_prefixlen]
    return " ".join(dict.fromkeys(shown))


def _segment(plan: Plan, name: str) -> str:
    """The bridges of the fabric that a namespace has a link to."""
    segments = {each.name for each in plan.namespaces if each.role is Role.SEGMENT}
    masters = [
        end.master
        for link in plan.links
        for end, other in (link.ends, link.ends[::-1])
        if end.namespace in segments and other.namespace == name and end.master
    ]
    return " ".join(dict.fromkeys(masters))


def text_lines(plan: Plan) -> Iterator[str]:
    """A tree: segments, what stands on each, and pods under their nodes; then tunnels and balancers."""
    found = things(plan)
    for segment in segments(found):
        yield f"segment {segment}"
        for thing in (each for each in found if each.role is not Role.POD and segment in each.on.split()):
            yield f"├─ {thing.title} {thing.about}".rstrip()
            if thing.role is Role.NODE and thing.on.split()[0] == segment:
                pods = [each for each in found if each.role is Role.POD and each.on == thing.name]
                yield from (f"│  ├─ pod {pod.name} {pod.about}" for pod in pods)
    for group in (*tunnels(plan), *fronted(plan)):
        yield f"{group.title} {group.about}"
        yield from (f"├─ node {node} {about}".rstrip() for node, about in group.nodes.items())


def mermaid_lines(plan: Plan) -> Iterator[str]:
    """A Mermaid flowchart, as GitHub renders it."""
    found = things(plan)
    ids = {(thing.role is Role.POD, thing.name): f"n{number}" for number, thing in enumerate(found)}
    yield "flowchart TB"
    for number, segment in enumerate(segments(found)):
        yield f'  s{number}(["segment {segment}"])'
    for thing in found:
        yield f'  {ids[thing.role is Role.POD, thing.name]}["{thing.title}<br/>{thing.about}"]'
    for thing in found:
        own = ids[thing.role is Role.POD, thing.name]
        if thing.role is Role.POD:
            yield f"  {ids[False, thing.on]} --- {own}"
        for number, segment in enumerate(segments(found)):
            if thing.role is not Role.POD and segment in thing.on.split():
                pair = (own, f"s{number}") if thing.role is not Role.NODE else (f"s{number}", own)
                yield f"  {pair[0]} --- {pair[1]}"
    for number, tunnel in enumerate(tunnels(plan)):
        yield f'  t{number}{{{{"{tunnel.title}<br/>{tunnel.about}"}}}}'
        yield from (f'  {ids[False, node]} -. "{about}" .- t{number}' for node, about in tunnel.nodes.items())
    for number, balancer in enumerate(fronted(plan)):
        yield f'  b{number}[/"{balancer.title}<br/>{balancer.about}"\\]'
        yield from (f"  {ids[False, router.name]} --- b{number}" for router in found if router.role is Role.ROUTER)
        yield from (f"  b{number} -.-> {ids[False, node]}" for node in balancer.nodes)
