"""The sync loop of the embedded engine.

Owns: ``EmbeddedEngine``: following the store, gathering changes, and saying which revision the kernel reflects.
Must not: know how a mode programs the kernel (its proxiers do), or run processes.

The store calls back within whatever changes it; the loop then takes all that has gathered by its next turn. Changes
that arrive while a load runs are taken together afterwards.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lab.cluster.objects import EndpointSlice, Key, Node, Pod, Service
from lab.cluster.store import Event, Store
from lab.engines.embedded.iptables.proxier import IptablesProxier
from lab.engines.embedded.loader import RuleLoader
from lab.engines.embedded.node import NodeFacts
from lab.engines.embedded.ports import ClusterView
from lab.engines.embedded.proxier import Proxier, SyncFailedError
from lab.engines.embedded.settings import ProxySettings
from lab.errors import EngineError
from lab.ip import Family, IPAddress
from lab.timing import Deadline, DeadlineExceededError, wait_until

__all__ = ["EmbeddedEngine"]

LOG_LINES = 1000


@dataclass(frozen=True, slots=True)
class _Outcome:
    """How the last synchronisation went: the revision of the store it was for, and what went wrong with it."""

    revision: int
    failures: tuple[SyncFailedError, ...] = ()


class EmbeddedEngine:
    """The embedded engine in one node; keeps ``lab.engines.protocol.Engine``.

    Args:
        node_name: the node it serves, as Node objects and endpoints name it.
        store: the cluster it follows.
        loader: iptables in the node's namespace.
        settings: as ``KubeProxyConfiguration`` has them.
        families: those to serve; each has rules of its own.
        interface_addresses: what stands on the node's interfaces, loopback included. Asked at every synchronisation,
            as kube-proxy does; needed only where ``node_port_addresses`` are restricted.
    """

    def __init__(
        self,
        node_name: str,
        store: Store,
        loader: RuleLoader,
        settings: ProxySettings,
        *,
        families: Sequence[Family] = (Family.IPV4,),
        interface_addresses: Callable[[], Sequence[IPAddress]] = tuple,
    ) -> None:
        self._node_name = node_name
        self._store = store
        self._interface_addresses = interface_addresses
        self._proxiers: tuple[Proxier, ...] = tuple(IptablesProxier(family, loader, settings) for family in families)
        self._log: deque[str] = deque(maxlen=LOG_LINES)
        self._changed = asyncio.Event()
        self._newest_change = store.revision
        self._outcome: _Outcome | None = None
        self._stopped = False
        self._unsubscribe: Callable[[], None] = lambda: None
        self._follower: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load the rules for the cluster as it stands, then follow it. Raises ``EngineError``."""
        self._unsubscribe = self._store.subscribe(self._note)
        try:
            self._raise_failures(await self._sync())
        except BaseException:
            self._unsubscribe()
            raise
        self._follower = asyncio.create_task(self._follow(), name=f"engine on {self._node_name}")

    async def wait_synced(self, revision: int, deadline: Deadline) -> None:
        """Return once the kernel reflects ``revision`` or a later one. Raises ``EngineError``."""
        follower = self._follower
        if follower is None:
            raise EngineError(self._node_name, "does not run, so it cannot synchronise", self._log_text())
        why = f"rules that reflect revision {revision} of the store"
        try:
            await wait_until(lambda: follower.done() or self._reflects(revision), deadline, why)
        except DeadlineExceededError as late:
            raise EngineError(self._node_name, str(late), self._log_text()) from late
        if follower.done():
            await follower  # What ended it, if not stop(), is an error of ours.
            raise EngineError(self._node_name, "was stopped before it had synchronised", self._log_text())
        if self._outcome is not None:
            self._raise_failures(self._outcome)

    async def dump(self) -> str:
        """The rules of every family, as the kernel holds them."""
        return "".join([await proxier.dump() for proxier in self._proxiers])

    def logs(self) -> tuple[str, ...]:
        """The last lines of the log, oldest first."""
        return tuple(self._log)

    async def stop(self) -> None:
        """Follow no longer. A load under way is awaited: iptables-restore must not be cut off between two tables."""
        self._unsubscribe()
        self._stopped = True
        self._changed.set()
        if self._follower is not None:
            await self._follower

    def _note(self, event: Event) -> None:
        # Pods matter through their EndpointSlices only.
        if not isinstance(event.object, Pod):
            self._newest_change = event.revision
            self._changed.set()

    def _reflects(self, revision: int) -> bool:
        """Whether every change up to ``revision`` that matters to rules has been dealt with."""
        if self._outcome is None or self._store.revision < revision:
            return False
        return self._outcome.revision >= min(revision, self._newest_change)

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            if self._stopped:
                return
            await self._sync()

    async def _sync(self) -> _Outcome:
        """Bring every family in step with the store as it stands now. One family's failure does not stop the others."""
        self._changed.clear()
        revision = self._store.revision
        cluster = ClusterView(self._store.list(Service), self._store.list(EndpointSlice))
        node = self._facts()
        failures = []
        for proxier in self._proxiers:
            try:
                said = (await proxier.sync(cluster, node)).what
            except SyncFailedError as failure:
                failures.append(failure)
                said = failure.what
            self._log.append(f"revision {revision}: {said}")
        self._outcome = _Outcome(revision, tuple(failures))
        return self._outcome

    def _facts(self) -> NodeFacts:
        node = self._store.get(Key("Node", "", self._node_name))
        return NodeFacts.of(
            self._node_name, node if isinstance(node, Node) else None, tuple(self._interface_addresses())
        )

    def _raise_failures(self, outcome: _Outcome) -> None:
        if outcome.failures:
            what = "; ".join(failure.what for failure in outcome.failures)
            raise EngineError(self._node_name, what, "\n".join(failure.output for failure in outcome.failures))

    def _log_text(self) -> str:
        return "\n".join(self._log)
