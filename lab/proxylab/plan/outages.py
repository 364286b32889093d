"""Reachability after changes: ``Links``, the cut links at one time, and ``Absences``, with the deleted pods too.

Only a cut ``eth0`` makes a node, pod or host unreachable: every one has this device, and others are further uplinks.
"""

from collections.abc import Iterable
from contextlib import suppress

from msgspec import Struct

from proxylab.plan.model import LinkEnd, Plan, PodPlacement, Role
from proxylab.scenario.change import LinkChange
from proxylab.scenario.network import UPLINK


class Links(Struct, frozen=True):
    """Links by the name of the node, pod or host and its device."""

    cut: frozenset[tuple[str, str]] = frozenset()

    def after(self, changes: Iterable[LinkChange]) -> "Links":
        """The links after these changes."""
        cut = set(self.cut)
        for change in changes:
            (cut.discard if change.up else cut.add)((change.netns_name, change.device))
        return Links(frozenset(cut))

    def part(self, plan: Plan, one: str, other: str) -> bool:
        """Whether a cut link separates two nodes, pods or hosts."""
        if not self.cut:
            return False
        there, here = _stages(plan, one), _stages(plan, other)
        between = set(there) ^ set(here)
        return any((name, UPLINK) in self.cut for name in between)


class Absences(Struct, frozen=True):
    """The deleted pods, by name, and the cut links."""

    gone: frozenset[str] = frozenset()
    links: Links = Links()

    def blackhole(self, plan: Plan) -> tuple[str, ...]:
        """The namespaces to blackhole: those with only deleted pods."""
        by_namespace: dict[str, list[str]] = {}
        for pod in plan.pods:
            by_namespace.setdefault(pod.namespace, []).append(pod.name)
        of_pods = {each.name for each in plan.namespaces if each.role is Role.POD}
        return tuple(name for name, pods in by_namespace.items() if name in of_pods and self.gone.issuperset(pods))

    def down(self, plan: Plan) -> tuple[LinkEnd, ...]:
        """The link ends of the plan that are down."""
        found = []
        for netns_name, device in sorted(self.links.cut):
            with suppress(KeyError):
                found.append(plan.end_to_cut(netns_name, device))
        return tuple(found)


def _stages(plan: Plan, name: str) -> tuple[str, ...]:
    """The node, pod or host itself, and for a pod its node; a pod on the host network is its node."""
    pod: PodPlacement | None = next((each for each in plan.pods if each.name == name), None)
    if pod is None:
        return (name,)
    return (pod.node,) if pod.namespace == pod.node else (pod.name, pod.node)
