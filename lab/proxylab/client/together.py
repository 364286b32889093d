"""Which probes of one moment a lab may send together, between the same two readings of its counters.

A judge must be able to tell apart what rules counted for each of them (``verdict.shared_counts``). So they dial
different Service ports over one family, and each promises delivery, or that nothing translates it: what becomes of
other flows, counters show that must stand for one probe alone. The module sends nothing.
"""

from collections.abc import Hashable, Iterable, Iterator
from typing import Final, NamedTuple

from proxylab.addresses import Family
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.probes import Probe
from proxylab.scenario.words import Outcome

_MOST: Final = 24
"""So many probes go together at most: if one of them shows something else than was promised, each is sent again."""
_MOST_FLOWS: Final = 2_000


class NumberedProbe(NamedTuple):
    """A probe with its number among all that are asked for, and what it is resolved to."""

    number: int
    probe: Probe
    resolved: ResolvedProbe


def batches(asked: Iterable[NumberedProbe], *, counts_divide: bool) -> Iterator[list[NumberedProbe]]:
    """The probes in batches, each of which may go together. A batch comes as soon as it is full; all have at least one.

    With ``counts_divide`` false, the counters of the lab's proxies show nothing of single probes, and none go together.
    """
    filling: dict[Family, list[list[NumberedProbe]]] = {family: [] for family in Family}
    for each in asked:
        if not counts_divide or not may_go_with_others(each.probe, each.resolved):
            yield [each]
            continue
        open_ones = filling[Family.of(each.resolved.destination)]
        batch = next((one for one in open_ones if _has_room(one, each)), None)
        if batch is None:
            open_ones.append(batch := [])
        batch.append(each)
        if len(batch) == _MOST:
            open_ones.remove(batch)
            yield batch
    for open_ones in filling.values():
        yield from open_ones


def may_go_with_others(probe: Probe, resolved: ResolvedProbe) -> bool:
    """Whether the counters of a lab need not stand for the probe alone."""
    expect = probe.expect
    is_plain = not (resolved.http or resolved.request or resolved.tables or resolved.question)
    is_plain = is_plain and resolved.sender.port is None
    is_one = not expect.either and not expect.undecided
    asks_for_more = expect.conntrack or expect.http or expect.error or expect.at
    return _is_shown_by_taps(expect.outcome, resolved) and is_plain and is_one and not asks_for_more


def _is_shown_by_taps(outcome: Outcome, resolved: ResolvedProbe) -> bool:
    """Whether the taps show that outcome, and counters only whose work it is."""
    return outcome is Outcome.UNTRANSLATED or (outcome is Outcome.DELIVERED and bool(resolved.service_port))


def _dialled(resolved: ResolvedProbe) -> Hashable:
    """What no other probe of the batch may dial."""
    return resolved.service_port or (resolved.destination, resolved.protocol, resolved.port)


def _has_room(batch: list[NumberedProbe], more: NumberedProbe) -> bool:
    flows = sum(each.resolved.flows for each in batch) + more.resolved.flows
    others = {_dialled(each.resolved) for each in batch}
    return _dialled(more.resolved) not in others and (flows <= _MOST_FLOWS or not batch)
