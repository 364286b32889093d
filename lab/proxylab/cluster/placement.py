"""``node_for``: the node of a pod, by the rules of kube-scheduler that a manifest can require.

A pod needs a node that its ``nodeName``, node selector and required node affinity allow, whose taints it tolerates,
and that keeps its topology spread constraints. Among these the lab takes the node with the fewest pods of the same
owner, and of several the first in the order of the scenario. So replicas go round the nodes, and equal input gives
equal places.
The scheduler also weighs images, resources and preferences; nodes of a lab do not differ in them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from proxylab.cluster.objects import Node, Taint
from proxylab.encoding import Record

_SCHEDULED: Final = ("NoSchedule", "NoExecute")
"""The effects of taints that keep pods away."""


class Requirement(Record, frozen=True, kw_only=True):
    """One expression of a selector: ``operator`` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether labels satisfy it. As in apimachinery, NotIn holds for an absent key, too."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        numbers = [int(each) for each in (value or "", *self.values) if each.removeprefix("-").isdecimal()]
        if len(numbers) != 2:
            return False
        return numbers[0] > numbers[1] if self.operator == "Gt" else numbers[0] < numbers[1]


Selector = tuple[Requirement, ...]


class Toleration(Record, frozen=True, kw_only=True):
    """One entry of ``tolerations``. Without a key and with ``Exists`` it tolerates every taint."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class TopologySpread(Record, frozen=True, kw_only=True):
    """One topology spread constraint. ``hard`` is DoNotSchedule; ``selector`` names the pods that it counts."""

    max_skew: int
    topology_key: str
    hard: bool = True
    selector: Selector = ()


class Constraints(Record, frozen=True, kw_only=True):
    """Where a pod may run. A node must satisfy all of one of ``terms``, if there are any."""

    node_name: str = ""
    terms: tuple[Selector, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    spreads: tuple[TopologySpread, ...] = ()


class Placed(NamedTuple):
    """A pod that has a node: its owner, its node and its labels."""

    owner: str
    node: str
    labels: Mapping[str, str]


def node_for(constraints: Constraints, owner: str, nodes: Sequence[Node], there: Sequence[Placed]) -> str | None:
    """The node for one more pod; ``None`` if no node may have it.

    ``there`` are the pods of the namespace that have a node; ``owner`` is the workload that the pod belongs to.
    """
    if constraints.node_name:
        return constraints.node_name
    eligible = [node for node in nodes if _is_wanted(constraints, node)]
    fitting = [node for node in eligible if tolerates(constraints.tolerations, node.taints)]
    soft: dict[str, int] = dict.fromkeys((node.name for node in fitting), 0)
    for spread in constraints.spreads:
        counts = _by_domain(spread, eligible, nodes, there)
        least = min(counts.values(), default=0)
        domains = {node.name: node.all_labels.get(spread.topology_key) for node in fitting}
        if spread.hard:
            fitting = [
                node
                for node in fitting
                if (domain := domains[node.name]) is not None and counts[domain] + 1 - least <= spread.max_skew
            ]
        else:
            soft |= {name: soft[name] + counts.get(str(domain), 0) for name, domain in domains.items()}
    own = Counter(each.node for each in there if each.owner == owner)
    return min((node.name for node in fitting), key=lambda name: (soft[name], own[name]), default=None)


def _is_wanted(constraints: Constraints, node: Node) -> bool:
    terms = constraints.terms
    return not terms or any(all(each.holds(node.all_labels) for each in term) for term in terms)


def _by_domain(
    spread: TopologySpread, eligible: Iterable[Node], nodes: Iterable[Node], there: Iterable[Placed]
) -> Mapping[str, int]:
    """The number of counted pods in each domain that the pod may use (nodeAffinityPolicy: Honor)."""
    domain_of = {node.name: node.all_labels.get(spread.topology_key) for node in nodes}
    counts = {domain: 0 for node in eligible if (domain := domain_of[node.name]) is not None}
    for pod in there:
        domain = domain_of.get(pod.node)
        if domain in counts and spread.selector and all(each.holds(pod.labels) for each in spread.selector):
            counts[domain] += 1
    return counts


def tolerates(tolerations: Sequence[Toleration], taints: Iterable[str]) -> bool:
    """Whether a pod may run on a node with these taints."""
    return all(
        any(_matches(each, taint) for each in tolerations)
        for taint in map(Taint.of, taints)
        if taint.effect in _SCHEDULED
    )


def _matches(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect):
        return False
    if toleration.operator == "Exists":
        return toleration.key in ("", taint.key)
    return (toleration.key, toleration.value) == (taint.key, taint.value)
