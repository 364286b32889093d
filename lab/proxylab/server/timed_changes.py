"""Times in a lab how soon a proxy programs changes, and what connections take by its rules.

What shows that a change is programmed is a packet: a process of its own (``traffic.connection_timer``) dials a Service
meanwhile, until a connection reaches a server that the rules before did not lead to. So all proxies are timed alike,
and the lab reads no rules while they work. Only then it waits as it does in a step.

How long syncs took, a proxy says itself, by the metrics that kube-proxy and the embedded engines share.
"""

import asyncio
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import proxylab
from proxylab.cluster.objects import Node
from proxylab.encoding import decode, encode
from proxylab.errors import EngineError, ProgramError
from proxylab.evidence.stream_records import Exported
from proxylab.evidence.timings import ChangeTimes, ConnectionTimes, StartTimes, SyncTimes
from proxylab.kernel.sandbox.memory import kernel_bytes, resident_bytes
from proxylab.kernel.sandbox.netns import inside
from proxylab.kernel.sandbox.running import Attached, how_it_ended
from proxylab.protocol.messages import TimeChanges, TimeConnections, TimedChange, TimedDial, TimedPods, TimeStart
from proxylab.protocol.standing_labs import Attach
from proxylab.scenario.node_engines import EngineAction, EngineChange
from proxylab.server.lab import BuiltLab
from proxylab.server.step import read_exported
from proxylab.timing import Deadline

_COMMAND: Final = (sys.executable, "-m", "proxylab.traffic.connection_timer")
_NAME: Final = "the program that times connections"
_BACKLOG: Final = 4096
_LISTENERS_AT_ONCE: Final = 200
_LONGEST_ANSWER: Final = 1 << 26
_START_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 5.0
_CONNECTION_SECONDS: Final = 0.1
_ASK_SECONDS: Final = 10.0
_MOST_ERRORS: Final = 8192

_ALL: Final = "kubeproxy_sync_proxy_rules_duration_seconds"
_FULL: Final = "kubeproxy_sync_full_proxy_rules_duration_seconds"
_RESIDENT: Final = "process_resident_memory_bytes"
_NAMES: Final = (*(f"{name}_{part}" for name in (_ALL, _FULL) for part in ("count", "sum")), _RESIDENT)


async def time_start(lab: BuiltLab, request: TimeStart) -> StartTimes:
    """Time the start of an engine on a node without its rules.

    Raises:
        EngineError: it did not start, or packets did not meet its rules in time.
        ProgramError: the program that dials failed.
    """
    fleet, store, node = lab.control_plane.fleet, lab.control_plane.store, request.node
    for action in (EngineAction.STOP, EngineAction.FLUSH):
        await fleet.take_down({node: EngineChange(action=action)})
    for each in request.applied:
        store.apply(each)
    async with _timer(lab, request.pods) as timer:
        own, kernel = resident_bytes(), kernel_bytes()
        await timer.begin(request.dial)
        began = time.monotonic()
        await fleet.bring_up({node: EngineChange(action=EngineAction.START)})
        met = await _met(timer, lab, node, began)
    await fleet.wait_synced(store.revision, Deadline.after(fleet.sync_seconds))
    settled = time.monotonic() - began
    exported = await _exported(lab, node)
    resident = [int(each.value) for each in exported.samples if each.name == _RESIDENT]
    return StartTimes(
        ChangeTimes(met=met, settled=settled, full=_sync_times(exported, _FULL), syncs=_sync_times(exported, _ALL)),
        engine_bytes=max(resident, default=max(0, resident_bytes() - own)),
        kernel_bytes=max(0, kernel_bytes() - kernel),
    )


async def time_changes(lab: BuiltLab, request: TimeChanges) -> tuple[ChangeTimes, ...]:
    """Time changes, one after the other. Raises what ``time_start`` raises."""
    async with _timer(lab, request.pods) as timer:
        return tuple([await _timed(lab, request.node, timer, each) for each in request.changes])


async def time_connections(lab: BuiltLab, request: TimeConnections) -> ConnectionTimes:
    """Time connections, one after the other. Raises ``ProgramError``."""
    seconds = _START_SECONDS + _CONNECTION_SECONDS * len(request.to)
    async with _timer(lab, request.pods) as timer:
        order = {"connect": [(str(each.address), each.port) for each in request.to]}
        return decode(await timer.asked(order, Deadline.after(seconds)), ConnectionTimes)


async def _timed(lab: BuiltLab, node: str, timer: "_Timer", change: TimedChange) -> ChangeTimes:
    fleet, store = lab.control_plane.fleet, lab.control_plane.store
    before = await _exported(lab, node)
    if any(isinstance(each, Node) for each in change.applied):
        await fleet.note()
    if change.dial is not None:
        await timer.begin(change.dial)
    began = time.monotonic()
    for each in change.applied:
        store.apply(each)
    met = None if change.dial is None else await _met(timer, lab, node, began)
    await fleet.wait_synced(store.revision, Deadline.after(fleet.sync_seconds))
    settled, after = time.monotonic() - began, await _exported(lab, node)
    full, syncs = (_sync_times(after, name).since(_sync_times(before, name)) for name in (_FULL, _ALL))
    return ChangeTimes(met=met, settled=settled, full=full, syncs=syncs)


async def _met(timer: "_Timer", lab: BuiltLab, node: str, began: float) -> float:
    """The seconds from ``began`` to the first packet that met the new rules. Raises ``EngineError``.

    A proxy that ends connections chooses the endpoint after it has accepted one, which may have been dialled before.
    """
    seconds = lab.control_plane.fleet.sync_seconds
    try:
        return max(0.0, await timer.met(Deadline.after(seconds)) - began)
    except TimeoutError:
        await lab.raise_if_ended()
        log = "\n".join(lab.log(node))
        raise EngineError(node, f"no packet met its new rules within {seconds:g} s", log) from None


async def _exported(lab: BuiltLab, node: str) -> Exported:
    """The metrics of the engine of a node, once it rests: those of its last sync are there."""
    fleet = lab.control_plane.fleet
    await fleet.rest()
    page = fleet.chosen(node).configuration.metrics
    found = await read_exported(node, lab.netns(node), page, _NAMES, Deadline.after(_ASK_SECONDS))
    if found.problem:
        raise EngineError(node, f"it does not serve /metrics: {found.problem}", "\n".join(lab.log(node)))
    return found


def _sync_times(exported: Exported, name: str) -> SyncTimes:
    """The syncs of IPv4; those of all families where a version does not tell them apart."""
    found = {
        part: sum(
            each.value
            for each in exported.samples
            if each.name == f"{name}_{part}" and each.labels.get("ip_family", "IPv4") == "IPv4"
        )
        for part in ("count", "sum")
    }
    return SyncTimes(int(found["count"]), found["sum"])


class _Timer:
    """The running program, with the pods that listen, by number."""

    def __init__(
        self,
        servers: Sequence[str],
        running: Attached,
        errors: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._numbers = {name: number for number, name in enumerate(servers)}
        self._running = running
        self._reader = reader
        self._writer = writer
        self._errors = errors

    async def begin(self, dial: TimedDial) -> None:
        """Return once it dials. Raises ``ProgramError``."""
        order = {
            "dial": (str(dial.to.address), dial.to.port),
            "until": [self._numbers[name] for name in dial.servers],
        }
        await self.asked(order, Deadline.after(_START_SECONDS))

    async def met(self, deadline: Deadline) -> float:
        """When the first packet left that met the new rules. Raises ``TimeoutError`` or ``ProgramError``."""
        return float(decode(await self._line(deadline), dict[str, float])["met"])

    async def asked(self, order: Mapping[str, Any], deadline: Deadline) -> bytes:
        """The answer to an order. Raises ``ProgramError``."""
        try:
            self._writer.write(encode(order) + b"\n")
            await self._writer.drain()
            return await self._line(deadline)
        except (ConnectionError, TimeoutError) as error:
            raise ProgramError(_NAME, str(error) or "it does not answer in time", self._last_words()) from error

    async def _line(self, deadline: Deadline) -> bytes:
        async with asyncio.timeout(deadline.remaining):
            line = await self._reader.readline()
        if not line:
            with suppress(TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS):
                    await asyncio.shield(self._running.status)
            ended = how_it_ended(self._running.status.result()) if self._running.status.done() else "has hung up"
            raise ProgramError(_NAME, f"it {ended}", self._last_words())
        return line

    async def end(self) -> None:
        """Hang up, so that it ends."""
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()
        await self._running.hang_up(Deadline.after(_STOP_SECONDS))
        await asyncio.shield(self._running.status)

    def _last_words(self) -> str:
        return os.pread(self._errors, _MOST_ERRORS, 0).decode(errors="replace")


@asynccontextmanager
async def _timer(lab: BuiltLab, pods: TimedPods) -> AsyncIterator[_Timer]:
    """The program in the client's namespace, with sockets that listen at the servers, for the length of the block."""
    async with AsyncExitStack() as stack:
        ours, theirs = socket.socketpair()
        stack.callback(theirs.close)
        stack.callback(ours.close)
        ours.setblocking(False)
        errors = os.memfd_create("errors", os.MFD_CLOEXEC)
        stack.callback(os.close, errors)
        listeners = [stack.enter_context(_listening(lab, name, pods.port)) for name in pods.servers]
        running = await lab.attach(
            Attach(
                netns_name=pods.client,
                argv=(*_COMMAND, str(len(listeners))),
                environment={"PYTHONPATH": str(Path(proxylab.__file__).parents[1])},
            ),
            (theirs.fileno(), errors, errors),
        )
        theirs.close()  # or its end would not be seen
        for start in range(0, len(listeners), _LISTENERS_AT_ONCE):
            part = listeners[start : start + _LISTENERS_AT_ONCE]
            socket.send_fds(ours, [b"."], [each.fileno() for each in part])
        streams = await asyncio.open_connection(sock=ours, limit=_LONGEST_ANSWER)
        timer = _Timer(pods.servers, running, errors, *streams)
        stack.push_async_callback(timer.end)
        yield timer


def _listening(lab: BuiltLab, pod: str, port: int) -> socket.socket:
    """A socket that listens on all addresses of a pod."""
    netns = lab.netns(pod)
    with inside(netns):
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("0.0.0.0", port))  # noqa: S104 - of the pod
    listening.listen(_BACKLOG)
    return listening
