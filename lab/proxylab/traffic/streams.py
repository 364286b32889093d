"""The streams of a lab: one flow each, that goes on through all steps.

Owns: when pulses are sent, and when a step's pulses are all settled.
Must not: judge, or make a step.

Theory of operation. A stream is paced by a timer of the event loop: its time is its subject, and nobody waits for it. A
timer that is late sends one pulse and not all that it has missed. Each pulse is sent, answered and heard in one go, as
far as the kernel lets it, so that a lab under load sends less often and is not slower to answer.

Streams rest between steps, and while probes are sent: rules count packets, and do not say whose. Before they rest every
pulse must be settled: answered, turned away, or provably lost. Over UDP fences prove that (``sentinels``), sent from
every
CPU that has sent a pulse; over TCP the kernel sends again, so a second more is given. What has not come then is lost.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from proxylab.addresses import Transport
from proxylab.evidence.streams import BreakKind, StreamRecord
from proxylab.kernel.sandbox.linux import current_cpu
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.resolved import ResolvedProbe, Sentinel
from proxylab.timing import Deadline, DeadlineExceededError, wait_until
from proxylab.traffic.affinity import one_cpu
from proxylab.traffic.conntrack import Memory
from proxylab.traffic.identity import Identity, IdentityRegistry
from proxylab.traffic.ledger import Ledger
from proxylab.traffic.responder import Responders
from proxylab.traffic.sentinels import Sentinels
from proxylab.traffic.stream_sockets import Connection, Datagrams, Pulsing
from proxylab.traffic.stream_tap import Ear
from proxylab.traffic.watch import AnyTap, Watch

__all__ = ["Streams"]

_FENCE_SECONDS: Final = 1.0
_SENDING_AGAIN: Final = 1.0
"""A TCP that is not heard sends again after 200 ms (TCP_RTO_MIN) and 400 ms: a second holds two attempts."""
_ROUNDS: Final = 6
"""A pulse by a new connection is settled in four: dialled, accepted, said, answered."""
_ENOUGH: Final = 5
"""How many pulses a step has behind its wait, before it may end."""
_PATIENCE: Final = 10.0


@dataclass(slots=True)
class _Stream:
    resolved: ResolvedProbe
    ports: list[int]
    identity: Identity
    ledger: Ledger
    pulsing: Pulsing
    tap: AnyTap
    ear: Ear
    due: float = 0.0
    timer: asyncio.TimerHandle | None = None
    cpus: set[int] = field(default_factory=set)
    change: int = 0
    enough: int = 0
    silent: tuple[str, ...] = ()


class Streams:
    """All streams of one lab. Made by its runner, which lets them rest while it runs an errand."""

    def __init__(
        self,
        netns_by_name: Mapping[str, NetNs],
        watch: Watch,
        responders: Responders,
        identities: IdentityRegistry,
        memory: Memory,
        port_of: Callable[[ResolvedProbe], int],
    ) -> None:
        """Streams of which none runs yet; ``port_of`` gives the source port of an errand."""
        self._netns_by_name = netns_by_name
        self._watch = watch
        self._responders = responders
        self._identities = identities
        self._memory = memory
        self._port_of = port_of
        self._streams: dict[str, _Stream] = {}
        self._resting = True

    async def begin(self, resolved_probes: Iterable[ResolvedProbe]) -> None:
        """Begin the streams that do not run yet, and let all go on: the next pulse of each is sent when this returns.

        Raises:
            InternalError: a sender has no tap.
            CapabilityError: the kernel cannot show what a node's programs get.
        """
        for resolved in resolved_probes:
            if resolved.name not in self._streams:
                self._streams[resolved.name] = self._open(resolved)
        self._go_on(self._streams.values())

    def changed(self) -> None:
        """A change is made: who answers from now on is asked of pulses that are sent behind it."""
        for stream in self._streams.values():
            stream.change = stream.ledger.sent

    def mark(self) -> None:
        """The wait of a step is over: what is sent from now on shows what has become of the change."""
        for stream in self._streams.values():
            stream.enough = stream.ledger.sent + _ENOUGH

    async def have_enough(self) -> None:
        """Go on until every stream has sent as many pulses since the mark as a step needs."""
        short = [each for each in self._streams.values() if each.ledger.sent < each.enough]
        if not short:
            return
        if self._resting:
            self._go_on(self._streams.values())
        longest = max(each.resolved.every for each in short) / 1000
        deadline = Deadline.after(_PATIENCE + _ENOUGH * longest)
        await wait_until(lambda: all(each.ledger.sent >= each.enough for each in short), deadline, "pulses of streams")

    async def rest(self, sentinels: Callable[[ResolvedProbe], Sequence[Sentinel]]) -> None:
        """Send no more, and return when every pulse is settled. ``sentinels`` are those that can be answered now."""
        if self._resting:
            return
        self._resting = True
        for stream in self._streams.values():
            if stream.timer is not None:
                stream.timer.cancel()
                stream.timer = None
        for stream in self._streams.values():
            stream.silent = ()
            self._turn()
            if stream.ledger.outstanding:
                await self._settle(stream, sentinels(stream.resolved))

    def take(self) -> tuple[StreamRecord, ...]:
        """What was seen since this was last asked; streams rest."""
        self._listen()
        return tuple(self._record(stream) for stream in self._streams.values())

    def answering(self, name: str) -> str:
        """The pod that answered last of a stream's pulses since the change; empty before any has."""
        stream = self._streams[name]
        latest = stream.ledger.latest
        return latest.backend if latest is not None and latest.number >= stream.change else ""

    def close(self) -> None:
        """End all streams."""
        for stream in self._streams.values():
            if stream.timer is not None:
                stream.timer.cancel()
            stream.pulsing.close()
        self._streams.clear()

    def _open(self, resolved: ResolvedProbe) -> _Stream:
        identity = self._identities.issue(1)
        netns = self._netns_by_name[resolved.sender.namespace]
        tap = self._watch.tap(resolved.sender.namespace, resolved.sender.device)
        ledger, ear = Ledger(identity), Ear(identity, resolved.protocol, tap)
        ports: list[int] = []

        def port_of() -> int:
            ports.append(self._port_of(resolved))
            ear.mind(ports[-1])
            return ports[-1]

        pulsing: Pulsing
        if resolved.protocol is Transport.UDP:
            pulsing = Datagrams(netns, resolved, port_of(), ledger)
        else:
            pulsing = Connection(netns, resolved, ledger, port_of, partial(self._resets, ear))
        return _Stream(resolved, ports, identity, ledger, pulsing, tap, ear)

    def _go_on(self, streams: Iterable[_Stream]) -> None:
        self._resting = False
        self._listen()
        for stream in streams:
            stream.due = asyncio.get_running_loop().time()
            self._beat(stream)

    def _beat(self, stream: _Stream) -> None:
        """See to the next pulse, and send one."""
        loop, every = asyncio.get_running_loop(), stream.resolved.every / 1000
        stream.due = max(stream.due, loop.time() - every) + every
        stream.timer = loop.call_at(stream.due, self._beat, stream)
        stream.cpus.add(current_cpu())
        stream.pulsing.send()
        self._turn()

    def _listen(self) -> None:
        """Read the senders' taps, each once for all that start there."""
        for tap in {id(each.tap): each.tap for each in self._streams.values()}.values():
            frames = tap.drain()
            for stream in self._streams.values():
                if stream.tap is tap:
                    stream.ear.take(frames)

    def _resets(self, ear: Ear) -> list[int]:
        self._listen()
        return ear.resets()

    def _turn(self) -> None:
        """Answer and hear whatever can be now."""
        for _ in range(_ROUNDS):
            answered = self._responders.pump()
            heard = [stream.pulsing.hear() for stream in self._streams.values()]
            if not answered and not any(heard):
                return

    async def _settle(self, stream: _Stream, targets: Sequence[Sentinel]) -> None:
        """Return when every pulse of a stream is settled, or can no longer be."""
        sentinels = Sentinels(replace(stream.resolved, sentinels=tuple(targets)), stream.identity, stream.tap)
        for cpu in sorted(stream.cpus):
            with one_cpu(cpu):
                await self._send_sentinels(stream, sentinels)
        with one_cpu():
            self._turn()  # what is answered only now goes before one more round
            await self._send_sentinels(stream, sentinels)
        stream.silent = tuple(each.name for each in sentinels.reports() if not each.answered)
        stream.cpus.clear()
        if stream.resolved.protocol is Transport.TCP and stream.ledger.outstanding:
            with suppress(DeadlineExceededError):
                await wait_until(partial(self._is_settled, stream), Deadline.after(_SENDING_AGAIN), "late answers")

    def _is_settled(self, stream: _Stream) -> bool:
        self._turn()
        return not stream.ledger.outstanding

    async def _send_sentinels(self, stream: _Stream, sentinels: Sentinels) -> None:
        def back() -> bool:
            self._turn()
            self._listen()
            sentinels.take(stream.ear.sentinels())
            return sentinels.back

        sentinels.send()
        try:
            await wait_until(back, Deadline.after(_FENCE_SECONDS), "fences")
        except DeadlineExceededError:
            sentinels.give_up()

    def _record(self, stream: _Stream) -> StreamRecord:
        for at in stream.ear.resets():
            stream.ledger.gone(at, BreakKind.RESET)  # one that ended no connection of today
        packets, late, breaks = stream.ledger.close_step()
        port = stream.ports[-1] if stream.ports else 0
        return StreamRecord(
            stream=stream.resolved.name,
            port=port,
            packets=packets,
            late=late,
            breaks=breaks,
            tracked=self._memory.flows(stream.resolved, (port,)) if port else (),
            silent=stream.silent,
        )
