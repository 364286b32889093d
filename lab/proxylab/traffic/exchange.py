"""The turns of one run: send, answer, read the taps; and the proof that nothing more will come.

``runner`` chooses flows, ports and identities, and reads the rule counters.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Final, Protocol

from proxylab.addresses import Transport
from proxylab.evidence.evidence import Altered, ConnectReport, TapLoss
from proxylab.kernel.netlink.netem import NetemLinks
from proxylab.plan.resolved import STACK, ResolvedProbe
from proxylab.timing import Deadline, DeadlineExceededError, wait_until
from proxylab.traffic.answer import request_line
from proxylab.traffic.associations import Associations
from proxylab.traffic.cpu_affinity import one_cpu
from proxylab.traffic.craft import filling
from proxylab.traffic.identity import Identity
from proxylab.traffic.legs import TapPoint
from proxylab.traffic.match import Matcher
from proxylab.traffic.programs import Passage
from proxylab.traffic.responder import Responders
from proxylab.traffic.sentinels import Sentinels
from proxylab.traffic.watch import AnyTap, Watch

_SENTINEL_SECONDS: Final = 1.0

_PATIENCE: Final = {Transport.TCP: 3.0}
"""Seconds to wait for a program between two legs that is not done, since its last SYN. kube-proxy gives an endpoint up
to two seconds to answer a SYN, and sends another one then, or closes."""
_PATIENCE_FOR_DATAGRAMS: Final = 0.5
_BEFORE_ASKING: Final = {Transport.TCP: 0.02}
"""A program mostly sends on what it has got before the lab could ask whether it is done, which costs 50 ms."""
_SENDING_AGAIN: Final = {Transport.TCP: 11.5, Transport.SCTP: 9.5}
"""Seconds within which a kernel sends again what a link has lost: TCP a SYN after 1, 2 and 4 s, and data after 3 and
6 s if the SYN was lost, too (TCP_TIMEOUT_FALLBACK); SCTP an INIT after 3 and 6 s (net.sctp.rto_initial). Where the
SYN's answer was lost, TCP sends a FIN again after 2, 3 and 6 s, and no tap keeps these (measured on Linux 6.18)."""


class Sending(Protocol):
    """What sends the flows of a run: ``Dispatch`` by crafted frames, ``Dialogues`` by kernel sockets."""

    sent: int
    refused: list[str]
    reports: list[ConnectReport]
    altered: list[Altered]

    @property
    def finished(self) -> bool:
        """Whether nothing is left to send or, for sockets, to receive."""

    def advance(self) -> bool:
        """Do what can be done now. Returns whether there was anything."""

    def abandon(self) -> bool:
        """Give up what is under way: nothing can come for it any more. Returns whether there was anything."""

    def close(self) -> None:
        """Close what was opened."""


class Exchange:
    """One run, taken turn by turn."""

    def __init__(
        self,
        *,
        resolved: ResolvedProbe,
        identity: Identity,
        tap: AnyTap,
        sending: Sending,
        sockets: Mapping[int, int] | None,
        watch: Watch,
        responders: Responders,
        before_sentinels: Callable[[], Awaitable[None]],
        links: NetemLinks,
        associations: Associations | None = None,
        passage: Passage,
        ports: Sequence[int],
    ) -> None:
        """``ports`` has the sender's port of each flow, which tells the two legs apart that a program makes of it."""
        self._links = links
        self.sending = sending
        self.matcher = Matcher(
            identity,
            resolved.protocol,
            sockets,
            ports if passage.nodes or resolved.request else None,
            filling(resolved.payload) if sockets is None else request_line(b"", filling(resolved.payload)),
        )
        self._passage = passage
        self._patience = _PATIENCE.get(resolved.protocol, _PATIENCE_FOR_DATAGRAMS) if passage.nodes else 0.0
        self._sending_again = _SENDING_AGAIN.get(resolved.protocol, 0.0) if links.loses and sockets is not None else 0.0
        self._patience = max(self._patience, self._sending_again)
        self._before_asking = _BEFORE_ASKING.get(resolved.protocol, 0.0) if passage.nodes else 0.0
        self._cpus: Sequence[int | None] = sorted(os.sched_getaffinity(0)) if passage.nodes else (None,)
        self._endpoints = {each.address for each in resolved.receivers} | {each.address for each in resolved.endpoints}
        self.sentinels = Sentinels(resolved, identity, tap)
        self.unpinned = ""
        self._by_taps = sockets is None
        self._tap = tap
        self._watch = watch
        self._responders = responders
        self._associations = associations
        self._before_sentinels = before_sentinels
        self._passed = frozenset((*resolved.nodes, *resolved.forwarders))
        self._sent_at_sentinels = 0
        self._answered = 0

    async def run(self, deadline: Deadline) -> str:
        """Take turns until every flow is settled or provably lost.

        Returns:
            What was still awaited when the deadline passed; empty when nothing was.
        """
        self._watch.discard()
        with one_cpu() as self.unpinned:
            while not self._settled:
                if deadline.passed:
                    return self._awaited()
                await asyncio.sleep(0)  # let the rest of the lab's event loop run
                if self._turn() or await self._moves_in_time(deadline):
                    continue
                answered = self._answered
                for cpu in self._cpus:
                    with nullcontext() if cpu is None else one_cpu(cpu):
                        await self._send_sentinels(deadline)
                if self._turn() or self._answered > answered:
                    continue  # what a pod has just sent may still be behind the sentinels' replies
                if await self._passage.drain() and self._turn():
                    continue  # a program has sent on what came just before the sentinels
                if not self.sending.abandon():
                    break
            self._look()
            if self._sent_at_sentinels and self.matcher.requests_sent > self._sent_at_sentinels:
                # A stack has sent its SYN again since the sentinels left: only later sentinels can follow it.
                await self._send_sentinels(deadline)
            self.matcher.note_tries(self._endpoints)
        return ""

    def take_losses(self) -> tuple[TapLoss, ...]:
        """What the taps could not keep of this run."""
        return self._watch.take_losses()

    def close(self) -> None:
        """Close what the run opened."""
        self.sending.close()

    @property
    def _settled(self) -> bool:
        """Whether nothing is awaited: kernel sockets know it themselves, and for crafted flows only the taps do."""
        return self.sending.finished and not (self._by_taps and self.matcher.unsettled)

    async def _moves_in_time(self, deadline: Deadline) -> bool:
        """Whether something comes without a sentinel packet, which would not show that it will not.

        A program between two legs may act: one that is done has acted, and for another one the lab waits. A packet may
        be on its way through a link with a delay, and a kernel may send again what a link has lost.
        """
        if self._links.active and await self._passes(deadline):
            return True
        if not self._patience:
            return False
        if self._before_asking and await self._moves_within(self._before_asking, deadline):
            return True
        is_done = await self._passage.drain()
        if self._turn() or self._settled:
            return True
        if is_done and not self._sending_again:
            return False
        return await self._moves_within(self._patience, deadline)

    async def _moves_within(self, seconds: float, deadline: Deadline) -> bool:
        """Whether something comes, or a program tries an endpoint. A wait that the deadline cuts short shows nothing.

        The run then reports the deadline.
        """
        tries = self.matcher.tries(self._endpoints)

        def moves() -> bool:
            return self._turn() or self._settled or self.matcher.tries(self._endpoints) > tries

        patience = Deadline(min(deadline.at, Deadline.after(seconds).at))
        try:
            await wait_until(moves, patience, "a program sends a flow on or closes it, or a kernel sends again")
        except DeadlineExceededError:
            return deadline.passed
        return True

    async def _passes(self, deadline: Deadline) -> bool:
        """Whether something comes out of the links before all of them are empty."""
        moved = False

        def rests() -> bool:
            nonlocal moved
            moved = self._turn()
            return moved or self._links.at_rest()

        with suppress(DeadlineExceededError):
            await wait_until(rests, deadline, "no packet is on its way through a link with netem")
        return moved or self._turn()

    def _turn(self) -> bool:
        """Send, answer, read the taps. Returns whether anything moved."""
        moved = self.sending.advance()
        return self._look() or moved

    def _look(self) -> bool:
        """Answer what is ready, then read the taps, which have the answers by then. Returns whether anything came."""
        answered = self._responders.pump()
        seen = self.matcher.seen
        # The sender's tap comes first: there the sequence numbers of kernel sockets are learned.
        batches = self._watch.collect()
        for tap, frames in sorted(batches, key=lambda batch: batch[0] is not self._tap):
            if self._associations is not None:
                answered += self._associations.answer(tap, frames)
            transit = tap.netns_name in self._passed and tap.device != STACK
            self.matcher.take(TapPoint(tap.netns_name, tap.device, tap is self._tap, transit), frames)
        self._answered += answered
        self.sentinels.take(self.matcher.sentinels)
        self.matcher.sentinels = []
        return answered > 0 or self.matcher.seen > seen

    async def _send_sentinels(self, deadline: Deadline) -> None:
        """Send a round of sentinel packets and take turns until all are back, for a second at most."""
        await self._before_sentinels()
        self._sent_at_sentinels = self.matcher.requests_sent
        self.sentinels.send()
        patience = Deadline(min(deadline.at, Deadline.after(_SENTINEL_SECONDS + 20 * self._links.round_trip).at))
        try:
            await wait_until(self._sentinels_answered, patience, "the sentinel packets of a run come back")
        except DeadlineExceededError:
            self.sentinels.give_up()

    def _sentinels_answered(self) -> bool:
        self._look()
        if not self.sentinels.back and self._links.loses and self._links.at_rest():
            self._look()
            self.sentinels.send_again()
        return self.sentinels.back

    def _awaited(self) -> str:
        if not self.sending.finished:
            return "the run's deadline passed while flows were still to be sent or under way"
        return f"the run's deadline passed while {self.matcher.unsettled} flows were neither answered nor turned away"
