"""The event loop of a lab process, which carries out the requests of its clients.

``serve`` greets the client with ``Ready``. The first request is ``Build``, which makes a ``BuiltNetwork`` and a
``BuiltLab`` on it; ``server.lab`` carries out most of the others. ``server.client_connections`` receives requests and
returns answers.

The loop ends with its client unless its lab is detached. It reads no files of the user.
"""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from proxylab.engines.engine_names import IPTABLES_VARIANTS
from proxylab.errors import LAUNCHER_ENDED, EngineError, InternalError, LabError, ProgramError
from proxylab.kernel.capabilities import examine
from proxylab.kernel.netfilter.iptables_tool import IptablesVariant, choose_iptables
from proxylab.kernel.netlink.cleanup import Cleanup
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.launcher_child import LauncherEnds
from proxylab.kernel.sandbox.leftovers import ClosedLab, HeldResources, leftovers
from proxylab.kernel.sandbox.memory import give_back
from proxylab.kernel.sandbox.origins import Origins
from proxylab.protocol.channel import AsyncChannel
from proxylab.protocol.faults import fault_of
from proxylab.protocol.messages import (
    Advance,
    AnyResponse,
    Build,
    BuildStage,
    Built,
    Close,
    CollectState,
    Conclude,
    Converse,
    Dump,
    Examine,
    Execute,
    Executed,
    Failed,
    Inspect,
    LookAround,
    LookUp,
    PresentLab,
    Ready,
    Request,
    Response,
    SendProbe,
    SendTogether,
    TimeChanges,
    TimeConnections,
    TimeStart,
)
from proxylab.protocol.standing_labs import (
    AnyRequest,
    Detach,
    End,
    Feed,
    FeedAnswer,
    Greet,
    Greeted,
    LabRecord,
    ListObjects,
    Remember,
)
from proxylab.resource_limits import check_descriptors, limit_reached
from proxylab.server.client_connections import accept_clients, first_of, serve_client
from proxylab.server.feeds import Signals, feed
from proxylab.server.lab import BuiltLab
from proxylab.server.network import BuiltNetwork
from proxylab.server.timed_changes import time_changes, time_connections, time_start
from proxylab.timing import Deadline, DeadlineExceededError, wait_while_fewer

_GONE_SECONDS: Final = 5.0
_CLEANUP_SECONDS: Final = 20.0


class Detachment:
    """Whether and for how long a lab is detached. A lab is attached until ``Detach`` comes."""

    def __init__(self) -> None:
        self._record: LabRecord | None = None
        self._ends_at: float | None = None
        self._opened = asyncio.Event()
        self._ended = asyncio.Event()

    def answer(self, request: Detach | Remember | End) -> LabRecord | None:
        """Carry out a request. Raises ``InternalError`` where the lab is not detached."""
        match request:
            case Detach(record, seconds):
                self._record = record
                self._ends_at = None if seconds is None else time.monotonic() + seconds
                self._opened.set()
                return None
            case Remember(record):
                if record is not None:
                    self._record = record
                return self._known()
            case End():
                self._known()
                self._ended.set()
                return None

    def greeting(self, *, busy: bool, trouble: str) -> Greeted:
        """The lab's state in short."""
        record = self._known()
        return Greeted(
            name=record.name,
            file=str(Path(record.directory) / record.scenario.file),
            case=record.scenario.case.id,
            engine=record.engine.name,
            binary=record.engine.binary,
            age=max(0.0, time.time() - record.began),
            left=None if self._ends_at is None else max(0.0, self._ends_at - time.monotonic()),
            busy=busy,
            trouble=trouble,
        )

    async def wait_until_over(self) -> None:
        """Return when its time is over: at once, unless it outlives its first client."""
        if self._ends_at is None:
            return
        loop = asyncio.get_running_loop()
        timer = loop.call_at(loop.time() + self._ends_at - time.monotonic(), self._ended.set)
        try:
            await self._ended.wait()
        finally:
            timer.cancel()

    async def wait_until_detached(self) -> None:
        """Return when ``Detach`` has come."""
        await self._opened.wait()

    async def wait_until_ended(self) -> None:
        """Return when ``End`` has come."""
        await self._ended.wait()

    def _known(self) -> LabRecord:
        if self._record is None:
            raise InternalError("this lab is not detached: Detach comes first")
        return self._record


def serve(
    client: socket.socket, launcher: LauncherEnds, control_socket: socket.socket | None = None, *, rootless: bool
) -> None:
    """Serve the client until it hangs up, until SIGTERM, or until the launcher is gone.

    With a ``control_socket``, the client may detach the lab (``proxylab.protocol.standing_labs.Detach``): then other
    clients connect there.
    """
    if asyncio.run(_serve(client, launcher, control_socket, rootless=rootless)):
        sys.exit(LAUNCHER_ENDED)


async def _serve(
    client: socket.socket, ends: LauncherEnds, control_socket: socket.socket | None, *, rootless: bool
) -> bool:
    """Serve; returns whether the launcher's end was the reason to end."""
    origins = Origins()
    origins.watch()
    launcher = Launcher(ends)
    launcher.attach()
    terminated = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminated.set)
    handler = _RequestHandler(launcher, origins)
    channel = AsyncChannel(client)
    await channel.send(
        Ready(
            os.getpid(),
            os.uname().release,
            rootless,
            confined=ends.confined,
            refused=ends.refused,
            bounds=ends.bounds,
        )
    )
    try:
        await first_of(
            _serve_first_client(channel, handler),
            _serve_later_clients(control_socket, handler),
            terminated.wait(),
            launcher.gone.wait(),
        )
        return launcher.gone.is_set()
    finally:
        handler.leave()


async def _serve_first_client(channel: AsyncChannel, handler: "_RequestHandler") -> None:
    """Serve the first client; then, if the lab is detached, wait for the end of its time."""
    await serve_client(channel, handler)
    await handler.detachment.wait_until_over()


async def _serve_later_clients(control_socket: socket.socket | None, handler: "_RequestHandler") -> None:
    """Once the lab is detached, serve other clients until one of them ends it."""
    await handler.detachment.wait_until_detached()
    if control_socket is None:
        raise InternalError("a lab without a control socket was detached")
    await first_of(accept_clients(control_socket, handler), handler.detachment.wait_until_ended())


def _owned(error: Exception, request: AnyRequest) -> LabError:
    """The error with its owner: the machine if one of its limits is the cause. Raises the lab's own bugs."""
    lacking = limit_reached(error, in_lab=True)
    if lacking is not None:
        return lacking
    match error:
        case LabError():
            return error
        case TimeoutError():
            return InternalError(f"{type(request).__name__}: {error}")
        case _:
            raise error


async def _look_around(lab: BuiltLab) -> PresentLab:
    return PresentLab(lab.runner.plan, lab.objects())


async def _execute(lab: BuiltLab, request: Execute) -> Executed:
    done = await lab.execute(request.netns_name, request.argv, Deadline.after(request.seconds))
    return Executed(done.status, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


RequestT = TypeVar("RequestT", bound=Request[Any])
_CarryOut = Callable[[BuiltLab, Any], Awaitable[object]]


def _by(
    request: type[RequestT], carry_out: Callable[[BuiltLab, RequestT], Awaitable[object]]
) -> tuple[type, _CarryOut]:
    return request, carry_out


_OF_LAB: Final[Mapping[type, _CarryOut]] = dict(
    (
        _by(Advance, lambda lab, asked: lab.advance(asked)),
        _by(Conclude, lambda lab, asked: lab.step_runner.conclude(tables=asked.tables, metrics=asked.metrics)),
        _by(SendProbe, lambda lab, asked: lab.send(asked.resolved, trace=asked.trace)),
        _by(SendTogether, lambda lab, asked: lab.send_together(asked.probes)),
        _by(LookUp, lambda lab, asked: lab.ask(asked.netns_name, asked.query, Deadline.after(asked.seconds))),
        _by(Converse, lambda lab, asked: lab.converse(asked.dialogue)),
        _by(Dump, lambda lab, asked: lab.dump(asked.node)),
        _by(CollectState, lambda lab, _: lab.collect_state()),
        _by(Inspect, lambda lab, _: lab.control_plane.inspect()),
        _by(LookAround, lambda lab, _: _look_around(lab)),
        _by(ListObjects, lambda lab, _: lab.listed()),
        _by(Execute, _execute),
        _by(TimeStart, time_start),
        _by(TimeChanges, time_changes),
        _by(TimeConnections, time_connections),
    )
)
"""What carries out each request that needs a lab, and returns the answer."""


class _RequestHandler:
    """Carries out requests, and owns the lab."""

    def __init__(
        self, launcher: Launcher, origins: Origins | None = None, *, gone_seconds: float = _GONE_SECONDS
    ) -> None:
        self._launcher = launcher
        self._origins = origins or Origins()
        self._gone_seconds = gone_seconds
        self._variants: dict[str, IptablesVariant] = {}
        self._lab: BuiltLab | None = None
        self._labs = 0
        self._ended_labs = 0
        self._closed_labs: list[ClosedLab] = []
        self._before: HeldResources | None = None
        self._cleanup = Cleanup()
        self._turn = asyncio.Lock()
        self.detachment = Detachment()

    async def answer(self, request: AnyRequest) -> AnyResponse:
        """Carry out one request in its turn; an error becomes ``Failed``."""
        try:
            match request:
                case Greet():
                    trouble = await self._trouble()
                    return Response(self.detachment.greeting(busy=self._turn.locked(), trouble=trouble))
                case Detach() | Remember() | End():
                    return Response(self.detachment.answer(request))
                case _:
                    async with self._turn:
                        return Response(await self._answer(request))
        except (LabError, OSError, MemoryError, RuntimeError) as error:
            return Failed(fault_of(_owned(error, request)))

    async def _trouble(self) -> str:
        """Which process of a proxy or of the control plane has ended, in one line; empty if none has."""
        try:
            if self._lab is not None:
                await self._lab.raise_if_ended()
        except EngineError as error:
            return f"{error.node}: {error.what}"
        except ProgramError as error:
            return f"{error.program} {error.what}"
        return ""

    async def feed(
        self, request: Feed, descriptors: Sequence[int], signals: Signals
    ) -> AsyncGenerator[FeedAnswer, None]:
        """The answers to a feed, concurrent with other requests."""
        try:
            async with aclosing(feed(request, self._current_lab(), descriptors, signals)) as answers:
                async for each in answers:
                    yield each
        except (LabError, OSError, MemoryError, RuntimeError) as error:
            yield Failed(fault_of(_owned(error, request)))

    async def _answer(self, request: AnyRequest) -> object:
        if (of_lab := _OF_LAB.get(type(request))) is not None:
            return await of_lab(self._current_lab(), request)
        match request:
            case Build():
                return await self._build(request)
            case Examine(names):
                return await examine(self._launcher, names)
            case Close():
                await self._close()
                return None
            case _:
                raise InternalError(f"{type(request).__name__} came without a feed that it could be for")

    async def _iptables(self, asked: str) -> IptablesVariant:
        """The variant of that name, or the best one; chosen once."""
        if asked not in self._variants:
            tried = (asked,) if asked else IPTABLES_VARIANTS
            self._variants[asked] = await choose_iptables(self._launcher, tried)
        return self._variants[asked]

    async def _build(self, request: Build) -> Built:
        check_descriptors(len(request.plan.namespaces))
        variant = await self._iptables(request.engine.iptables)
        await self._wait_until_gone()
        self._before = self._before or HeldResources.take()
        began = time.monotonic()
        self._labs += 1
        network = BuiltNetwork.build(self._labs, request.plan, self._launcher)
        for namespace in request.plan.namespaces:
            netns_name = f"{network.number}/{namespace.name}"
            self._launcher.furnish(netns_name, request.resolv_confs.get(namespace.name, ""))
        laid = BuildStage("network", time.monotonic() - began)
        try:
            lab = await BuiltLab.build(request, self._launcher, variant, network, laid)
        except BaseException:
            self._closed_labs.append(network.close(self._cleanup))
            raise
        before, self._lab = self._lab, lab
        if before is not None:
            await self._end(before)
        return Built(variant.version, lab.stages, os.uname().release, lab.kubernetes is not None)

    async def _close(self) -> None:
        lab, self._lab = self._lab, None
        if lab is not None:
            await self._end(lab)
        await self._wait_until_gone()
        if self._before is not None:
            await self._expect_none(partial(self._before.since, self._origins), "all labs were closed")
        await self._cleanup.finish(_CLEANUP_SECONDS)

    def leave(self) -> None:
        """Close the taps of a lab that was not closed; the end of the process takes the rest of it.

        A process that ends closes its packet sockets one after another (see ``proxylab.traffic.watch``).
        """
        if self._lab is not None:
            self._lab.network.watch.close()

    async def _end(self, lab: BuiltLab) -> None:
        try:
            await lab.stop()
        finally:
            self._closed_labs.append(lab.network.close(self._cleanup))
            self._ended_labs += 1
            give_back(self._ended_labs)

    async def _wait_until_gone(self) -> None:
        """Wait until nothing uses the closed labs any more; usually that was long ago. Raises ``InternalError``."""
        closed, self._closed_labs = self._closed_labs, []
        for lab in closed:
            await self._expect_none(partial(leftovers, lab, self._origins), f"{lab.lab} was closed")

    async def _expect_none(self, look: Callable[[], list[str]], after: str) -> None:
        """Wait until ``look`` finds nothing: threads that close sockets, and killed processes, take their time."""
        try:
            await wait_while_fewer(lambda: len(look()), self._gone_seconds, f"nothing to be left when {after}")
        except DeadlineExceededError:
            raise InternalError(f"{after} and left behind: {'; '.join(look())}") from None

    def _current_lab(self) -> BuiltLab:
        if self._lab is None:
            raise InternalError("there is no lab: Build comes first")
        return self._lab
