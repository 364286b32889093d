"""What several engines made of the same probe.

Owns: when that differs, and how it is told.
Must not: judge again.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from proxylab.text import WIDTH, wrapped
from proxylab.verdict.model import ProbeVerdict, StepVerdict

__all__ = ["INDENT", "Judged", "differing", "told"]

Judged = ProbeVerdict | StepVerdict

INDENT: Final = "    "
"""Before every line of a packet's way."""

_BY_CHANCE: Final = frozenset({"backends", "port", "spread"})
"""What is observed of these is drawn anew for each flow: only their judgement can be compared."""


def differing(verdicts: Mapping[str, Judged]) -> bool:
    """Whether engines, by name, differ in what became of a probe, or in how that is judged.

    How many pulses a change takes differs from run to run. So of steps it is compared what is expected of each engine,
    which differs where an exception holds, and how that is judged.
    """
    return len({_essence(verdict) for verdict in verdicts.values()}) > 1


def _essence(verdict: Judged) -> frozenset[tuple[str, ...]]:
    if isinstance(verdict, StepVerdict):
        return frozenset((each.expectation, each.judgement, each.expected) for each in verdict.verdicts)
    return frozenset(
        (each.expectation, each.judgement, "" if each.expectation in _BY_CHANCE else each.observed)
        for each in verdict.verdicts
    )


def told(verdicts: Mapping[str, Judged], ways: Mapping[str, Sequence[str]], width: int = WIDTH) -> Iterator[str]:
    """Lines about a probe that engines treat differently, with the way of a packet on each of them; or about a step."""
    first = next(iter(verdicts.values()))
    written = first.step if isinstance(first, StepVerdict) else first.probe
    yield f"{written.position}: {written.name}"
    room = max(map(len, verdicts))
    for engine, verdict in verdicts.items():
        observed = "; ".join(f"{each.expectation} {each.observed}" for each in verdict.verdicts)
        yield from wrapped(f"{verdict.overall}: {observed}", f"  {engine:<{room}}  ", width=width)
    for engine, way in ways.items():
        yield f"  {'what happened' if isinstance(first, StepVerdict) else 'the way'} on {engine}:"
        yield from (f"{INDENT}{line}".rstrip() for line in way or ("no rule of any node saw the packet",))
