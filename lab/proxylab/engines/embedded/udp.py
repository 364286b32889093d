"""Which tracked UDP flows a proxy deletes.

Owns ``UdpReconciler``: the endpoints that flows of each frontend may lead to. A ``FlowTable`` reads and deletes the
entries.

UDP has no end of connection: while a client goes on sending, conntrack translates its flow as it did the first packet,
even to an endpoint that is gone. So after every change of UDP endpoints the proxy compares each entry with the serving
endpoints (pkg/proxy/conntrack/cleanup.go, since 1.32). It never touches TCP and SCTP, whose peers notice the end.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol

from proxylab.addresses import Family, IPAddress
from proxylab.addresses import Protocol as Transport
from proxylab.engines.embedded.ports import ServicePortInfo

End = tuple[IPAddress, int]
Frontend = tuple[IPAddress | None, int]
"""The dialled address and port; of a node port only the port, since any address may be the node's."""


class TrackedEntry(Protocol):
    """One entry of connection tracking."""

    @property
    def destination(self) -> End:
        """The address and port that the sender dialled."""

    @property
    def reply_source(self) -> End:
        """The address and port that answers."""


class FlowTable(Protocol):
    """Connection tracking of one node."""

    def forget_udp(self, family: Family, is_stale: "UdpReconciler") -> int:
        """Delete every UDP entry of the family for which ``is_stale`` is true; returns how many."""


class UdpReconciler:
    """Knows the UDP frontends of one family, now and before the last change.

    Args:
        which: the flows that the proxy deletes (``ProxySettings.forget_stale_udp``). kube-proxy 1.32 to 1.36.1 leaves
            those of Services that are gone or have no serving endpoint to time out (kubernetes#139629, #141371).
    """

    def __init__(self, which: Literal["always", "1.36", "deleted"] = "always") -> None:
        self._which = which
        self._serving: Mapping[Frontend, frozenset[End]] = {}
        self._wanted: dict[Frontend, frozenset[End]] = {}

    def update(self, ports: Sequence[ServicePortInfo]) -> bool:
        """Note the service ports of the last sync; returns whether the conntrack table may hold stale entries."""
        before, now = self._serving, _serving(ports)
        if now == before:
            return False
        self._serving = now
        gone: dict[Frontend, frozenset[End]] = {frontend: frozenset() for frontend in before if frontend not in now}
        judged = gone if self._which == "deleted" else {**gone, **now}
        self._wanted = {frontend: ends for frontend, ends in judged.items() if ends or self._which != "1.36"}
        return bool(self._wanted)

    def __call__(self, flow: TrackedEntry) -> bool:
        """Whether the flow leads from a UDP frontend to anything but one of its serving endpoints."""
        ends = self._wanted.get(flow.destination)
        if ends is None:
            ends = self._wanted.get((None, flow.destination[1]))
        return ends is not None and flow.reply_source not in ends


def _serving(ports: Iterable[ServicePortInfo]) -> dict[Frontend, frozenset[End]]:
    """The serving endpoints of each frontend, regardless of policy and topology."""
    found: dict[Frontend, frozenset[End]] = {}
    for port in ports:
        if port.protocol is Transport.UDP:
            ends = frozenset((each.address, each.port) for each in port.endpoints if each.serving)
            for address in (port.cluster_ip, *port.load_balancer_vips, *port.external_ips):
                found[address, port.port] = ends
            if port.node_port:
                found[None, port.node_port] = ends
    return found
