"""Which tracked UDP flows must be forgotten.

Owns: ``UdpReconciler``: what the flows of each front may lead to, and which entries lead elsewhere.
Must not: read or delete entries itself (a ``FlowTable`` that is handed in does).

UDP has no end of connection: as long as a client goes on sending, its flow is translated as its first packet was, also
to an endpoint that is gone. So after every change of UDP endpoints each entry is held against the endpoints that serve
(pkg/proxy/conntrack/cleanup.go, since 1.32). TCP and SCTP are never touched: their ends hear of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from proxylab.addresses import Family, IPAddress
from proxylab.addresses import Protocol as Transport
from proxylab.engines.embedded.ports import ServicePortInfo

__all__ = ["FlowTable", "TrackedFlow", "UdpReconciler"]

End = tuple[IPAddress, int]
Frontend = tuple[IPAddress | None, int]
"""An address and port that is dialled; of a node port only the port, since any address may be the node's."""


class TrackedFlow(Protocol):
    """One entry of connection tracking."""

    @property
    def destination(self) -> End:
        """What the sender dialled."""

    @property
    def reply_source(self) -> End:
        """Who answers."""


class FlowTable(Protocol):
    """Connection tracking of one node."""

    def forget_udp(self, family: Family, is_stale: "UdpReconciler") -> int:
        """Delete every UDP entry of the family that ``is_stale`` says it of; how many that were."""


class UdpReconciler:
    """Knows the UDP fronts of one family, and those that were until the last change.

    Args:
        forget_all: also flows to Services that have no serving endpoint any more, or that are gone; kube-proxy 1.32 to
            1.36.1 leaves those to time out (kubernetes#139629, #141371).
    """

    def __init__(self, *, forget_all: bool = True) -> None:
        self._forget_all = forget_all
        self._serving: Mapping[Frontend, frozenset[End]] = {}
        self._wanted: dict[Frontend, frozenset[End]] = {}

    def update(self, ports: Sequence[ServicePortInfo]) -> bool:
        """Take note of the service ports as they are now; whether entries must be looked through."""
        before, now = self._serving, _serving(ports)
        if now == before:
            return False
        self._serving = now
        gone: dict[Frontend, frozenset[End]] = {frontend: frozenset() for frontend in before if frontend not in now}
        self._wanted = {frontend: ends for frontend, ends in {**gone, **now}.items() if ends or self._forget_all}
        return bool(self._wanted)

    def __call__(self, flow: TrackedFlow) -> bool:
        """Whether the flow leads from a UDP front to something else than one of its serving endpoints."""
        ends = self._wanted.get(flow.destination)
        if ends is None:
            ends = self._wanted.get((None, flow.destination[1]))
        return ends is not None and flow.reply_source not in ends


def _serving(ports: Iterable[ServicePortInfo]) -> dict[Frontend, frozenset[End]]:
    """The endpoints that serve, whatever policy or topology says of them, by front."""
    found: dict[Frontend, frozenset[End]] = {}
    for port in ports:
        if port.protocol is Transport.UDP:
            ends = frozenset((each.address, each.port) for each in port.endpoints if each.serving)
            for address in (port.cluster_ip, *port.load_balancer_vips, *port.external_ips):
                found[address, port.port] = ends
            if port.node_port:
                found[None, port.node_port] = ends
    return found
