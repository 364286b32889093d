"""``plan_lines``: a plan as text, for people and for golden files.

The text has everything but sysctls, which are many and the same for every namespace of a role.
"""

from collections.abc import Iterator

from proxylab.plan.model import MAIN_TABLE, LinkEnd, Plan, PlannedNamespace, Route


def plan_lines(plan: Plan) -> list[str]:
    """The plan, a paragraph for each namespace, in the words of ip-address(8) and ip-route(8)."""
    lines: list[str] = []
    for namespace in plan.namespaces:
        lines += ["", *_namespace_lines(plan, namespace)]
    for balancer in plan.balancers:
        checked = " while healthy" if balancer.health_checked else ""
        pool, nodes = ", ".join(map(str, balancer.pool)), ", ".join(balancer.nodes)
        dialled = "the node ports of " if balancer.dials_node_ports else ""
        way = f"announced by {balancer.announced_by}" if balancer.announced_by else f"to {dialled}{nodes}{checked}"
        lines += ["", f"balancer {balancer.name}: {pool} {way}"]
    return lines[1:]


def _namespace_lines(plan: Plan, namespace: PlannedNamespace) -> Iterator[str]:
    yield f"{namespace.role} {namespace.name} ({len(namespace.sysctls)} sysctls)"
    for bridge in namespace.bridges:
        promiscuous = " promiscuous" if bridge.promiscuous else ""
        yield f"  bridge {bridge.device} index {bridge.index} mac {bridge.mac}{promiscuous}"
    for link in plan.links:
        for end, peer in (link.ends, link.ends[::-1]):
            if end.namespace == namespace.name:
                yield f"  link {_end(end)} peer {peer.namespace}/{peer.device}"
    for vxlan in namespace.vxlans:
        about = f"id {vxlan.vni} local {vxlan.local} dev {vxlan.underlay} dstport {vxlan.port}"
        yield f"  vxlan {vxlan.device} index {vxlan.index} mac {vxlan.mac} {about}"
    yield from _addressing_lines(namespace)
    yield from _further_lines(namespace)
    for pod in plan.pods:
        if pod.namespace == namespace.name and pod.name != namespace.name:
            yield f"  pod {pod.name} with {', '.join(map(str, pod.addresses))}"
    for listener in namespace.listeners:
        address = "" if listener.address is None else f" of {listener.address}"
        silent = ", silent" if listener.silent else ""
        yield f"  listen {listener.protocol} {listener.port}{address} as {listener.name}{silent}"


def _further_lines(namespace: PlannedNamespace) -> Iterator[str]:
    for sysctl in namespace.device_sysctls:
        yield f"  sysctl {sysctl.name} = {sysctl.value}"
    for masquerade in namespace.masquerades:
        sources, spared = (", ".join(map(str, each)) for each in (masquerade.sources, masquerade.spared))
        yield f"  masquerade from {sources} to all but {spared}"
    for leftover in namespace.leftovers:
        yield f"  leftovers for {leftover.tool}: {len(leftover.text.splitlines())} lines"
    for name, path in namespace.programs.items():
        yield f"  program {name}: {path}"
    for connection in namespace.conntrack:
        yield f"  tracked {connection.protocol} {' '.join(f'{key} {end}' for key, end in connection.ends.items())}"


def _addressing_lines(namespace: PlannedNamespace) -> Iterator[str]:
    for address in namespace.addresses:
        yield f"  address {address.interface} dev {address.device}"
    for route in namespace.routes:
        yield f"  route {_route(route)}"
    for rule in namespace.rules:
        yield f"  rule {rule.priority}: from {rule.source or f'all {rule.family}'} lookup {rule.table}"
    for neighbour in namespace.neighbours:
        yield f"  neighbour {neighbour.address} lladdr {neighbour.mac} dev {neighbour.device}"
    for entry in namespace.forwarding:
        yield f"  fdb {entry.mac} dst {entry.remote} dev {entry.device}"


def _route(route: Route) -> str:
    if route.unreachable:
        return f"unreachable {route.destination}"
    words = [str(route.destination)]
    if route.hops:
        words += [f"nexthop via {hop.via} dev {hop.device}" for hop in route.hops]
    else:
        words += [f"via {route.via}"] if route.via is not None else []
        words.append(f"dev {route.device}")
    words += ["onlink"] if route.onlink else []
    words += [f"src {route.source}"] if route.source is not None else []
    words += [f"table {route.table}"] if route.table != MAIN_TABLE else []
    words += [f"mtu {route.mtu}"] if route.mtu is not None else []
    return " ".join(words)


def _end(end: LinkEnd) -> str:
    words = [f"{end.device} index {end.index} mac {end.mac}"]
    words += [f"master {end.master}"] if end.master else []
    words += ["hairpin"] if end.hairpin else []
    words += [f"mtu {end.mtu}"] if end.mtu is not None else []
    return " ".join(words)
