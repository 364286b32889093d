"""Who can still be reached when links are cut.

Owns: ``Links``, the links that are cut at one time.
Must not: know steps, or look for another way: an uplink beside ``eth0`` is nobody's only one.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from lab.plan.model import Plan, PodPlace
from lab.plan.names import UPLINK
from lab.scenario.model import LinkChange

__all__ = ["Links"]


@dataclass(frozen=True, slots=True)
class Links:
    """Links by the name of the node, pod or host and its device."""

    cut: frozenset[tuple[str, str]] = frozenset()

    def after(self, changes: Iterable[LinkChange]) -> "Links":
        """The same once more are mended, or cut."""
        cut = set(self.cut)
        for change in changes:
            (cut.discard if change.up else cut.add)((change.place, change.device))
        return Links(frozenset(cut))

    def part(self, plan: Plan, one: str, other: str) -> bool:
        """Whether a cut link parts two nodes, pods or hosts."""
        if not self.cut:
            return False
        there, here = _stations(plan, one), _stations(plan, other)
        between = set(there) ^ set(here)
        return any((name, UPLINK) in self.cut for name in between)


def _stations(plan: Plan, name: str) -> tuple[str, ...]:
    """The place itself, and the node whose link it shares; a pod of the host network is its node."""
    pod: PodPlace | None = next((each for each in plan.pods if each.name == name), None)
    if pod is None:
        return (name,)
    return (pod.node,) if pod.namespace == pod.node else (pod.name, pod.node)
