"""Sentinel packets: they prove that every packet sent before them has arrived, or never will.

A sentinel packet is an ICMP echo request from the sender to an address that no Service translates: the node's own, and
each candidate pod's. Delivery over veth is synchronous and in order: the sender's send(2) runs the packet through the
nodes' hooks into the receiver's queue, or where a softirq is put off, it waits on this CPU's backlog behind the packets
sent before. Hence a sentinel that is back overtook nothing, and a probe packet that no tap has seen by then was dropped
on its way. That holds while the run stays on one CPU (``exchange`` pins it, and the evidence records where it could
not), and for paths without queues of other kinds (NFQUEUE, RPS, unresolved neighbours). Of a queue that tc made on a
node, the evidence says what it held when the first sentinel went out. In the queues of a plan's links with netem
packets may overtake each other, so a run waits until these are empty, and sends again the sentinels that they have
lost. No sentinel goes to the sender itself. What a missing sentinel means is up to the judge.
"""

from collections.abc import Iterable

from proxylab.evidence.evidence import SentinelReport
from proxylab.plan.resolved import ResolvedProbe, Sentinel
from proxylab.traffic.craft import sentinels
from proxylab.traffic.identity import Identity, TokenKind
from proxylab.traffic.match import SentinelSighting
from proxylab.traffic.watch import AnyTap


class Sentinels:
    """The sentinel packets of one run. They may go out several times; each round has numbers of its own."""

    def __init__(self, resolved: ResolvedProbe, identity: Identity, tap: AnyTap) -> None:
        self._resolved = resolved
        self._identity = identity
        self._tap = tap
        self._next = 0
        self._out: dict[int, Sentinel] = {}
        self._silent: set[Sentinel] = set()
        self._answered: dict[Sentinel, int] = {}

    @property
    def back(self) -> bool:
        """Whether every sentinel of the last round is back."""
        return not self._out

    def send(self) -> None:
        """Send a round, without the targets that have not answered an earlier one."""
        self._send([each for each in self._resolved.sentinels if each not in self._silent])

    def send_again(self) -> None:
        """Send those of the last round again that are not back: links with netem have lost them, or their answers."""
        lost = list(self._out.values())
        self._out.clear()
        self._send(lost)

    def _send(self, wanted: Iterable[Sentinel]) -> None:
        targets = []
        for target in wanted:
            self._out[self._next] = target
            self._answered.pop(target, None)
            targets.append((target.address, self._identity.token(TokenKind.SENTINEL, self._next)))
            self._next += 1
        if not targets:
            return
        for number, frame in zip(tuple(self._out), sentinels(self._resolved.sender, targets), strict=True):
            try:
                self._tap.send(frame)
            except OSError:
                self._give_up(number)

    def take(self, sightings: Iterable[SentinelSighting]) -> None:
        """Take in the sentinels that the taps saw."""
        netns_names = (self._resolved.sender.name, self._resolved.sender.namespace)
        for sighting in sightings:
            target = self._out.get(sighting.number)
            if target is None or sighting.netns_name not in netns_names:
                continue
            if sighting.reply:
                del self._out[sighting.number]
                self._answered[target] = sighting.at

    def give_up(self) -> None:
        """Count every sentinel that is still out as unanswered."""
        for number in tuple(self._out):
            self._give_up(number)

    def reports(self) -> tuple[SentinelReport, ...]:
        """The result of each sentinel in the last round; empty if none was sent."""
        if not self._next:
            return ()
        return tuple(
            SentinelReport(target.name, target in self._answered, self._answered.get(target, 0))
            for target in self._resolved.sentinels
        )

    def _give_up(self, number: int) -> None:
        self._silent.add(self._out.pop(number))
