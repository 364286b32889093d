"""When each client last connected to a service port with session affinity, and which endpoint it got.

A proxy remembers a client for ``timeoutSeconds``. The lab may take longer than the author planned, so the judge needs
these times where a client must be remembered.
"""

from collections import defaultdict
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from msgspec.structs import replace

from proxylab.addresses import IPAddress
from proxylab.evidence.evidence import Direction, EarlierConnection, Evidence, Leg, Observation, Packet
from proxylab.plan.resolved import ResolvedProbe


class _DialledFrontend(NamedTuple):
    """The dialled address and port, and the node that a policy route leads to.

    Each node remembers for itself, and IPVS remembers by frontend.
    """

    address: IPAddress
    port: int
    via: IPAddress | None


class ClientMemory:
    """The clients of one lab."""

    def __init__(self) -> None:
        self._last: defaultdict[str, dict[_DialledFrontend, dict[IPAddress, EarlierConnection]]] = defaultdict(dict)

    def note(self, resolved: ResolvedProbe, evidence: Evidence) -> Evidence:
        """The evidence with the clients' earlier connections; those of this probe are noted for the next."""
        if resolved.affinity_timeout is None:
            return evidence
        frontends, route = self._last[resolved.service_port], resolved.policy_route
        frontend = _DialledFrontend(resolved.destination, resolved.port, None if route is None else route.via)
        everywhere = sorted(chain.from_iterable(each.values() for each in frontends.values()), key=attrgetter("at"))
        here = frontends.setdefault(frontend, {})
        known = {each.client: each for each in everywhere} | here
        earlier = tuple(known[client] for client in resolved.sender.addresses if client in known)
        here |= _connections(resolved, evidence.observations)
        return replace(evidence, earlier=earlier)


def _connections(resolved: ResolvedProbe, observations: tuple[Observation, ...]) -> dict[IPAddress, EarlierConnection]:
    """The last connection of each client of a probe."""
    endpoints = {(each.address, each.port) for each in resolved.endpoints}
    left: dict[int, int] = {}
    chosen: dict[int, tuple[IPAddress, int]] = {}
    for seen in observations:
        if seen.packet is not Packet.REQUEST or seen.leg is Leg.TRIED:
            continue
        left[seen.flow] = min(seen.at, left.get(seen.flow, seen.at))
        end = seen.destination, seen.destination_port
        if seen.direction is Direction.IN and end in endpoints:
            chosen[seen.flow] = end
    found = {}
    for flow in sorted(chosen, key=left.__getitem__):
        client = resolved.sender.address_of_flow(flow)
        found[client] = EarlierConnection(client, *chosen[flow], left[flow])
    return found
