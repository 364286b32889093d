"""The proxies' own processes, through which flows pass. ``Programs`` asks them what no sentinel packet can show.

A sentinel packet overtakes what waits in the socket of such a process, so it proves nothing about that. But a process
that can be asked passes every datagram on before it answers. What it sends shows at the tap of its node's stack. So
where an answer came and no tap saw anything new, the process holds nothing, and it has counted what it discarded.

Over TCP a process that waits for an endpoint goes on after a while, so it has something to do (``exchange``). What a
process has not sent on once it has nothing to do, it never will.
"""

from collections.abc import Awaitable, Callable, Mapping

from proxylab.addresses import Transport
from proxylab.evidence.evidence import Discarded
from proxylab.plan.resolved import ResolvedProbe

Drain = Callable[[str, bool], Awaitable[Mapping[str, int] | None]]
"""From a node, and whether it is about connections, to what its proxy has discarded."""


async def _cannot_be_asked(_node: str, _connections: bool) -> None:
    return None


class Programs:
    """The processes of all nodes.

    Args:
        nodes: those whose proxies end flows now.
        drain: lets the proxy of a node pass on all datagrams that it has, or end or open each connection. It returns
            how many datagrams it has discarded since it began, by service port; ``None`` where it cannot be asked, or
            is not done.
        at_loopback: nodes whose proxies end only connections to node ports at loopback addresses.
    """

    def __init__(
        self,
        nodes: Callable[[], tuple[str, ...]] = tuple,
        drain: Drain = _cannot_be_asked,
        at_loopback: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        self._nodes = nodes
        self._drain = drain
        self._at_loopback = at_loopback

    def on_the_way(self, resolved: ResolvedProbe) -> "Passage":
        """Those that a probe or stream may meet now."""
        to_loopback = resolved.destination.is_loopback and resolved.protocol is Transport.TCP
        nodes = (*self._nodes(), *(self._at_loopback() if to_loopback else ()))
        return Passage(tuple(node for node in nodes if node in resolved.nodes), self._drain, resolved.protocol)


class Passage:
    """The processes on the way of one probe or stream.

    Attributes:
        nodes: theirs.
        undrained: the nodes whose processes may still hold something.
    """

    def __init__(
        self,
        nodes: tuple[str, ...],
        drain: Drain,
        protocol: Transport,
    ) -> None:
        self.nodes = nodes
        self.undrained = nodes
        self._connections = protocol is Transport.TCP
        self._counts = protocol is Transport.UDP
        self._asked = nodes if protocol in (Transport.TCP, Transport.UDP) else ()
        self._drain = drain
        self._before: dict[tuple[str, str], int] = {}
        self._now: dict[tuple[str, str], int] = {}

    async def begin(self) -> None:
        """Remember what they have discarded, which are datagrams only."""
        if self._counts:
            await self.drain()
        self._before, self.undrained = self._now, self.nodes

    async def drain(self) -> bool:
        """Let them pass on all that they have. Returns whether each is done; false where there is none."""
        self._now = {}
        undrained = [node for node in self.nodes if node not in self._asked]
        for node in self._asked:
            discarded = await self._drain(node, self._connections)
            if discarded is None:
                undrained.append(node)
            else:
                self._now |= {(node, port): count for port, count in discarded.items()}
        self.undrained = tuple(undrained)
        return bool(self.nodes) and not undrained

    def discarded(self) -> tuple[Discarded, ...]:
        """How many datagrams they had discarded by the last drain since the beginning."""
        gained = {key: count - self._before.get(key, 0) for key, count in self._now.items()}
        return tuple(Discarded(*key, count) for key, count in gained.items() if count > 0)
