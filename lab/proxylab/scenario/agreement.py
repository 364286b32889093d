"""The check that no two probes send the same packets and expect different outcomes."""

from collections.abc import Sequence

from proxylab.scenario.document import Location
from proxylab.scenario.parts import ProbeParts
from proxylab.scenario.problems import Problems, shown

__all__ = ["check_agreement"]


def check_agreement(probes: Sequence[ProbeParts], location: Location, problems: Problems) -> None:
    """Note probes with the same sender, target and packets, and contradictory outcomes."""
    for index, probe in enumerate(probes):
        expect = probe.expect
        if expect is None or expect.outcome is None or probe.exceptions:
            continue
        for earlier, other in enumerate(probes[:index]):
            if other.expect is None or other.exceptions or not _same_flow(probe, other):
                continue
            if other.expect.outcome not in (None, expect.outcome):
                where = location[index]["expect"]["outcome"]
                first = location[earlier]["expect"]["outcome"].key.position.line
                what = f"contradicts the probe {shown(other.name)}, which sends the same packets and expects"
                problems.add(
                    where.spot, f"{what} {other.expect.outcome} in line {first}", allowed="change one of the two"
                )
                break


def _same_flow(one: ProbeParts, other: ProbeParts) -> bool:
    if None in (one.source, one.target, one.send):
        return False
    return (one.source, one.target, one.send) == (other.source, other.target, other.send)
