"""``Expectation``: what every expectation has; ``Findings``: what speaks against one, and the verdict that follows.

To add an expectation, write a module that makes an ``Expectation``, and list it in ``expectations.table``. The judge
enters the module only where the author wrote the key, or where the expectation says itself what is expected. This
module knows no particular one.

A finding is of one of three kinds, which weigh differently:

* *wrong*: the taps saw something that the expectation forbids. That is a fail, whatever else is in doubt.
* *missing*: the taps did not see something. That is a fail only if nothing casts doubt on the silence; otherwise the
  verdict is inconclusive.
* *doubts*: something speaks against relying on the evidence. A doubt rules out a pass.

Without any of them the verdict is a pass. Doubts about the evidence as a whole (a tap lost frames, the run was cut
short) weigh on every expectation, since each assumes that the taps saw all flows of the probe and nothing else.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from proxylab.addresses import IPAddress
from proxylab.evidence.words import tally
from proxylab.scenario.words import Position
from proxylab.verdict.model import Judgement, Verdict


class Judged(Protocol):
    """The subject of expectations and of findings about them: a probe, a stream in a step, or a step."""

    @property
    def expect(self) -> object:
        """The keys that its author may write."""

    @property
    def size(self) -> tuple[int, str]:
        """The number of flows or stream packets, and the word for one."""

    @property
    def doubts(self) -> tuple[str, ...]:
        """Reasons to doubt the evidence as a whole."""

    def position(self, key: str) -> Position:
        """Where the author wrote that expectation."""


class _FindingsOfKind:
    """The findings of one kind: clauses about the subject as a whole, and clauses about one flow or packet."""

    def __init__(self) -> None:
        self.overall: list[str] = []
        self.single: list[tuple[int, str]] = []

    def add(self, clause: str, number: int | None) -> None:
        if number is None:
            self.overall.append(clause)
        else:
            self.single.append((number, clause))

    def clauses(self, number: int, thing: str) -> list[str]:
        return [*self.overall, *tally((clause for _, clause in self.single), number, thing)]


class Findings:
    """The findings about one expectation of a subject. Each clause may be about one flow or packet, by its number."""

    def __init__(self, subject: Judged, doubts: Iterable[str] = ()) -> None:
        self._subject = subject
        self._wrong, self._missing, self._doubts = _FindingsOfKind(), _FindingsOfKind(), _FindingsOfKind()
        self._doubts.overall += doubts

    def wrong(self, clause: str, number: int | None = None) -> None:
        """The evidence shows what the expectation forbids."""
        self._wrong.add(clause, number)

    def missing(self, clause: str, number: int | None = None) -> None:
        """The evidence does not show what the expectation asks for."""
        self._missing.add(clause, number)

    def doubt(self, clause: str, number: int | None = None) -> None:
        """Something speaks against relying on the evidence."""
        self._doubts.add(clause, number)

    def doubt_each(self, clauses: Mapping[int, str]) -> None:
        """Doubts about flows, by their numbers."""
        for number, clause in clauses.items():
            self.doubt(clause, number)

    @property
    def any_wrong(self) -> bool:
        """Whether anything is wrong."""
        return bool(self._wrong.overall or self._wrong.single)

    def settle(
        self,
        expectation: str,
        *,
        expected: str,
        observed: str,
        may_be_late: Iterable[str] = (),
        witnesses: Iterable[str] = (),
    ) -> Verdict:
        """The verdict. ``may_be_late`` holds the doubts that bear on missing findings only."""
        wrong, missing, doubts = (kind.clauses(*self._subject.size) for kind in self._kinds)
        doubts += self._subject.doubts
        if missing:
            doubts += may_be_late
        if wrong or (missing and not doubts):
            judgement, reasons = Judgement.FAIL, [*wrong, *missing]
        elif missing or doubts:
            judgement, reasons = Judgement.INCONCLUSIVE, [*missing, *doubts]
        else:
            judgement, reasons = Judgement.PASS, []
        shown = next((kind.single for kind in self._kinds if kind.single), [])
        return Verdict(
            expectation=expectation,
            judgement=judgement,
            expected=str(expected),  # an outcome is an enum, and a verdict carries text
            observed=str(observed),
            reasons=tuple(reasons),
            witnesses=tuple(witnesses) if judgement is Judgement.PASS else (),
            position=self._subject.position(expectation),
            example=min((number for number, _ in shown), default=None),
        )

    @property
    def _kinds(self) -> tuple[_FindingsOfKind, ...]:
        return self._wrong, self._missing, self._doubts


S = TypeVar("S", bound=Judged)
W = TypeVar("W")


class Needs(IntEnum):
    """What must exist before an expectation can be judged; each includes those before it."""

    NOTHING = 0
    PACKETS = 1
    ARRIVALS = 2


def _nothing_seen(_subject: object, _verdict: Verdict) -> str:
    return ""


def _no_address(_subject: object, _verdict: Verdict) -> IPAddress | None:
    return None


class Expectation(Struct, Generic[S, W], frozen=True, kw_only=True):
    """One expectation of a probe, a stream or a step.

    Attributes:
        key: its YAML key, or the word in reports for one that needs no key.
        judge: the verdict on a subject, by what is expected of it.
        expected: what is expected of a subject, where more than the author's key says it; ``None`` where nothing is.
        needs: what must exist before it can be judged.
        as_seen: what the evidence shows of its failure, in a sentence, where no cause is known; empty where the
            verdict's reasons say it all.
        seen_address: the address that was seen in place of the expected one, whose holder an explanation names.
        shows_in_shares: whether an explanation of its failure shows the shares of flows.
    """

    key: str
    judge: Callable[[S, W], Verdict]
    expected: Callable[[S], W | None] | None = None
    needs: Needs = Needs.PACKETS
    as_seen: Callable[[S, Verdict], str] = _nothing_seen
    seen_address: Callable[[S, Verdict], IPAddress | None] = _no_address
    shows_in_shares: bool = False

    def expected_of(self, subject: S) -> W | None:
        """What is expected of a subject: what its author wrote at ``key``, unless ``expected`` says it."""
        if self.expected is not None:
            return self.expected(subject)
        written: W | None = getattr(subject.expect, self.key)
        return written
