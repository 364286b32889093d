"""Feeds: a command on a client's own terminal, an engine's log, a capture at a device.

``feed`` yields the answers until the feed ends, is ended, or its client hangs up. It delays no other request, and
leaves nothing behind.
"""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from typing import Final

from proxylab.errors import CapabilityError, ScenarioError
from proxylab.kernel.capture.taps import Tap, open_tap
from proxylab.protocol.standing_labs import (
    AnyResponse,
    Attach,
    CapturedFrame,
    Ended,
    Feed,
    Frames,
    Lines,
    Listen,
    Log,
    Signal,
)
from proxylab.server.lab import Lab
from proxylab.timing import Deadline, DeadlineExceededError, wait_until

__all__ = ["feed", "new_lines"]

_HANG_UP_SECONDS: Final = 1.0
_STANDARD: Final = 3
_A_WHILE: Final = 3600.0

Signals = asyncio.Queue[Signal]


def feed(request: Feed, lab: Lab, descriptors: Sequence[int], signals: Signals) -> AsyncGenerator[AnyResponse, None]:
    """The answers to a feed, of which the last is ``Ended``.

    Args:
        request: begins the feed.
        lab: the lab.
        descriptors: came with the request; closed here.
        signals: the client's signals.

    Raises:
        ScenarioError: it names an object that the lab does not have.
    """
    match request:
        case Attach():
            return _attach(request, lab, descriptors, signals)
        case Log():
            return _log(request, lab, signals)
        case Listen():
            return _listen(request, lab, signals)


async def _attach(
    request: Attach, lab: Lab, descriptors: Sequence[int], signals: Signals
) -> AsyncGenerator[AnyResponse, None]:
    try:
        if len(descriptors) != _STANDARD:
            raise ScenarioError([f"{len(descriptors)} descriptors came with {request.argv[0]}; {_STANDARD} are needed"])
        running = await lab.attach(request, descriptors)
    finally:
        for number in descriptors:  # the command has copies; open ones here would keep a pipe from ending
            os.close(number)

    async def pass_on() -> None:
        while True:
            number = (await signals.get()).number
            if number != signal.SIGWINCH:  # the terminal itself sends that one
                running.send_signal(number)

    passing = asyncio.create_task(pass_on())
    try:
        yield Ended(await asyncio.shield(running.status))
    finally:
        passing.cancel()
        with suppress(asyncio.CancelledError):
            await running.hang_up(Deadline.after(_HANG_UP_SECONDS))


async def _log(request: Log, lab: Lab, signals: Signals) -> AsyncGenerator[AnyResponse, None]:
    known: tuple[str, ...] = ()
    while True:
        log = lab.log(request.node)
        fresh = new_lines(known, log)
        if fresh or not request.follow:
            yield Lines(fresh)
        if not request.follow or not signals.empty():
            yield Ended()
            return
        known = log
        await _wait_for_lines(lab, request.node, known, signals)


async def _wait_for_lines(lab: Lab, node: str, known: tuple[str, ...], signals: Signals) -> None:
    with suppress(DeadlineExceededError):
        await wait_until(
            lambda: not signals.empty() or lab.log(node) != known,
            Deadline.after(_A_WHILE),
            "new lines of the engine's log",
        )


def new_lines(before: Sequence[str], now: tuple[str, ...]) -> tuple[str, ...]:
    """The lines of ``now`` that a bounded log did not have before: those behind the longest end of ``before`` in it.

    Example:
        >>> new_lines(("a", "b", "c"), ("b", "c", "d"))
        ('d',)
    """
    for length in range(min(len(before), len(now)), 0, -1):
        if tuple(before[-length:]) == now[:length]:
            return now[length:]
    return now


async def _listen(request: Listen, lab: Lab, signals: Signals) -> AsyncGenerator[AnyResponse, None]:
    words: Callable[[bytes], str] | None = None
    if request.in_words:
        from proxylab.traffic.frame_line import frame_line  # noqa: PLC0415 - scapy takes a fifth of a second

        words = frame_line
    tap = _tap(request, lab)
    try:
        yield Frames()
        left = request.count
        deadline = None if request.seconds is None else Deadline.after(request.seconds)
        while left != 0 and signals.empty() and not (deadline and deadline.passed):
            await _wait_for_frames(tap, signals.empty, deadline)
            frames = tap.drain()[:left]
            left = None if left is None else left - len(frames)
            if frames:
                captured = tuple(
                    CapturedFrame(each.at_ns, each.outgoing, each.data.hex(), words(each.data) if words else "")
                    for each in frames
                )
                yield Frames(captured, tap.take_lost())
        yield Ended()
    finally:
        tap.close()


def _tap(request: Listen, lab: Lab) -> Tap:
    netns = lab.netns(request.netns_name)
    try:
        return open_tap(netns, request.netns_name, request.device)
    except PermissionError as error:
        raise CapabilityError(f"packet sockets in {request.netns_name} ({error})", "run `proxylab doctor`") from error
    except OSError:
        raise ScenarioError(
            [f"{request.netns_name} has no device {request.device!r}; look with `ip link` readable"]
        ) from None


async def _wait_for_frames(tap: Tap, is_quiet: Callable[[], bool], deadline: Deadline | None) -> None:
    """Wait until frames have come, until a signal, or until the deadline."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(tap.fileno(), readable.set)
    try:
        with suppress(DeadlineExceededError):
            await wait_until(
                lambda: readable.is_set() or not is_quiet(), deadline or Deadline.after(_A_WHILE), "a frame to come"
            )
    finally:
        loop.remove_reader(tap.fileno())
