"""The engines of one lab, one in each node."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from proxylab.addresses import IPAddress
from proxylab.cluster.objects import Node
from proxylab.engines.engine_names import mode_of
from proxylab.engines.modes import MODES
from proxylab.engines.protocol import (
    Draining,
    Engine,
    EngineChoice,
    Forgiving,
    Killable,
    Mortal,
    NodeBound,
    Noting,
    Resting,
)
from proxylab.errors import InternalError
from proxylab.scenario.node_engines import EngineAction, EngineChange
from proxylab.timing import Deadline, together

Addresses = tuple[IPAddress, ...] | None
"""Those of a Node object; ``None`` where there is none."""

_SAME: Final[Mapping[str, EngineChoice]] = MappingProxyType({})


class Fleet:
    """The engines of all nodes.

    Args:
        chosen: the engine of each node at first, in the order of the nodes.
        make: makes the engine of a node, not yet started.
        flush: removes the rules of a node in a mode without its engine's knowledge.
        seen: the revision of the store that the engines follow, for one of the lab's store.
        sync_seconds: how long a sync may take; by default what the slowest mode needs on a busy machine.
        nodes: the Node objects that the engines see, by name.
    """

    def __init__(
        self,
        chosen: Mapping[str, EngineChoice],
        make: Callable[[str, EngineChoice], Engine],
        flush: Callable[[str, str], Awaitable[None]],
        seen: Callable[[int], int] = lambda revision: revision,
        sync_seconds: float | None = None,
        nodes: Callable[[], Mapping[str, Node]] = dict,
    ) -> None:
        self._make = make
        self._flush = flush
        self._seen = seen
        self._sync_seconds = sync_seconds
        self._chosen = dict(chosen)
        self.engines = {node: make(node, choice) for node, choice in chosen.items()}
        """The latest engine of each node, whether or not it runs."""
        self._running: set[str] = set()
        self._paused: set[str] = set()
        self._nodes = nodes
        self._known: dict[str, Addresses] = {}  # those of the Nodes that engines began with, or have waited for
        self._outdated: set[str] = set()  # nodes whose paused engine ends as soon as it goes on

    @property
    def sync_seconds(self) -> float:
        """How long the engines may take where the scenario says nothing of it."""
        return self._sync_seconds or max(MODES[self.mode(node)].sync_seconds for node in self._chosen)

    def chosen(self, node: str) -> EngineChoice:
        """What a node's latest engine is, and how it is configured."""
        return self._chosen[node]

    def mode(self, node: str) -> str:
        """The mode of a node's latest engine."""
        return mode_of(self._chosen[node].name)

    def runs(self, node: str) -> bool:
        """Whether the engine of a node runs."""
        return node in self._running

    async def start(self, nodes: Iterable[str]) -> None:
        """Start the engines of these nodes. Raises ``EngineError``; ``stop`` then stops those that run."""
        await together(self._start(node) for node in nodes)

    async def stop(self) -> None:
        """Stop every engine that runs. One that fails to stop does not keep the others from closing what they have."""
        ends = await asyncio.gather(*map(self._stop, tuple(self._running)), return_exceptions=True)
        for failure in filter(None, ends):
            raise failure

    async def wait_synced(self, revision: int, deadline: Deadline, nodes: Iterable[str] | None = None) -> None:
        """Return once these engines, or all that run and are not paused, have programmed ``revision``.

        Raises ``EngineError``.
        """
        which, seen = tuple(self._following) if nodes is None else nodes, self._seen(revision)
        await together(self.engines[node].wait_synced(seen, deadline) for node in which)

    async def raise_if_ended(self) -> None:
        """Raise ``EngineError`` if a proxy's process has ended that no step ended: its rules stay as they are."""
        for node in tuple(self._running):
            engine = self.engines[node]
            if isinstance(engine, Mortal):
                await engine.raise_if_ended()

    async def rest(self) -> None:
        """Return once no engine is about to load rules without a change, as a probe's counters need it."""
        resting = (self.engines[node] for node in self._following)
        await together([engine.rest() for engine in resting if isinstance(engine, Resting)])

    async def drain(self, node: str, connections: bool) -> Mapping[str, int] | None:
        """Let the proxy of a node pass on all that it has; see ``Draining``."""
        engine = self.engines[node]
        return await engine.drain(connections=connections) if isinstance(engine, Draining) else None

    async def note(self) -> None:
        """Let every engine that follows the cluster note how far it has come; called before Nodes change."""
        await together(self._note(node, flush=False) for node in tuple(self._following))

    async def take_down(self, changes: Mapping[str, EngineChange]) -> None:
        """Do to each node's engine what ends it, its rules or its work: kill, stop, half of restart, flush, pause."""
        await together(self._take_down(node, change) for node, change in changes.items())

    async def bring_up(self, changes: Mapping[str, EngineChange], chosen: Mapping[str, EngineChoice] = _SAME) -> None:
        """Start a new engine where the change says so, or resume it. It is not synchronised yet when this returns.

        ``chosen`` are the engines of nodes that get another one than they had.

        Raises:
            EngineError: one did not start.
        """
        await together(
            self._start_anew(node, chosen.get(node, self._chosen[node]))
            for node, change in changes.items()
            if change.begins
        )
        await together(self._resume(node) for node, each in changes.items() if each.action is EngineAction.RESUME)

    async def forgive(self, node: str) -> None:
        """Let the engine of a node, if it runs, retry what it could not load, since loads work again."""
        engine = self.engines[node]
        if node in self._following and isinstance(engine, Forgiving):
            await engine.forgive()

    async def follow_nodes(self) -> None:
        """Start engines anew that end since their Node has gone or has other addresses, as a kubelet does at once.

        An engine without a Node waits for one. Raises ``EngineError``.
        """
        nodes = self._nodes()
        await together(self._follow_node(name, _addresses_of(nodes.get(name))) for name in tuple(self._running))

    async def _follow_node(self, name: str, addresses: Addresses) -> None:
        engine, before = self.engines[name], self._known.get(name)
        if not isinstance(engine, NodeBound) or not engine.ends_with_node or addresses == before:
            return
        self._known[name] = addresses
        if before is None and not engine.has_given_up:
            return
        if name in self._paused:
            self._outdated.add(name)
        else:
            await self._restart(name, engine)

    async def _restart(self, name: str, engine: NodeBound) -> None:
        await engine.wait_ended(Deadline.after(self.sync_seconds))
        await self._stop(name)
        await self._start_anew(name, self._chosen[name])

    async def _take_down(self, node: str, change: EngineChange) -> None:
        match change.action:
            case EngineAction.KILL:
                await self._stop(node, killed=True)
            case EngineAction.FLUSH:
                if self.runs(node):
                    await self._note(node, flush=True)
                await self._flush(node, self.mode(node))
            case EngineAction.PAUSE:
                await self.engines[node].pause()
                self._paused.add(node)
            case _ if change.ends:
                await self._stop(node)

    @property
    def _following(self) -> set[str]:
        """The nodes whose engine follows the cluster: it runs, is not paused, and does not wait for its Node."""
        return {each for each in self._running - self._paused if each not in self._known or self._known[each]}

    async def _resume(self, node: str) -> None:
        if node in self._paused:
            self._paused.remove(node)
            engine = self.engines[node]
            await engine.resume()
            if node in self._outdated and isinstance(engine, NodeBound):
                self._outdated.remove(node)
                await self._restart(node, engine)

    async def _note(self, node: str, *, flush: bool) -> None:
        engine = self.engines[node]
        if isinstance(engine, Noting):
            await engine.note(flush=flush)

    async def _start_anew(self, node: str, choice: EngineChoice) -> None:
        """A new proxy inherits nothing from the one before it but the rules in the kernel."""
        if self.runs(node):
            raise InternalError(f"the engine of {node} runs already")
        self.engines[node], self._chosen[node] = self._make(node, choice), choice
        await self._start(node)

    async def _start(self, node: str) -> None:
        self._running.add(node)
        engine = self.engines[node]
        if isinstance(engine, NodeBound) and engine.ends_with_node:
            self._known[node] = _addresses_of(self._nodes().get(node))
        await engine.start()

    async def _stop(self, node: str, *, killed: bool = False) -> None:
        """Stop the engine of a node. An engine without a process of its own cannot be killed, only stopped."""
        if not self.runs(node):
            return
        self._outdated.discard(node)
        if not killed:
            await self._resume(node)  # a stopped process does not act on SIGTERM
        self._paused.discard(node)
        self._running.remove(node)
        self._known.pop(node, None)
        engine = self.engines[node]
        await (engine.kill() if killed and isinstance(engine, Killable) else engine.stop())


def _addresses_of(node: Node | None) -> Addresses:
    return None if node is None else node.addresses
