"""The sync loop of the embedded engine.

Owns ``EmbeddedEngine``: it follows the store, gathers changes, and reports which revision the kernel reflects. The
proxier of each family programs the kernel, each in its mode. ``Pace`` is kube-proxy's bounded frequency: it computes
times, in seconds of its caller's clock, and does not wait.

The store calls the loop at every change; the loop then takes all pending changes as soon as its pace allows. Four other
reasons make it run, as in kube-proxy. It retries refused rules after a sync period. It asks once a sync period whether
another program has flushed the rules (the canary chains of iptables are gone), and answers with a full sync. It answers
a change of the node's zone with a full sync. It runs a full sync once an hour, except in large clusters.

As kube-proxy does (``NodeManager`` in pkg/proxy/node.go), it takes the node's addresses once, when it starts. It waits
half a minute for a Node that is not there, and goes on without one. Since 1.37 it ends when its Node goes or gets other
addresses, and leaves it to a kubelet to start it again.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress
from proxylab.cluster.objects import EndpointSlice, Node, ObjectKey, Service
from proxylab.cluster.store import Event, Store
from proxylab.engines.embedded.categories import ports_without_local
from proxylab.engines.embedded.health import Health
from proxylab.engines.embedded.metrics import SyncMetrics
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ClusterView, ServicePortInfo
from proxylab.engines.embedded.proxier import Proxier, RulesLeftBehind, Synced, SyncFailedError
from proxylab.engines.embedded.settings import Periods
from proxylab.engines.protocol import ModeProcess
from proxylab.errors import EngineError
from proxylab.evidence.engine_progress import Progress
from proxylab.timing import Deadline, DeadlineExceededError, wait_until

BURST = 2
"""How many syncs may follow each other at once after a quiet time (pkg/proxy/iptables/proxier.go)."""
LOG_LINES = 1000


class Served(Struct, frozen=True):
    """What the rules in the kernel serve: the service ports of each family, on this node."""

    node: NodeFacts
    ports: Mapping[Family, Sequence[ServicePortInfo]] = field(default_factory=dict)


class Surroundings(Protocol):
    """The node around the rules: sysctls, connection tracking, HTTP servers."""

    async def open(self, health: Health, metrics: SyncMetrics) -> tuple[str, ...]:
        """Prepare the node before the first rule; returns a line for each server that fails. Raises ``EngineError``."""

    async def follow(self, served: Served) -> tuple[str, ...]:
        """Follow rules that have just been loaded; returns lines for the log."""

    def hold(self, *, answers: bool) -> None:
        """Keep the answers to requests back from now on, or give them again."""

    async def close(self) -> None:
        """Stop serving. Sysctls and rules stay, as kube-proxy leaves them."""


class Pace:
    """A token bucket: one more token every ``period`` seconds, ``BURST`` at most."""

    def __init__(self, period: float, now: float) -> None:
        self._period = period
        self._tokens = float(BURST)
        self._at = now

    def ready_at(self, now: float) -> float:
        """The first time from ``now`` on at which there is a token."""
        if not self._period:
            return now
        lacking = 1.0 - self._tokens - (now - self._at) / self._period
        return now + lacking * self._period if lacking > 1e-9 else now

    def take(self, now: float) -> None:
        """Take one token. A sync that must run without a token leaves a debt."""
        if self._period:
            self._tokens = min(float(BURST), self._tokens + (now - self._at) / self._period) - 1.0
        self._at = now


class Clock(Protocol):
    """A clock to wait by. Tests have one that they advance themselves."""

    def now(self) -> float:
        """Seconds since some fixed moment."""

    async def wait(self, event: asyncio.Event, until: float) -> None:
        """Return when ``event`` is set, or at ``until``."""


class MonotonicClock:
    """The kernel's monotonic clock."""

    def now(self) -> float:
        """Seconds of CLOCK_MONOTONIC."""
        return time.monotonic()

    async def wait(self, event: asyncio.Event, until: float) -> None:
        """Return when ``event`` is set, or at ``until``."""
        left = None if math.isinf(until) else max(0.0, until - self.now())
        try:
            async with asyncio.timeout(left):
                await event.wait()
        except TimeoutError:
            return


class _Outcome(Struct, frozen=True):
    """The last sync: the revision of the store it was for, and its failures."""

    revision: int
    failures: tuple[SyncFailedError, ...] = ()


class EmbeddedEngine:
    """The embedded engine in one node; implements ``proxylab.engines.protocol.Engine``.

    Args:
        node_name: its node, as Node objects and endpoints name it.
        mode: of its rules, as ``/proxyMode`` names it.
        proxiers: one for each family to serve, all of that mode.
        others: by mode, what proxies of other modes may have left. It would translate too, so the start removes it.
        interface_addresses: reads the addresses on the node's interfaces, loopback included. Every sync calls it, as
            kube-proxy does; only restricted ``node_port_addresses`` need it.
        node_address: the node's primary address in its family, in place of the Node object's (``bindAddress``).
        periods: how often the loop may run, and how often it must.
        processes: those of the proxiers, through which packets pass.
        allows_external_ips: the feature gate ``AllowServiceExternalIPs``.
        ends_with_node: whether it ends when its Node goes or gets other addresses.
        node_seconds: how long its start waits for a Node that is not there.
    """

    def __init__(
        self,
        node_name: str,
        store: Store,
        mode: str,
        proxiers: Mapping[Family, Proxier],
        *,
        others: Mapping[str, RulesLeftBehind],
        interface_addresses: Callable[[], Sequence[IPAddress]],
        node_address: IPAddress | None,
        periods: Periods,
        surroundings: Surroundings,
        processes: Sequence[ModeProcess] = (),
        allows_external_ips: bool = True,
        ends_with_node: bool = False,
        node_seconds: float = 0.0,
        clock: Clock | None = None,
    ) -> None:
        self._node_name = node_name
        self._store = store
        self._proxiers = proxiers
        self._others = others
        self._interface_addresses = interface_addresses
        self._node_address = node_address
        self._periods = periods
        self._surroundings = surroundings
        self._processes = processes
        self._allows_external_ips = allows_external_ips
        self._clock = clock or MonotonicClock()
        self._log: deque[str] = deque(maxlen=LOG_LINES)
        self._wake = asyncio.Event()
        self._newest_change = store.revision
        self._outcome: _Outcome | None = None
        self._syncing = asyncio.Lock()
        self._loaded = 0
        self._zone: str | None = None
        self._left_out: dict[str, None] = {}
        now = self._clock.now()
        self._pace = Pace(self._periods.least, now)
        self._retry_at = math.inf
        self._look_at = now + self._periods.sync
        self._full_at = now + self._periods.full
        self._stopped = False
        self._goes_on = asyncio.Event()
        self._goes_on.set()
        self._unsubscribe: Callable[[], None] = lambda: None
        self._follower: asyncio.Task[None] | None = None
        self.ends_with_node = ends_with_node
        self._node_seconds = node_seconds
        self._own: Node | None = None  # its Node as it was when it started
        self.has_given_up = False
        self.health = Health(tuple(proxiers), self._periods.sync)
        self.metrics = SyncMetrics(mode)

    async def start(self) -> None:
        """Load the rules for the cluster as it stands, then follow it. Raises ``EngineError``."""
        self._unsubscribe = self._store.subscribe(self._note)
        self._newest_change = self._store.revision
        name = f"engine on {self._node_name}"
        if self._node is None and self._node_seconds:
            self._follower = asyncio.create_task(self._follow_later(self._clock.now() + self._node_seconds), name=name)
            return
        try:
            await self._begin()
        except BaseException:
            self._unsubscribe()
            await self._surroundings.close()
            raise
        self._follower = asyncio.create_task(self._follow(), name=name)

    async def _begin(self) -> None:
        self._own = self._node
        await self._take_over()
        self._log.extend(await self._surroundings.open(self.health, self.metrics))
        self._raise_failures(await self._sync())

    async def _follow_later(self, until: float) -> None:
        """Wait for the Node before anything else."""
        while self._node is None and not self._stopped:
            if self._clock.now() >= until:
                self._log.append("timed out waiting for the Node to exist")
                self.has_given_up = True
                break
            await self._clock.wait(self._wake, until)
            self._wake.clear()
            await self._goes_on.wait()
        if not self._stopped:
            await self._begin()
            await self._follow()

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
            await follower  # Unless stop() ended it, it raises the bug that did.
            raise EngineError(self._node_name, "was stopped before it had synchronised", self._log_text())
        if self._outcome is not None:
            self._raise_failures(self._outcome)

    async def progress(self, deadline: Deadline) -> Progress:
        """How far it has come, once it is up to date or the deadline passes."""
        follower = self._follower
        with suppress(DeadlineExceededError):
            await wait_until(
                lambda: follower is None or follower.done() or self._reflects(self._newest_change),
                deadline,
                "rules that reflect all changes",
            )
        failures = () if self._outcome is None else self._outcome.failures
        return Progress(
            runs=follower is not None and not follower.done(),
            reflects=self._loaded if failures or self._has_changes else self._newest_change,
            due=self._newest_change,
            trouble="; ".join(f"{failure.what}: {failure.output}" for failure in failures),
        )

    async def dump(self) -> str:
        """The rules of every family in the kernel."""
        return "".join([await proxier.dump() for proxier in self._proxiers.values()])

    def logs(self) -> tuple[str, ...]:
        """The last lines of the log, oldest first."""
        return tuple(self._log)

    async def forgive(self) -> None:
        """Forget that the last sync failed: the next one decides, at once or after a sync period."""
        async with self._syncing:
            if self._outcome is not None and self._outcome.failures:
                self._outcome = None

    async def wait_ended(self, deadline: Deadline) -> None:
        """Return when it has ended by itself. Raises ``EngineError`` at the deadline."""
        follower = self._follower
        try:
            await wait_until(lambda: follower is None or follower.done(), deadline, "it ends, as its Node has changed")
        except DeadlineExceededError as late:
            raise EngineError(self._node_name, str(late), self._log_text()) from late

    async def drain(self, *, connections: bool) -> Mapping[str, int] | None:
        """Let the processes of the mode, if it has any, pass on all that they have; see ``Draining``."""
        if not self._processes:
            return None
        answers = [await process.drain(connections=connections) for process in self._processes]
        discarded = [each for each in answers if each is not None]
        if len(discarded) < len(self._processes):
            return None
        return {port: count for each in discarded for port, count in each.items()}

    async def raise_if_ended(self) -> None:
        """Raise ``EngineError`` if a process of the mode has ended: nothing starts another one before a change."""
        for process in self._processes:
            if process.ending:
                raise EngineError(self._node_name, process.ending, self._log_text())

    async def pause(self) -> None:
        """Follow nothing and answer nothing from now on, and stop the processes of the mode.

        A sync under way ends first: it began with the cluster as it was before.
        """
        self._goes_on.clear()
        self._surroundings.hold(answers=True)
        for process in self._processes:
            await process.pause()

    async def resume(self) -> None:
        """Go on after a pause, with all changes since then."""
        for process in self._processes:
            process.resume()
        self._surroundings.hold(answers=False)
        self._goes_on.set()

    async def stop(self) -> None:
        """Stop following. It waits for a load under way: iptables-restore must not end between two tables."""
        self._unsubscribe()
        self._stopped = True
        if not self._goes_on.is_set():
            await self.resume()
        self._wake.set()
        try:
            if self._follower is not None:
                await self._follower
        finally:
            await self._surroundings.close()

    async def _take_over(self) -> None:
        """Remove the rules of other modes, as kube-proxy does at its start (platformCleanup in cmd/kube-proxy/app)."""
        for family in self._proxiers:
            for mode, leftovers in self._others.items():
                if await leftovers.remove(family):
                    self._log.append(f"{family}: removed the rules of a proxy in mode {mode}")

    def _note(self, event: Event) -> None:
        # Pods affect rules through their EndpointSlices only.
        if not isinstance(event.object, Service | EndpointSlice | Node):
            return
        self._newest_change = event.revision
        if not isinstance(event.object, Node):
            self.metrics.changed("service" if isinstance(event.object, Service) else "endpoint")
        self._queued()
        self._wake.set()

    def _queued(self) -> None:
        self.health.queued(self._clock.now())
        for family in self._proxiers:
            self.metrics.queued(family, time.time())

    def _reflects(self, revision: int) -> bool:
        """Whether the last sync had every change up to ``revision`` that affects rules."""
        if self._outcome is None or self._store.revision < revision:
            return False
        return self._outcome.revision >= min(revision, self._newest_change)

    @property
    def _has_changes(self) -> bool:
        return self._outcome is None or self._newest_change > self._outcome.revision

    async def _follow(self) -> None:
        while True:
            allowed_at = self._pace.ready_at(self._clock.now()) if self._has_changes else math.inf
            await self._clock.wait(self._wake, min(allowed_at, self._retry_at, self._look_at, self._full_at))
            self._wake.clear()
            await self._goes_on.wait()
            if self._stopped or self._must_end:
                return
            now = self._clock.now()
            flushed = now >= self._look_at and await self._is_flushed(now)
            again = flushed or now >= self._retry_at
            due = self._has_changes and self._pace.ready_at(now) <= now
            if again or due or now >= self._full_at:
                async with self._syncing:
                    await self._sync(full=again)

    @property
    def _node(self) -> Node | None:
        found = self._store.get(ObjectKey("Node", "", self._node_name))
        return found if isinstance(found, Node) else None

    @property
    def _must_end(self) -> bool:
        """Whether its Node is not the one that it started with."""
        if not self.ends_with_node:
            return False
        before, now = (None if each is None else each.addresses for each in (self._own, self._node))
        if before != now:
            self._log.append("its Node has gone, or has other addresses")
        return before != now

    async def _is_flushed(self, now: float) -> bool:
        """Whether another program has flushed the tables. After a failed load the canaries may be missing anyway."""
        self._look_at = now + self._periods.sync
        if not math.isinf(self._retry_at):
            return False
        for family, proxier in self._proxiers.items():
            if not await proxier.is_intact():
                self._log.append(f"{family}: another program has flushed the rules")
                return True
        return False

    async def _sync(self, *, full: bool = False) -> _Outcome:
        """Sync every family with the store as it is now. One family's failure does not stop the others."""
        self._pace.take(self._clock.now())
        self.metrics.taken()
        revision = self._store.revision
        cluster = ClusterView.of(self._store, allows_external_ips=self._allows_external_ips)
        node = self._facts()
        moved, self._zone = self._zone not in (None, node.zone), node.zone
        hourly = self._clock.now() >= self._full_at
        if full or hourly:
            self._full_at = self._clock.now() + self._periods.full
        failures: list[SyncFailedError] = []
        left_out: dict[str, None] = {}
        for family, proxier in self._proxiers.items():
            # A large cluster skips the hourly full sync, as with kube-proxy.
            everything = full or moved or (hourly and not proxier.is_large)
            try:
                done = await self._sync_family(family, cluster, node, full=everything)
                self._log.append(f"revision {revision}: {done.what}")
                left_out |= dict.fromkeys(done.left_out)
            except SyncFailedError as failure:
                failures.append(failure)
                self.metrics.failed(family)
                self._log.append(f"revision {revision}: {failure.what}")
        self._log.extend(line for line in left_out if line not in self._left_out)
        self._left_out = left_out
        if not failures:
            served = Served(node, {family: proxier.ports for family, proxier in self._proxiers.items()})
            self._log.extend(await self._surroundings.follow(served))
        self._retry_at = self._clock.now() + self._periods.sync if failures else math.inf
        self._outcome = _Outcome(revision, tuple(failures))
        self._loaded = self._loaded if failures else revision
        if self._has_changes:
            self._queued()
        return self._outcome

    async def _sync_family(self, family: Family, cluster: ClusterView, node: NodeFacts, *, full: bool) -> Synced:
        began, clock = self._clock.now(), time.perf_counter()
        done = await self._proxiers[family].sync(cluster, node, full=full)
        self.health.synced(family, began, self._clock.now())
        self.metrics.synced(family, time.perf_counter() - clock, time.time(), full=done.full)
        for table, rules in done.rules.items():
            self.metrics.wrote(family, table, rules)
        self.metrics.without_local(family, *ports_without_local(self._proxiers[family].ports, node))
        return done

    def _facts(self) -> NodeFacts:
        node = self._node
        self.health.look_at(node)
        facts = NodeFacts.of(self._node_name, node, tuple(self._interface_addresses()), self._node_address)
        own = NodeFacts.of(self._node_name, self._own, primary=self._node_address)
        return replace(facts, addresses=own.addresses, pod_cidrs=own.pod_cidrs)

    def _raise_failures(self, outcome: _Outcome) -> None:
        if outcome.failures:
            what = "; ".join(failure.what for failure in outcome.failures)
            raise EngineError(self._node_name, what, "\n".join(failure.output for failure in outcome.failures))

    def _log_text(self) -> str:
        return "\n".join(self._log)
