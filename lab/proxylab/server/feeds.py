"""Feeds: a command on a client's own terminal, an engine's log, a capture at devices, the way to the API.

``feed`` yields the answers until the feed ends, is ended, or its client hangs up. It delays no other request, and
leaves nothing behind.
"""

import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Final

from proxylab.errors import CapabilityError, ScenarioError
from proxylab.kernel.capture.batches import FrameReader
from proxylab.kernel.capture.taps import Tap, ethernet_devices, open_tap
from proxylab.protocol.standing_labs import (
    ANY_DEVICE,
    Attach,
    CapturedFrame,
    Ended,
    Feed,
    FeedAnswer,
    Frames,
    Kubeconfig,
    Lines,
    Listen,
    Log,
    Signal,
)
from proxylab.server.lab import BuiltLab
from proxylab.timing import Deadline, DeadlineExceededError, wait_until

_HANG_UP_SECONDS: Final = 1.0
_STANDARD: Final = 3
_A_WHILE: Final = 3600.0

Signals = asyncio.Queue[Signal]


def feed(
    request: Feed, lab: BuiltLab, descriptors: Sequence[int], signals: Signals
) -> AsyncGenerator[FeedAnswer, None]:
    """The answers to a feed, of which the last is ``Ended``. The descriptors came with the request and are closed here.

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
        case Kubeconfig():
            return _kubeconfig(request, lab, descriptors)


async def _attach(
    request: Attach, lab: BuiltLab, descriptors: Sequence[int], signals: Signals
) -> AsyncGenerator[FeedAnswer, None]:
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


async def _kubeconfig(
    request: Kubeconfig, lab: BuiltLab, descriptors: Sequence[int]
) -> AsyncGenerator[FeedAnswer, None]:
    sockets = [socket.socket(fileno=each) for each in descriptors]
    if lab.kubernetes is None:
        for each in sockets:
            each.close()
        raise ScenarioError(["this lab has no real control plane; start one with `proxylab up --control-plane real`"])
    for each in sockets:
        lab.kubernetes.listen(each)
    yield Lines((json.dumps(lab.kubernetes.kubeconfig(request.name)),))
    yield Ended()


async def _log(request: Log, lab: BuiltLab, signals: Signals) -> AsyncGenerator[FeedAnswer, None]:
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


async def _wait_for_lines(lab: BuiltLab, node: str, known: tuple[str, ...], signals: Signals) -> None:
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


async def _listen(request: Listen, lab: BuiltLab, signals: Signals) -> AsyncGenerator[FeedAnswer, None]:
    words: Callable[[bytes], str] | None = None
    if request.in_words:
        from proxylab.traffic.frame_line import frame_line  # noqa: PLC0415 - scapy takes a fifth of a second

        words = frame_line
    taps: list[Tap] = []
    try:
        reader = FrameReader()
        for netns_name, device in request.devices:
            taps += _taps(lab, netns_name, device, bytes.fromhex(request.interest), reader)
        yield Frames(taps=tuple((each.netns_name, each.device) for each in taps))
        left = request.count
        deadline = None if request.seconds is None else Deadline.after(request.seconds)
        while left != 0 and signals.empty() and not (deadline and deadline.passed):
            await _wait_for_frames(taps, signals.empty, deadline)
            found = sorted(
                ((each.at_ns, number, each) for number, tap in enumerate(taps) for each in tap.drain()),
                key=itemgetter(0),
            )[:left]
            left = None if left is None else left - len(found)
            if found:
                captured = tuple(
                    CapturedFrame(at, each.outgoing, each.data.hex(), words(each.data) if words else "", number)
                    for at, number, each in found
                )
                yield Frames(captured, sum(each.take_lost() for each in taps))
        yield Ended()
    finally:
        for each in taps:
            each.close()


def _taps(lab: BuiltLab, netns_name: str, device: str, interest: bytes, reader: FrameReader) -> list[Tap]:
    """A tap on a device, or with ``any`` on each device of the namespace that carries Ethernet frames."""
    netns = lab.netns(netns_name)
    try:
        names = ethernet_devices(netns) if device == ANY_DEVICE else [device]
        return [open_tap(netns, netns_name, each, interest, reader) for each in names]
    except PermissionError as error:
        raise CapabilityError(f"packet sockets in {netns_name} ({error})", "run `proxylab doctor`") from error
    except OSError:
        there = ", ".join([*ethernet_devices(netns), ANY_DEVICE])
        raise ScenarioError([f"{netns_name} has no device {device!r}; there are {there}"]) from None


async def _wait_for_frames(taps: Sequence[Tap], is_quiet: Callable[[], bool], deadline: Deadline | None) -> None:
    """Wait until frames have come, until a signal, or until the deadline."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    for each in taps:
        loop.add_reader(each.fileno(), readable.set)
    try:
        with suppress(DeadlineExceededError):
            await wait_until(
                lambda: readable.is_set() or not is_quiet(), deadline or Deadline.after(_A_WHILE), "a frame to come"
            )
    finally:
        for each in taps:
            loop.remove_reader(each.fileno())
