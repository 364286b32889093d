"""Whether engines differ on a probe or step, and the lines that show the difference."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from proxylab.text import WIDTH, wrapped
from proxylab.verdict.model import ProbeVerdict, StepVerdict

__all__ = ["INDENT", "AnyVerdict", "differ", "difference_lines"]

AnyVerdict = ProbeVerdict | StepVerdict

INDENT: Final = "    "
"""The indentation of a packet's path."""

_BY_CHANCE: Final = frozenset({"backends", "port", "spread"})
"""Observations of these are random for each flow, so only the judgement is compared."""


def differ(verdicts: Mapping[str, AnyVerdict]) -> bool:
    """Whether the engines, by name, observe or judge a probe differently.

    How many stream packets a change costs varies from run to run. So steps are compared by judgement and by
    expectation, which differs between engines where an ``except`` applies.
    """
    return len({_essence(verdict) for verdict in verdicts.values()}) > 1


def _essence(verdict: AnyVerdict) -> frozenset[tuple[str, ...]]:
    if isinstance(verdict, StepVerdict):
        return frozenset((each.expectation, each.judgement, each.expected) for each in verdict.verdicts)
    return frozenset(
        (each.expectation, each.judgement, "" if each.expectation in _BY_CHANCE else each.observed)
        for each in verdict.verdicts
    )


def difference_lines(
    verdicts: Mapping[str, AnyVerdict], ways: Mapping[str, Sequence[str]], width: int = WIDTH
) -> Iterator[str]:
    """The lines for one probe, with a packet's path on each engine, or for one step, with its timeline on each."""
    first = next(iter(verdicts.values()))
    written = first.step if isinstance(first, StepVerdict) else first.probe
    yield f"{written.position}: {written.name}"
    room = max(map(len, verdicts))
    for engine, verdict in verdicts.items():
        observed = "; ".join(f"{each.expectation} {each.observed}" for each in verdict.verdicts)
        yield from wrapped(f"{verdict.overall}: {observed}", f"  {engine:<{room}}  ", width=width)
    for engine, way in ways.items():
        yield f"  {'what happened' if isinstance(first, StepVerdict) else 'the path'} on {engine}:"
        yield from (f"{INDENT}{line}".rstrip() for line in way or ("no rule of any node saw the packet",))
