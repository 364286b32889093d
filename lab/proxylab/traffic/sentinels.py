"""Fences: marked packets that prove that what was sent before has arrived, or never will.

Owns: the fences of one run, which of them are still out, and their reports.
Must not: wait, or judge what a missing fence means.

A fence is an ICMP echo request from the sender to an address past all Services: the node's own, and each candidate
pod's. Delivery over veth is synchronous and in order: the sender's send(2) runs the packet through the nodes' hooks
into the receiver's queue, or where a softirq is put off, it waits on this CPU's backlog behind what was sent before.
Hence a fence that is back overtook nothing, and a probe packet that no tap has seen by then was dropped on its way.
That holds while the run stays on one CPU (``turns`` sees to that, and the evidence says where it could not), and for
paths without queues of other kinds (NFQUEUE, qdiscs, RPS, unresolved neighbours). None goes to the sender itself.
"""

from collections.abc import Iterable

from proxylab.evidence.evidence import SentinelReport
from proxylab.plan.resolved import ResolvedProbe, Sentinel
from proxylab.traffic.craft import sentinels
from proxylab.traffic.identity import Identity, Kind
from proxylab.traffic.match import SentinelSighting
from proxylab.traffic.watch import AnyTap

__all__ = ["Sentinels"]


class Sentinels:
    """The fences of one run. They may go out several times; each round has numbers of its own."""

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
        """Whether every fence of the last round is back."""
        return not self._out

    def send(self) -> None:
        """Send a round. A fence that was given up before is not sent again: it would only be waited for again."""
        targets = []
        for target in self._resolved.sentinels:
            if target not in self._silent:
                self._out[self._next] = target
                self._answered.pop(target, None)
                targets.append((target.address, self._identity.token(Kind.FENCE, self._next)))
                self._next += 1
        if not targets:
            return
        for number, frame in zip(tuple(self._out), sentinels(self._resolved.sender, targets), strict=True):
            try:
                self._tap.send(frame)
            except OSError:
                self._give_up(number)

    def take(self, sightings: Iterable[SentinelSighting]) -> None:
        """Take in what the taps saw of fences."""
        netns_names = (self._resolved.sender.name, self._resolved.sender.namespace)
        for sighting in sightings:
            target = self._out.get(sighting.number)
            if target is None or sighting.netns_name not in netns_names:
                continue
            if sighting.reply:
                del self._out[sighting.number]
                self._answered[target] = sighting.at

    def give_up(self) -> None:
        """Count every fence that is still out as unanswered."""
        for number in tuple(self._out):
            self._give_up(number)

    def reports(self) -> tuple[SentinelReport, ...]:
        """What became of each fence in the last round; nothing if none was ever sent."""
        if not self._next:
            return ()
        return tuple(
            SentinelReport(target.name, target in self._answered, self._answered.get(target, 0))
            for target in self._resolved.sentinels
        )

    def _give_up(self, number: int) -> None:
        self._silent.add(self._out.pop(number))
