"""``Expectation``: what every expectation has, so that judge and explanation can go through a table of them.

To add one, write a module that makes an ``Expectation``, and list it in ``expectations.table``. The judge enters the
module only where the author wrote the key, or where the expectation says itself what is expected.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Generic, TypeVar

from msgspec import Struct

from proxylab.addresses import IPAddress
from proxylab.verdict.findings import Judged
from proxylab.verdict.model import Verdict

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
