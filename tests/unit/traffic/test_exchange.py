"""A run ends when all is settled, when nothing can come any more, or at its deadline; and says which."""

import asyncio
import errno
import os
import struct
import time
from collections.abc import Mapping
from ipaddress import IPv4Address
from typing import Any

import pytest

from proxylab.addresses import Transport
from proxylab.evidence.evidence import ConnectReport
from proxylab.kernel.capture.batches import Frame
from proxylab.kernel.netlink.build import Wiring
from proxylab.kernel.netlink.netem import NetemLinks
from proxylab.plan.model import Plan
from proxylab.plan.resolved import ResolvedProbe, Sender
from proxylab.scenario.words import Manner
from proxylab.timing import Deadline
from proxylab.traffic import exchange
from proxylab.traffic.exchange import Exchange
from proxylab.traffic.identity import Identity
from proxylab.traffic.programs import Programs

A = IPv4Address("10.0.0.1")


class Sending:
    """Sends nothing; is under way until it is abandoned, or until its steps are used up."""

    def __init__(self, steps: int, *, holds: bool = False) -> None:
        self.sent = 0
        self.refused: list[str] = []
        self.reports: list[ConnectReport] = []
        self.steps = steps
        self.holds = holds
        self.closed = False

    @property
    def finished(self) -> bool:
        return self.steps <= 0 and not self.holds

    def advance(self) -> bool:
        self.steps -= 1
        return self.steps >= 0

    def abandon(self) -> bool:
        held, self.holds = self.holds, False
        return held

    def close(self) -> None:
        self.closed = True


class Quiet:
    """Taps that see nothing, and responders without clients."""

    def pump(self) -> int:
        return 0

    def collect(self, *, ends: bool = False) -> list[Any]:
        return []

    def discard(self) -> None:
        pass


async def nothing() -> None:
    """No counters to be read."""


def turns(
    sending: Sending, *, crafted: bool, tap: Any = None, watch: Any = None, programs: Programs | None = None
) -> Exchange:
    sender = Sender(name="a", namespace="a", device="eth0", address=A, mac="", next_hop_mac="")
    resolved = ResolvedProbe(
        number=0,
        name="a probe",
        sender=sender,
        destination=A,
        port=80,
        protocol=Transport.TCP,
        manner=Manner.PACKET,
        flows=2,
        payload=0,
        receivers=(),
        sentinels=(),
        nodes=("node",),
    )
    quiet: Any = Quiet()
    return Exchange(
        resolved=resolved,
        identity=Identity(bytes(8), 0, 4, 2),
        tap=tap or object(),
        sending=sending,
        sockets=None if crafted else {1024: 0},
        watch=watch or quiet,
        responders=watch or quiet,
        before_sentinels=nothing,
        links=NetemLinks(Wiring(Plan(namespaces=(), links=()), {}, {})),
        passage=(programs or Programs()).on_the_way(resolved),
        ports=(),
    )


def test_sockets_that_have_all_been_heard_end_a_run() -> None:
    sending = Sending(3)
    assert asyncio.run(turns(sending, crafted=False).run(Deadline.after(60))) == ""
    assert sending.steps == 0


def test_crafted_flows_that_are_nowhere_to_be_seen_end_a_run_once_nothing_moves() -> None:
    run = turns(Sending(3), crafted=True)
    assert asyncio.run(run.run(Deadline.after(60))) == ""
    assert run.matcher.unsettled == 2


def test_sockets_that_nothing_can_reach_any_more_are_abandoned() -> None:
    sending = Sending(3, holds=True)
    assert asyncio.run(turns(sending, crafted=False).run(Deadline.after(60))) == ""
    assert not sending.holds


def test_sockets_wait_for_what_a_pod_sends_while_the_sentinel_packets_come_back() -> None:
    """Its end of a connection left behind the sentinels' replies, so only a later round proves it lost."""
    sending, rounds, pumped = Sending(1, holds=True), list[int](), iter([0, 0, 1])
    watch: Any = Quiet()
    watch.pump = lambda: next(pumped, 0)
    run = turns(sending, crafted=False, watch=watch)
    sentinels: Any = run.sentinels
    sentinels.send = lambda: rounds.append(sending.steps)
    assert asyncio.run(run.run(Deadline.after(60))) == ""
    assert len(rounds) == 2


def test_at_its_deadline_a_run_says_what_it_still_waited_for() -> None:
    assert "still to be sent" in asyncio.run(turns(Sending(10**9), crafted=True).run(Deadline.after(0.01)))
    assert "2 flows" in asyncio.run(turns(Sending(0), crafted=True).run(Deadline.after(0)))


def test_a_run_gives_the_event_loop_its_turns() -> None:
    others = []

    async def both() -> None:
        run = asyncio.create_task(turns(Sending(50), crafted=False).run(Deadline.after(60)))
        while not run.done():
            others.append(1)
            await asyncio.sleep(0)

    asyncio.run(both())
    assert len(others) >= 50


def test_a_run_stays_on_one_cpu_and_may_leave_it_afterwards() -> None:
    allowed = os.sched_getaffinity(0)
    seen = []

    class Curious(Sending):
        def advance(self) -> bool:
            seen.append(len(os.sched_getaffinity(0)))
            return super().advance()

    asyncio.run(turns(Curious(2), crafted=False).run(Deadline.after(60)))
    assert set(seen) == {1}
    assert os.sched_getaffinity(0) == allowed


def test_a_run_that_may_not_stay_on_one_cpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    run = turns(Sending(1), crafted=False)
    asyncio.run(run.run(Deadline.after(60)))
    assert run.unpinned == ""

    def refuse(pid: int, cpus: set[int]) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    run = turns(Sending(1), crafted=False)
    assert asyncio.run(run.run(Deadline.after(60))) == "", "it goes on all the same"
    assert run.unpinned == "sched_setaffinity: Operation not permitted"


class Tap:
    """A tap that sees a SYN leave whenever the kernel has said it."""

    netns_name, device = "a", "eth0"

    def __init__(self) -> None:
        self.waiting: list[Frame] = []

    def says(self) -> None:
        segment = struct.pack("!HHIIBBHHH", 1024, 80, 99, 0, 0x50, 2, 0, 0, 0)
        header = struct.pack("!BBHHHBBH", 0x45, 0, 40, 0, 0, 64, 6, 0) + A.packed + A.packed
        self.waiting.append(Frame(bytes(12) + b"\x08\x00" + header + segment, True, 7))

    def collect(self, *, ends: bool = False) -> list[Any]:
        frames, self.waiting = self.waiting, []
        return [(self, frames)] if frames else []


class Repeating(Sending):
    """A socket that is under way, whose kernel sends the SYN once more between two looks at the taps."""

    def __init__(self, tap: Tap) -> None:
        super().__init__(1, holds=True)
        self.tap = tap

    def advance(self) -> bool:
        if self.steps == 1:
            self.tap.says()
        return super().advance()

    def abandon(self) -> bool:
        if self.holds:
            self.tap.says()
        return super().abandon()


def test_a_syn_that_is_said_again_behind_the_sentinels_gets_sentinels_behind_it() -> None:
    tap = Tap()
    watch: Any = Quiet()
    watch.collect = tap.collect
    run = turns(Repeating(tap), crafted=False, tap=tap, watch=watch)
    requests_before: list[int] = []
    sentinels: Any = run.sentinels
    sentinels.send = lambda: requests_before.append(run.matcher.requests_sent)
    assert asyncio.run(run.run(Deadline.after(60))) == ""
    assert requests_before == [1, 2]


def program(*is_done: bool) -> Programs:
    """A proxy's process on the way, and whether it has ended or opened each connection whenever it is asked."""
    answers = iter(is_done)

    async def drain(_node: str, _connections: bool) -> Mapping[str, int] | None:
        return {} if next(answers, is_done[-1]) else None

    return Programs(lambda: ("node",), drain)


def test_a_program_that_is_done_ends_the_wait_for_it() -> None:
    begun = time.monotonic()
    run = turns(Sending(1, holds=True), crafted=False, programs=program(True))
    assert asyncio.run(run.run(Deadline.after(60))) == ""
    assert time.monotonic() - begun < 3.0


def test_a_run_whose_deadline_cuts_the_wait_for_a_program_short_says_so() -> None:
    run = turns(Sending(1, holds=True), crafted=False, programs=program(False))
    assert "under way" in asyncio.run(run.run(Deadline.after(0.1)))


def test_each_syn_of_a_program_begins_the_wait_for_it_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(exchange._PATIENCE, Transport.TCP, 0.3)
    run, begun = turns(Sending(1, holds=True), crafted=False, programs=program(False)), time.monotonic()
    monkeypatch.setattr(run.matcher, "tries", lambda _endpoints: min(4, int((time.monotonic() - begun) / 0.2)))
    assert asyncio.run(run.run(Deadline.after(60))) == ""
    assert time.monotonic() - begun >= 0.8 + 0.3
