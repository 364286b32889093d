"""A plan as text, for people and for golden files.

Owns: ``plan_lines``.
Must not: leave anything out but sysctls, which are many and the same for every namespace of a role.
"""

from collections.abc import Iterator

from lab.plan.model import LinkEnd, Namespace, Plan

__all__ = ["plan_lines", "sysctl_lines"]


def plan_lines(plan: Plan) -> list[str]:
    """The plan, a paragraph for each namespace, in ip-address(8)'s and ip-route(8)'s words."""
    lines: list[str] = []
    for namespace in plan.namespaces:
        lines += ["", *_namespace_lines(plan, namespace)]
    return lines[1:]


def sysctl_lines(namespace: Namespace) -> list[str]:
    """The sysctls of one namespace as sysctl(8) prints them; a question mark follows those a kernel may lack."""
    return [
        f"{sysctl.name} = {sysctl.value}{'' if sysctl.required else ' ?'}"
        for sysctl in namespace.sysctls
    ]  # fmt: skip


def _namespace_lines(plan: Plan, namespace: Namespace) -> Iterator[str]:
    yield f"{namespace.role} {namespace.name} ({len(namespace.sysctls)} sysctls)"
    for bridge in namespace.bridges:
        yield f"  bridge {bridge.device} index {bridge.index} mac {bridge.mac}"
    for link in plan.links:
        for end, peer in (link.ends, link.ends[::-1]):
            if end.namespace == namespace.name:
                yield f"  link {_end(end)} peer {peer.namespace}/{peer.device}"
    for address in namespace.addresses:
        yield f"  address {address.interface} dev {address.device}"
    for route in namespace.routes:
        via = "" if route.via is None else f" via {route.via}"
        source = "" if route.source is None else f" src {route.source}"
        yield f"  route {route.destination}{via} dev {route.device}{source}"
    for neighbour in namespace.neighbours:
        yield f"  neighbour {neighbour.address} lladdr {neighbour.mac} dev {neighbour.device}"
    for listener in namespace.listeners:
        yield f"  listen {listener.protocol} {listener.port} as {listener.name}"


def _end(end: LinkEnd) -> str:
    return f"{end.device} index {end.index} mac {end.mac}" + (f" master {end.master}" if end.master else "")
