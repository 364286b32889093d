"""Where the packets of each stream may arrive, step by step: the streams as the judge of a step sees them.

A stream keeps its flow while the cluster changes. Conntrack, or an open connection, may hold it at an endpoint that no
new flow may reach any more; so its endpoints are all that it might reach at some time until the end of the step, and
the reachable ones are those of that end. A rollout has stages, each with endpoints of its own. A stream may begin at
the endpoint of an entry that a node has from before its proxy: kube-proxy deletes stale entries after its first rules
serve.
"""

from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from proxylab.addresses import IPAddress
from proxylab.cluster.chain_names import chain_hashes
from proxylab.cluster.configuration import SocketAddress
from proxylab.cluster.objects import EndpointSlice
from proxylab.plan.cluster_timeline import ClusterMoment
from proxylab.plan.endpoints import LabEndpoints
from proxylab.plan.node_ports import NodePortAddresses
from proxylab.plan.resolved import Destination, ResolvedProbe
from proxylab.scenario.nodes import TrackedConnection
from proxylab.scenario.steps import Step


def streams_by_step(
    streams: Sequence[ResolvedProbe],
    timeline: Sequence[ClusterMoment],
    steps: Iterable[Step],
    serving: NodePortAddresses,
    tracked: Collection[TrackedConnection] = (),
) -> tuple[tuple[ResolvedProbe, ...], ...]:
    """The streams at the end of each step.

    ``timeline`` is the cluster at first and after each step; ``tracked`` are the connections that nodes know before
    their proxies start.
    """
    ends, hashes = [_Ends(each, tracked) for each in streams], frozenset[str]()

    def meet(now: ClusterMoment) -> None:
        nonlocal hashes
        objects = now.objects
        slices = [each for each in objects if isinstance(each, EndpointSlice)]
        endpoints = _endpoints(now, slices, serving)
        hashes = hashes.union(chain_hashes(objects))
        for stream in ends:
            stream.meet(endpoints, hashes)

    if not ends:
        return ((),) * (len(timeline) - 1)
    meet(timeline[0])
    found = []
    for step, before in zip(steps, timeline[:-1], strict=True):
        for now in before.through(step):
            meet(now)
        found.append(tuple(stream.resolved for stream in ends))
    return tuple(found)


def streams_after(
    streams: Sequence[ResolvedProbe], moments: Iterable[ClusterMoment], serving: NodePortAddresses
) -> tuple[ResolvedProbe, ...]:
    """The streams, with what they might reach at those later moments, too."""
    ends = [_Ends(each) for each in streams]
    for now in moments:
        slices = [each for each in now.objects if isinstance(each, EndpointSlice)]
        endpoints = _endpoints(now, slices, serving)
        for stream in ends:
            stream.meet(endpoints, frozenset(stream.resolved.chain_hashes or ()).union(chain_hashes(now.objects)))
    return tuple(each.resolved for each in ends)


def _endpoints(now: ClusterMoment, slices: Sequence[EndpointSlice], serving: NodePortAddresses) -> LabEndpoints:
    then = serving.after(now.moves)
    return LabEndpoints(now.services, slices, then.local, then.surely_serves, then.led)


class _Ends:
    """The ends of one stream, over time. ``resolved`` is the stream with them."""

    def __init__(self, resolved: ResolvedProbe, tracked: Collection[TrackedConnection] = ()) -> None:
        self.resolved = resolved
        sender, dialled = resolved.sender, SocketAddress(resolved.destination, resolved.port)
        self._ever: dict[tuple[IPAddress, int], None] = {
            (each.reply_from.address, each.reply_from.port): None
            for each in tracked
            if each.reply_from is not None
            and (each.protocol.value, each.destination) == (resolved.protocol.value, dialled)
            and (each.source.address, each.source.port) == (sender.address, sender.port)
        }
        self._ever.update(((each.address, each.port), None) for each in resolved.endpoints)

    def meet(self, endpoints: LabEndpoints, hashes: frozenset[str]) -> None:
        """Take in the endpoints of the cluster at a later time; ``hashes`` are in the names of chains until then."""
        resolved = self.resolved
        expected = endpoints.at(resolved.destination, resolved.port, resolved.protocol)
        now = [(each.address, each.port) for each in expected.endpoints if each.is_reachable]
        if expected.or_dialled:
            now.append((resolved.destination, resolved.port))
        self._ever.update(dict.fromkeys(now))
        ends = (Destination(address=each[0], port=each[1], is_reachable=each in now) for each in self._ever)
        self.resolved = replace(
            resolved,
            service_port=expected.service_port or resolved.service_port,
            endpoints=tuple(ends),
            chain_hashes=hashes,
        )
