"""``end_connections_of``: ends the connections of a run whose answers did not come back.

A pod's kernel sends an unanswered SYN-ACK or unacknowledged data again for a minute and more. Its packets would count
in the rules and at the taps of later runs, and its socket would keep the pod's namespace when the lab closes. Where
every flow of a run was settled, nothing is left, and the lab sent no sentinel packet.
"""

from collections import defaultdict
from collections.abc import Mapping

from proxylab.addresses import Transport
from proxylab.evidence.evidence import Direction, Evidence, Packet
from proxylab.kernel.netlink.connections import Connection, end_these
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.model import Plan
from proxylab.plan.resolved import ResolvedProbe

__all__ = ["end_connections_of"]


def end_connections_of(
    resolved: ResolvedProbe, evidence: Evidence, plan: Plan, netns_by_name: Mapping[str, NetNs]
) -> None:
    """End the connections that requests of the run may have opened where they arrived."""
    if resolved.protocol is not Transport.TCP or not evidence.sentinels:
        return
    opened = defaultdict[str, set[Connection]](set)
    for seen in evidence.observations:
        if seen.packet is Packet.REQUEST and seen.direction is Direction.IN and seen.netns_name in netns_by_name:
            own, peer = (seen.destination, seen.destination_port), (seen.source, seen.source_port)
            opened[seen.netns_name].add(Connection(own, peer))
    for namespace in plan.namespaces:
        if here := [each for each in opened[namespace.name] if namespace.has(each.own[0])]:
            end_these(netns_by_name[namespace.name], here)
