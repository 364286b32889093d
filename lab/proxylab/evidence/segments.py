"""The record of a dialogue: every segment at every tap, turn by turn, with the queries that tests need.

A dialogue has no expectations but those of its test.
"""

from collections.abc import Iterator

from proxylab.addresses import IPAddress
from proxylab.encoding import Record
from proxylab.evidence.evidence import RuleCount, TapLoss
from proxylab.evidence.words import endpoint, listed
from proxylab.plan.dialogue import FLAGS, Turn
from proxylab.plan.resolved import STACK
from proxylab.text import table, wrapped


class TcpSegment(Record, frozen=True):
    """One TCP segment at one tap. ``turn`` counts from 1; a kernel's answer to a segment belongs to its turn.

    ``at`` is CLOCK_REALTIME in nanoseconds.
    """

    turn: int
    netns_name: str
    device: str
    outgoing: bool
    source: IPAddress
    source_port: int
    destination: IPAddress
    destination_port: int
    flags: int
    sequence: int
    acknowledged: int
    data: str
    at: int

    @property
    def is_reset(self) -> bool:
        """Whether it ends a connection at once."""
        return bool(self.flags & FLAGS["RST"])

    @property
    def words(self) -> str:
        """Its flags, and its number of bytes."""
        flags = " ".join(name for name, bit in FLAGS.items() if self.flags & bit) or "no flag"
        return flags + (f", {len(self.data)} bytes" if self.data else "")


class DialogueRecord(Record, frozen=True):
    """A dialogue, or the part of it that took place.

    ``stopped`` is why it could not go on; ``unproven`` are turns whose sentinel packets did not come back, so that
    missing segments may only be late; ``counts`` are the rules that counted meanwhile, and ``uncounted`` the nodes
    with incomplete counts.
    """

    client: str
    server: str
    turns: tuple[Turn, ...]
    segments: tuple[TcpSegment, ...]
    stopped: str = ""
    unproven: tuple[int, ...] = ()
    losses: tuple[TapLoss, ...] = ()
    counts: tuple[RuleCount, ...] = ()
    uncounted: tuple[str, ...] = ()

    def arrived(self, netns_name: str, turn: int = 0) -> tuple[TcpSegment, ...]:
        """The segments that came in at a pod or host, or at a node's programs, in that turn or (0) in any."""
        here = [each for each in self.segments if each.netns_name == netns_name and not each.outgoing]
        has_stack_tap = any(each.netns_name == netns_name and each.device == STACK for each in self.segments)
        return tuple(each for each in here if turn in (0, each.turn) and (not has_stack_tap or each.device == STACK))

    def resets(self, netns_name: str) -> tuple[TcpSegment, ...]:
        """The resets that came in at a pod or host."""
        return tuple(each for each in self.arrived(netns_name) if each.is_reset)

    def packets_counted_by(self, words: str) -> int:
        """How many packets all rules with these words in their text counted.

        Raises:
            LookupError: the counters are incomplete. A proxy that loads its rules meanwhile clears some.
        """
        if self.uncounted:
            raise LookupError(
                f"the rule counters of {listed(self.uncounted)} are incomplete: rules were loaded meanwhile"
            )
        return sum(each.packets for each in self.counts if words in each.text)

    @property
    def doubts(self) -> str:
        """Reasons why a segment that no tap saw may have existed; empty without any."""
        doubts = [self.stopped] if self.stopped else []
        doubts += [f"the sentinel packets of turn {turn} did not come back" for turn in self.unproven]
        doubts += [f"the tap on {loss.device} in {loss.netns_name} lost {loss.frames} frames" for loss in self.losses]
        return "; ".join(doubts)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """The dialogue in words: each turn, and every tap that saw something of it."""
        for number, turn in enumerate(self.turns, 1):
            yield from wrapped(f"{number}. {turn.words}", rest="   ")
            rows = [
                (
                    f"{each.netns_name}/{each.device}",
                    "out" if each.outgoing else "in",
                    each.words,
                    endpoint(each.source, each.source_port),
                    endpoint(each.destination, each.destination_port),
                )
                for each in self.segments
                if each.turn == number
            ]
            yield from table(rows, "   ") if rows else ["   no tap saw it"]
        if self.doubts:
            yield from wrapped(f"in doubt: {self.doubts}")
