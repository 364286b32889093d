"""kube-proxy in one node: its process, its log, and when it has caught up."""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from msgspec import Struct

from proxylab.addresses import Family
from proxylab.engines.barrier import Barrier
from proxylab.engines.embedded.settings import Periods
from proxylab.engines.kubeproxy.log import Rest, is_error, last_error
from proxylab.engines.kubeproxy.metrics import SyncState
from proxylab.errors import EngineError
from proxylab.evidence.engine_progress import Progress
from proxylab.kernel.sandbox.running import Running, how_it_ended
from proxylab.text import shortened
from proxylab.timing import Deadline, DeadlineExceededError, wait_until, wait_until_seen, waiting_for

_LOG_LINES: Final = 1000
_LAST_LINES: Final = 30
_STOP_SECONDS: Final = 5.0
_ASK_SECONDS: Final = 0.5
"""How often a wait looks at kube-proxy's failure counters."""
_REST_SECONDS: Final = 30.0
"""A sync of mode ipvs took up to 48 s where twelve guests share two processors, and 1 s in a quiet guest."""
_NETWORKS_SECONDS: Final = 5.0
"""How long kube-proxy may take to read the ServiceCIDRs after its first sync."""
_OTHER_ZONE: Final = "of-no-node"
"""A zone for a moment, where a node without one is to cause a full sync."""
_GIVES_UP: Final = "Timed out waiting for node"
"""It goes on without a Node, half a minute after its start (NewNodeManager in pkg/proxy/node.go)."""
_STILL_SECONDS: Final = 2.0
"""How long kube-proxy may go on with what it has before the lab calls it busy."""


class KubeProxyNode(Struct, frozen=True, kw_only=True):
    """The node as this engine may act on it.

    Attributes:
        prepare: makes the API server listen in the node, and checks that the tools of kube-proxy are there.
        launch: starts kube-proxy; calls its argument with each line of output.
        reached: how far the rules of a family have come (``proxylab.engines.barrier.highest_number_in``).
        state: kube-proxy's sync metrics; ``None`` where it does not answer.
        zone: the zone label of the Node, empty where it has none or kube-proxy does not ask for it; ``None`` where the
            API has no such Node.
        serves: whether kube-proxy has health-check node ports to open.
        agrees: whether kube-proxy's /healthz and the API agree on whether the node is leaving.
        one_by_one: whether a sync writes the rules of one Service after the other, in an order that is not known.
        shows_ends: whether ``reached`` grows only once a sync is over with all that it does, and every sync is full.
        discarded: how many datagrams it has discarded since it began, by service port; ``None`` in other modes.
        took_up: whether it has synced with that zone of its Node, as far as the log shows it.
        knows_networks: whether its rules show that it has read the ServiceCIDRs, where it makes a rule of them.
        periods: its sync periods; ``full`` is that in which it syncs without a reason.
        ends_with_node: whether it ends when its Node goes or gets other addresses.
    """

    prepare: Callable[[], Awaitable[None]]
    launch: Callable[[Callable[[str], None]], Awaitable[Running]]
    reached: Callable[[Family], int]
    state: Callable[[], Awaitable[SyncState | None]]
    zone: Callable[[], str | None]
    move: Callable[[str], None]
    serves: Callable[[], bool]
    agrees: Callable[[], Awaitable[bool]]
    dump: Callable[[], Awaitable[str]]
    one_by_one: bool = False
    shows_ends: bool = False
    discarded: Callable[[], Mapping[str, int] | None] = lambda: None
    took_up: Callable[[str], bool] = lambda _zone: True
    knows_networks: Callable[[], bool] = lambda: True
    periods: Periods = Periods()
    ends_with_node: bool = False


class _Failed(Struct, frozen=True):
    """How many syncs had failed when the log had so many errors."""

    errors: int = 0
    failures: int = 0


class KubeProxyEngine:
    """A running kube-proxy; implements ``proxylab.engines.protocol.Engine``.

    Args:
        families: of the cluster. kube-proxy programs both where the kernel has IPv6, whatever these are.
    """

    def __init__(self, node: str, barrier: Barrier, families: Sequence[Family], node_of_proxy: KubeProxyNode) -> None:
        self._node = node
        self._barrier = barrier
        self._families = tuple(families)
        self._node_of_proxy = node_of_proxy
        self._log: deque[str] = deque(maxlen=_LOG_LINES)
        self._errors = 0
        self._failed = _Failed()
        self._rest = Rest(node_of_proxy.periods)
        self._running: Running | None = None
        self._synced = False
        self._before_flush: SyncState | None = None
        self._before_nodes: SyncState | None = None
        self._zone = ""
        self.has_given_up = False

    @property
    def ends_with_node(self) -> bool:
        """Whether it ends when its Node object goes or gets other addresses."""
        return self._node_of_proxy.ends_with_node

    async def start(self) -> None:
        """Start kube-proxy, which then follows the cluster.

        Raises:
            CapabilityError: the machine lacks a tool that kube-proxy needs.
            EngineError: the API server cannot listen in the node.
        """
        await self._node_of_proxy.prepare()
        self._failed = _Failed(self._errors)  # a new process counts from nothing
        self._rest.restart()
        self._running = await self._node_of_proxy.launch(self._hear)

    async def wait_synced(self, revision: int, deadline: Deadline) -> None:
        """Return once the rules in the kernel reflect the store at ``revision`` or later.

        kube-proxy runs one sync after the other. After the rules, a sync opens and closes health-check node ports and
        deletes the conntrack entries of UDP flows that have lost their endpoint. So where there are such ports, and
        after the first sync, where there may be such flows, the lab advances the barrier once more: rules for its
        second name mean that the previous sync is over. The first sync of a node needs this too if it may have missed
        something (``_take_up_missed``), and each one of mode userspace, which may write other Services after the
        barrier's.

        kube-proxy answers a changed zone of its Node with a full sync. A Node that is leaving shows only in /healthz,
        and a deleted Node nowhere. Missing rules lead to a full sync as well: in mode iptables the monitor finds them
        missing within the sync period; in mode nftables the next sync, which the barrier causes, fails and is retried
        after that period. In mode ipvs every sync is full, and the log shows its end (``kubeproxy.log``).

        Raises:
            EngineError: kube-proxy ended, could not load its rules, or did not catch up by the deadline.
        """
        shows_ends = self._node_of_proxy.shows_ends
        number = self._barrier.number_for(revision)
        flushed, nodes = self._before_flush, self._before_nodes
        self._before_flush = self._before_nodes = None
        if flushed is not None and shows_ends:
            number = self._barrier.advance_anyway()
        elif flushed is not None:
            await self._wait_for_full(flushed, deadline)
        known, self._zone = self._zone, self._zone if (zone := self._node_of_proxy.zone()) is None else zone
        if nodes is not None and self._zone != known:
            await self._wait_for_full(nodes, deadline, self._zone)
        if nodes is not None:
            await self._wait_for_health(deadline)
        await self._wait_for(number, deadline)
        missed = not self._synced and bool(self._zone or not self._node_of_proxy.knows_networks())
        if missed:
            await self._take_up_missed(self._zone, deadline)
            given_up = Deadline(min(deadline.at, Deadline.after(_NETWORKS_SECONDS).at))
            while not (self._node_of_proxy.knows_networks() or given_up.passed):
                await self._take_up_missed(self._zone, deadline)
        goes_on = self._synced or missed or self._node_of_proxy.one_by_one or self._node_of_proxy.serves()
        if goes_on and not shows_ends:
            await self._wait_for(self._barrier.advance_anyway(), deadline)
        self._synced = True

    async def progress(self, deadline: Deadline) -> Progress:
        """How far it has come, once it is up to date or the deadline passes. Flushed rules show no revision."""
        running = self._running
        ended = running is None or running.has_ended
        number = 0 if ended else self._barrier.number_for(self._barrier.newest)
        with suppress(DeadlineExceededError):
            await wait_until(
                lambda: running is None or running.has_ended or self._reached() >= number,
                deadline,
                "rules that reflect all changes",
            )
        reached, newest = self._reached(), self._barrier.newest
        up_to_date = 0 < number <= reached
        known = newest if up_to_date else self._barrier.revision_of(reached)
        return Progress(
            runs=running is not None and not running.has_ended,
            reflects=known if reached else None,
            due=newest,
            trouble="" if up_to_date else await self._trouble(running),
        )

    def _reached(self) -> int:
        return min(self._node_of_proxy.reached(family) for family in self._families)

    async def _trouble(self, running: Running | None) -> str:
        """How it ended, or the last error in its log."""
        if running is not None and running.has_ended:
            return f"kube-proxy {how_it_ended(await running.status)}"
        return next((line for line in reversed(self._log) if is_error(line)), "")

    async def note(self, *, flush: bool) -> None:
        """Note how far it has come: Nodes are about to change, or the lab is about to flush its rules."""
        state = await self._node_of_proxy.state() or SyncState()
        if flush:
            self._before_flush = state
        else:
            self._before_nodes = self._before_nodes or state

    async def rest(self) -> None:
        """Wait until no sync is under way or about to begin; not for long, as one that syncs on and on has no rest."""
        running = self._running
        with suppress(DeadlineExceededError):
            await wait_until(
                lambda: running is None or running.has_ended or self._rest.has_come,
                Deadline.after(self._node_of_proxy.periods.least + _REST_SECONDS),
                "kube-proxy at rest",
            )

    async def forgive(self) -> None:
        """Count no sync that has failed until now."""
        await self.rest()
        if (state := await self._node_of_proxy.state()) is not None:
            self._failed = _Failed(self._errors, state.failures)

    async def drain(self, *, connections: bool) -> Mapping[str, int] | None:
        """Let the process of mode userspace pass on all that it has; see ``Draining``.

        Nothing can be asked of it, but the kernel shows when it has nothing to do. It accepts no connection of a
        service port while it dials for another one.
        """
        running = self._running
        if running is None or running.has_ended:
            return self._node_of_proxy.discarded()
        with suppress(DeadlineExceededError):
            is_done = partial(running.is_still, awaits_nothing=connections)
            await wait_until(is_done, Deadline.after(_STILL_SECONDS), "kube-proxy has nothing to do")
            return self._node_of_proxy.discarded()
        return None

    async def dump(self) -> str:
        """The rules of every family in the kernel."""
        return await self._node_of_proxy.dump()

    def logs(self) -> tuple[str, ...]:
        """The last lines of kube-proxy's log, oldest first."""
        return tuple(self._log)

    async def stop(self) -> None:
        """End kube-proxy. Its rules stay, as they do when it dies."""
        if self._running is not None:
            await self._running.stop(Deadline.after(_STOP_SECONDS))

    async def pause(self) -> None:
        """Stop kube-proxy by SIGSTOP, and return when all its threads are stopped. Its rules stay."""
        if self._running is not None:
            await self._running.pause(Deadline.after(_STOP_SECONDS))

    async def resume(self) -> None:
        """Let kube-proxy go on."""
        if self._running is not None:
            self._running.resume()

    async def raise_if_ended(self) -> None:
        """Raise ``EngineError`` if kube-proxy has ended."""
        if self._running is not None and self._running.has_ended:
            await self._report_end(self._running)

    async def wait_ended(self, deadline: Deadline) -> None:
        """Return when kube-proxy has ended by itself. Raises ``EngineError`` at the deadline."""
        running = self._running
        try:
            await wait_until(
                lambda: running is None or running.has_ended, deadline, "kube-proxy ends, as its Node has changed"
            )
        except DeadlineExceededError as late:
            raise EngineError(self._node, str(late), self._last_lines()) from late

    async def kill(self) -> None:
        """Kill kube-proxy, which then cleans up nothing."""
        if self._running is not None:
            await self._running.kill()

    async def _wait_for(self, number: int, deadline: Deadline) -> None:
        running = self._running
        if running is None:
            raise EngineError(self._node, "does not run, so it cannot synchronise", "")

        def is_over() -> bool:
            return running.has_ended or all(self._node_of_proxy.reached(family) >= number for family in self._families)

        before, why = await self._failures_so_far(), f"kube-proxy on {self._node} has rules that reflect all changes"
        with waiting_for(why):
            while not is_over():
                if deadline.passed:
                    what = "kube-proxy did not catch up in time: its rules do not reflect all changes"
                    raise EngineError(self._node, what, self._last_lines())
                with suppress(DeadlineExceededError):
                    await wait_until(is_over, Deadline(min(deadline.at, Deadline.after(_ASK_SECONDS).at)), why)
                    break
                state = await self._node_of_proxy.state()
                if state is not None and state.failures > before:
                    log = self._last_lines()
                    said = last_error(log)
                    what = f"kube-proxy could not load its rules{said and f': {said}'}"
                    raise EngineError(self._node, what, log)
        if running.has_ended:
            await self._report_end(running)

    async def _wait_for_full(self, before: SyncState, deadline: Deadline, zone: str | None = None) -> None:
        """Wait for full syncs since ``before``; some may have begun with an earlier zone of the Node."""
        running = self._running

        async def look() -> bool:
            if running is None or running.has_ended:
                return True
            state = await self._node_of_proxy.state()
            if state is None or not state.is_full_since(before, len(self._families)):
                return False
            return zone is None or self._node_of_proxy.took_up(zone)

        try:
            await wait_until_seen(look, deadline, "a full sync of kube-proxy")
        except DeadlineExceededError as late:
            raise EngineError(self._node, str(late), self._last_lines()) from late

    async def _take_up_missed(self, zone: str, deadline: Deadline) -> None:
        """Change the zone of the Node and set it again, and wait for the full sync that follows each change.

        From 1.34 on kube-proxy may miss the zone at its start, and then has none until the zone changes. The informer
        of its Node already runs when kube-proxy adds the handler for zones (NodeTopologyConfig in
        pkg/proxy/config/config.go, Run in cmd/kube-proxy/app/server.go), so events before that are lost.

        In mode nftables it reads the ServiceCIDRs by an informer that its first sync does not wait for, and makes a
        rule of them in full syncs alone (OnServiceCIDRsChanged and setupNFTables in pkg/proxy/nftables/proxier.go). So
        where the informer is late, packets to addresses that no Service has pass untranslated until the next full
        sync, up to an hour. A changed ServiceCIDR has the same fate. A proxy that never makes the rule is judged as it
        is.
        """
        for each in ("" if zone else _OTHER_ZONE, zone):
            before = await self._node_of_proxy.state() or SyncState()
            self._node_of_proxy.move(each)
            await self._wait_for_full(before, deadline, each)

    async def _wait_for_health(self, deadline: Deadline) -> None:
        running = self._running

        async def look() -> bool:
            return running is None or running.has_ended or await self._node_of_proxy.agrees()

        try:
            await wait_until_seen(look, deadline, "kube-proxy's /healthz to agree with the API on its node")
        except DeadlineExceededError as late:
            raise EngineError(self._node, str(late), self._last_lines()) from late

    def _hear(self, line: str) -> None:
        self._log.append(shortened(line))
        self._rest.hear(line)
        self.has_given_up |= _GIVES_UP in line
        self._errors += is_error(line)

    async def _failures_so_far(self) -> int:
        """How many syncs have failed. Each failure logs an error: without a new one, the last count holds."""
        errors = self._errors
        if errors != self._failed.errors and (state := await self._node_of_proxy.state()) is not None:
            self._failed = _Failed(errors, state.failures)
        return self._failed.failures

    async def _report_end(self, running: Running) -> None:
        status = await running.status
        await running.drained()
        raise EngineError(self._node, f"kube-proxy {how_it_ended(status)}", self._last_lines())

    def _last_lines(self) -> str:
        return "\n".join(list(self._log)[-_LAST_LINES:])
