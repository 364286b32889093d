"""What was seen of a dialogue: every segment at every tap, turn by turn.

Owns: the frozen ``Segment`` and ``Spoken``, the questions a test asks them, and their words.
Must not: judge: a dialogue has no expectation but those of the test that holds it.
"""

from collections.abc import Iterator

from proxylab.addresses import IPAddress
from proxylab.evidence.evidence import RuleCount, TapLoss
from proxylab.evidence.words import endpoint
from proxylab.frozen import dataclass
from proxylab.plan.dialogue import FLAGS, Turn
from proxylab.plan.resolved import STACK
from proxylab.text import table, wrapped

__all__ = ["Segment", "Spoken"]


@dataclass(frozen=True, slots=True)
class Segment:
    """One TCP segment at one tap. ``turn`` counts from 1; what a kernel says to a segment belongs to its turn.

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
        """Its flags, and how much it carries."""
        said = " ".join(name for name, bit in FLAGS.items() if self.flags & bit) or "no flag"
        return said + (f", {len(self.data)} bytes" if self.data else "")


@dataclass(frozen=True, slots=True)
class Spoken:
    """A dialogue that was held, or as much of it as could be.

    ``stopped`` says why it could not go on; ``unproven`` are turns whose fences did not come back, so that what was not
    seen of them may only be late; ``counts`` are the rules that counted anything meanwhile, and ``uncounted`` the nodes
    of which that is not all.
    """

    client: str
    server: str
    turns: tuple[Turn, ...]
    segments: tuple[Segment, ...]
    stopped: str = ""
    unproven: tuple[int, ...] = ()
    losses: tuple[TapLoss, ...] = ()
    counts: tuple[RuleCount, ...] = ()
    uncounted: tuple[str, ...] = ()

    def arrived(self, netns_name: str, turn: int = 0) -> tuple[Segment, ...]:
        """What came in at a pod or host, or at the programs of a node that spoke, in that turn or (0) in any."""
        here = [each for each in self.segments if each.netns_name == netns_name and not each.outgoing]
        spoke = any(each.netns_name == netns_name and each.device == STACK for each in self.segments)
        return tuple(each for each in here if turn in (0, each.turn) and (not spoke or each.device == STACK))

    def resets(self, netns_name: str) -> tuple[Segment, ...]:
        """The resets that came in at a pod or host."""
        return tuple(each for each in self.arrived(netns_name) if each.is_reset)

    def rules(self, words: str) -> int:
        """How many packets were counted by all rules whose text has these words."""
        return sum(each.packets for each in self.counts if words in each.text)

    @property
    def doubts(self) -> str:
        """Why what was not seen may have happened all the same; empty when it has not."""
        doubts = [self.stopped] if self.stopped else []
        doubts += [f"the sentinel packets of turn {turn} did not come back" for turn in self.unproven]
        doubts += [f"the tap on {loss.device} in {loss.netns_name} lost {loss.frames} frames" for loss in self.losses]
        doubts += [f"the rule counters of {node} are incomplete" for node in self.uncounted]
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
