"""A lab's network as text: a tree, or a Mermaid flowchart, optionally with the path of a probe."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from proxylab.features.graph.paths import Path
from proxylab.plan.model import Plan, Role


class Thing(Struct, frozen=True):
    """A box: a namespace with its addresses, and the segments or node to which it is connected."""

    name: str
    role: Role
    about: str
    on: str

    @property
    def title(self) -> str:
        """Its label in a drawing."""
        return self.name if self.name == str(self.role) else f"{self.role} {self.name}"


class Group(Struct, frozen=True):
    """Nodes joined by a tunnel or by a load balancer. ``nodes`` maps each node to a label."""

    title: str
    about: str
    nodes: Mapping[str, str]


def things(plan: Plan) -> list[Thing]:
    """The boxes of a drawing: hosts, router, nodes and pods, but not the switches."""
    found = [
        Thing(each.name, each.role, _about(plan, each.name), _segment(plan, each.name))
        for role in (Role.HOST, Role.ROUTER, Role.NODE)
        for each in plan.namespaces
        if each.role is role
    ]
    return found + [Thing(pod.name, Role.POD, " ".join(map(str, pod.addresses)), pod.node) for pod in plan.pods]


def segments(found: Iterable[Thing]) -> tuple[str, ...]:
    """The segments to which any box is connected, those of outside hosts first."""
    return tuple(dict.fromkeys(name for thing in found if thing.role is not Role.POD for name in thing.on.split()))


def tunnels(plan: Plan) -> tuple[Group, ...]:
    """The VXLAN overlays between nodes, with each node's tunnel address."""
    ends: dict[tuple[str, str], dict[str, str]] = {}
    for namespace in plan.namespaces:
        for vxlan in namespace.vxlans:
            own = [str(each.interface.ip) for each in namespace.addresses if each.device == vxlan.device]
            tunnel = (f"tunnel {vxlan.device}", f"VXLAN {vxlan.vni}, port {vxlan.port}")
            ends.setdefault(tunnel, {})[namespace.name] = " ".join(own)
    return tuple(Group(title, about, nodes) for (title, about), nodes in ends.items())


def balancer_groups(plan: Plan) -> tuple[Group, ...]:
    """The load balancers, each with its nodes."""
    return tuple(
        Group(
            f"balancer {each.name}",
            " ".join(map(str, each.pool)),
            dict.fromkeys([each.announced_by] if each.announced_by else each.nodes, ""),
        )
        for each in plan.balancers
    )


def _about(plan: Plan, name: str) -> str:
    own = [each.interface for each in plan.namespace(name).addresses if each.device != "lo"]
    ends = {end.device for link in plan.links for end in link.ends if end.namespace == name}
    wired = [each.interface for each in plan.namespace(name).addresses if each.device in ends]
    shown = [
        str(each.ip)
        for each in wired or own
        if each.network.prefixlen < each.max_prefixlen and not each.ip.is_link_local
    ]
    return " ".join(dict.fromkeys(shown))


def _segment(plan: Plan, name: str) -> str:
    """The segments, as bridges of the switch namespace, to which a namespace is linked."""
    segments = {each.name for each in plan.namespaces if each.role is Role.SEGMENT}
    masters = [
        end.master
        for link in plan.links
        for end, other in (link.ends, link.ends[::-1])
        if end.namespace in segments and other.namespace == name and end.master
    ]
    return " ".join(dict.fromkeys(masters))


def box_of(plan: Plan, netns_name: str) -> str:
    """The box for a namespace on a path: a namespace that pods share is drawn as its pod."""
    if any(pod.name == netns_name for pod in plan.pods):
        return netns_name
    roles = {each.name: each.role for each in plan.namespaces}
    if roles.get(netns_name) is not Role.POD:
        return netns_name
    return next((pod.name for pod in plan.pods if pod.namespace == netns_name), netns_name)


def path_lines(path: Path) -> Iterator[str]:
    """A path in words, a line for each leg, numbered as in the drawings."""
    yield f"the path of {path.title}"
    legs = path.all_legs
    width = len(str(len(legs)))
    ends = [f"{leg.origin} {leg.out} > {leg.target} {leg.into}" for leg in legs]
    room = max(map(len, ends), default=0)
    lines = [
        [
            *(f"  {' ' * width}  {change}" for change in leg.changes),
            f"  {number:>{width}}  {way:<{room}}  {leg.packet}",
        ]
        for number, (leg, way) in enumerate(zip(legs, ends, strict=True), 1)
    ]
    shown = iter(lines)
    for _ in path.legs:
        yield from next(shown)
    yield from (f"  {' ' * width}  {end}" for end in path.ends)
    for branch in path.branches:
        yield f"  to {branch.name}"
        for _ in branch.legs:
            yield from next(shown)
        yield from (f"  {' ' * width}  {end}" for end in branch.ends)


def text_lines(plan: Plan, path: Path | None = None) -> Iterator[str]:
    """A tree of segments, their nodes and hosts, and the nodes' pods; then tunnels, load balancers and the path."""
    found = things(plan)
    for segment in segments(found):
        yield f"segment {segment}"
        standing = [each for each in found if each.role is not Role.POD and segment in each.on.split()]
        yield from _branches([(_label(each), _pods_of(each, segment, found)) for each in standing])
    for group in (*tunnels(plan), *balancer_groups(plan)):
        yield f"{group.title} {group.about}"
        yield from _branches([(f"node {node} {about}".rstrip(), []) for node, about in group.nodes.items()])
    if path is not None:
        yield ""
        yield from path_lines(path)


def _branches(rows: Sequence[tuple[str, Sequence[str]]]) -> Iterator[str]:
    """The branches of a tree, each with its own sub-branches."""
    for number, (label, twigs) in enumerate(rows, 1):
        tie, trunk = ("└─", "   ") if number == len(rows) else ("├─", "│  ")
        yield f"{tie} {label}"
        yield from (f"{trunk}{'└─' if twig == len(twigs) else '├─'} {name}" for twig, name in enumerate(twigs, 1))


def _label(thing: Thing) -> str:
    return f"{thing.title} {thing.about}".rstrip()


def _pods_of(thing: Thing, segment: str, found: Iterable[Thing]) -> list[str]:
    """The pods of a node, listed at its first segment only."""
    if thing.role is not Role.NODE or thing.on.split()[0] != segment:
        return []
    return [_label(each) for each in found if each.role is Role.POD and each.on == thing.name]


def mermaid_lines(plan: Plan, path: Path | None = None) -> Iterator[str]:
    """A Mermaid flowchart, as GitHub renders it; the legs of a path are thick, numbered arrows."""
    lines = list(_mermaid(plan))
    yield from lines
    if path is None:
        return
    ids = {name: own for (_, name), own in _ids(things(plan)).items()}
    ties = sum(any(tie in line for tie in (" --- ", " .- ", " -.-> ")) for line in lines)
    for number, leg in enumerate(path.all_legs):
        ends = [ids[box_of(plan, netns_name)] for netns_name in (leg.origin, leg.target)]
        words = "<br/>".join((*leg.changes, f"{number + 1}: {leg.packet}")).replace('"', "#quot;")
        yield f'  {ends[0]} == "{words}" ==> {ends[1]}'
        yield f"  linkStyle {ties + number} stroke:{'#8250df' if leg.is_request else '#0f6b6b'}"


def _ids(found: Iterable[Thing]) -> dict[tuple[bool, str], str]:
    """The id of each box in a flowchart, by whether it is a pod, and by name."""
    return {(thing.role is Role.POD, thing.name): f"n{number}" for number, thing in enumerate(found)}


def _mermaid(plan: Plan) -> Iterator[str]:
    found = things(plan)
    ids = _ids(found)
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
    for number, balancer in enumerate(balancer_groups(plan)):
        yield f'  b{number}[/"{balancer.title}<br/>{balancer.about}"\\]'
        yield from (f"  {ids[False, router.name]} --- b{number}" for router in found if router.role is Role.ROUTER)
        yield from (f"  b{number} -.-> {ids[False, node]}" for node in balancer.nodes)
