"""The pods of Deployments, ReplicaSets, StatefulSets, DaemonSets and Jobs: their names, labels and nodes.

``PodMaker`` makes the pods of one workload one after the other, as its controller and the scheduler would. Equal input
gives equal pods: where Kubernetes draws a name by chance, the lab derives it from the workload's identity, its template
and the pod's number. ``proxylab.cluster.rollout`` decides when a workload gets and loses pods.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from proxylab.cluster.objects import KubeObject, Node, Pod, PodPort, Unstructured
from proxylab.cluster.placement import Constraints, Placed, Toleration, node_for
from proxylab.cluster.slices import NAME_ALPHABET, generated_suffix
from proxylab.encoding import Record

_LONGEST_PREFIX: Final = 58
"""The API server shortens a prefix, so that a name with its suffix is a DNS label (apiserver's storage/names)."""

_ALWAYS_TOLERATED: Final = tuple(
    Toleration(key=f"node.kubernetes.io/{key}", operator="Exists")
    for key in ("not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
)
"""What every pod of a DaemonSet tolerates (pkg/controller/daemon/util/daemonset_util.go)."""


class PodTemplate(Record, frozen=True, kw_only=True):
    """``spec.template``, as far as it matters to a lab.

    ``commands`` are the ``command`` and ``args`` of each container, ``revision`` the hash of the whole template.
    ``ready_after`` is the time from a pod's start to the success of its readiness probes, ``grace`` its
    ``terminationGracePeriodSeconds``, both in milliseconds.
    """

    labels: Mapping[str, str]
    ports: tuple[PodPort, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()
    host_network: bool = False
    hostname: str = ""
    subdomain: str = ""
    constraints: Constraints = Constraints()
    revision: str = ""
    ready_after: int = 0
    grace: int = 30_000


def revision_of(template: Mapping[str, object]) -> str:
    """The hash of a template's document, in the letters of ``pod-template-hash`` (SafeEncodeString of a number)."""
    digest = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).digest()
    number = str(int.from_bytes(digest[:4], "big"))
    return "".join(NAME_ALPHABET[ord(digit) % len(NAME_ALPHABET)] for digit in number)


class Workload(Record, frozen=True, kw_only=True):
    """A workload. ``replicas`` counts its pods; a DaemonSet has one on each node that its pods may use.

    Attributes:
        strategy: RollingUpdate, Recreate or OnDelete.
        max_surge: how many pods more than ``replicas`` an update may make, as a number or in per cent.
        max_unavailable: how many pods fewer may be available meanwhile.
        partition: the lowest ordinal of a StatefulSet that an update replaces.
        parallel: whether a StatefulSet makes and deletes pods without waiting for each other.
        first: the first ordinal of a StatefulSet.
        indexed: whether each pod of a Job has an index.
        min_ready: how long a pod must be ready before an update goes on, in milliseconds.
    """

    kind: str
    namespace: str = "default"
    name: str
    replicas: int = 1
    template: PodTemplate
    strategy: str = "RollingUpdate"
    max_surge: int | str = "25%"
    max_unavailable: int | str = "25%"
    partition: int = 0
    parallel: bool = False
    first: int = 0
    indexed: bool = False
    min_ready: int = 0

    @property
    def owner(self) -> str:
        """Its identity, for messages."""
        return f"{self.kind} {self.namespace}/{self.name}"


class Replica(Record, frozen=True, kw_only=True):
    """A pod of a workload.

    ``ordinal`` is the number of a StatefulSet's pod; the pods of other workloads are numbered as they are made.
    """

    name: str
    node: str
    ordinal: int
    labels: Mapping[str, str]
    template: PodTemplate

    @property
    def revision(self) -> str:
        """The hash of the template that made it."""
        return self.template.revision


class PodMaker:
    """Makes the pods of one workload.

    Args:
        nodes: of the cluster, in the order of the scenario.
        there: the pods of the namespace that have a node, without those of the workload.

    Attributes:
        made: all pods that it has made, by name; a StatefulSet's pod that is made again is still one.
    """

    def __init__(self, nodes: Sequence[Node], there: Iterable[Placed] = ()) -> None:
        self._nodes = nodes
        self._there = tuple(there)
        self._count = 0
        self.made: dict[str, Replica] = {}

    def begin(self, workload: Workload) -> tuple[Replica, ...]:
        """The pods that a new workload has. Fewer than it wants if no node may have more."""
        return self.more(workload, (), workload.replicas)

    def more(self, workload: Workload, live: Sequence[Replica], count: int) -> tuple[Replica, ...]:
        """Further pods of the workload beside its ``live`` ones: ``count``, or fewer if no node may have more.

        A DaemonSet gets one on each node that has none.
        """
        if workload.kind == "DaemonSet":
            return tuple(self._of_daemon(workload, {each.node for each in live}))
        taken = {each.ordinal for each in live}
        made: list[Replica] = []
        for _ in range(count):
            ordinal = self._next(workload, taken)
            node = self._node(workload, ordinal, [*live, *made])
            if node is None:
                break
            taken.add(ordinal)
            made.append(self._replica(workload, ordinal, node))
        return tuple(made)

    def reserve(self, workload: Workload, live: Sequence[Replica], most: int) -> None:
        """Make the pods that the workload gets when it is scaled to that number, for later."""
        count = self._count
        self.more(workload, live, most - len(live))
        self._count = count

    def again(self, workload: Workload, pods: Iterable[Replica]) -> tuple[Replica, ...]:
        """The same pods of the present template, each on the node that it has."""
        return tuple(self._replica(workload, each.ordinal, each.node) for each in pods)

    def _next(self, workload: Workload, taken: set[int]) -> int:
        """The ordinal of the next pod: the lowest free one, or for nameless pods one that no pod has had."""
        if workload.kind == "StatefulSet" or workload.indexed:
            number = workload.first
            while number in taken:
                number += 1
            return number
        self._count += 1
        return self._count - 1

    def _node(self, workload: Workload, ordinal: int, live: Iterable[Replica]) -> str | None:
        known = self.made.get(_named(workload, ordinal)[0])
        if known is not None:  # its network namespace is on that node already
            return known.node
        there = [*self._there, *(Placed(workload.owner, each.node, each.labels) for each in live)]
        return node_for(workload.template.constraints, workload.owner, self._nodes, there)

    def _of_daemon(self, workload: Workload, served: set[str]) -> Iterator[Replica]:
        template = workload.template
        tolerations = (*template.constraints.tolerations, *_ALWAYS_TOLERATED)
        for node in self._nodes:
            constraints = replace(template.constraints, node_name="", tolerations=tolerations)
            if node.name not in served and node_for(constraints, workload.owner, [node], ()) is not None:
                self._count += 1
                yield self._replica(workload, self._count - 1, node.name)

    def _replica(self, workload: Workload, ordinal: int, node: str) -> Replica:
        name, own = _named(workload, ordinal)
        labels = {**workload.template.labels, **own}
        made = Replica(name=name, node=node, ordinal=ordinal, labels=labels, template=workload.template)
        self.made[name] = made
        return made


def pods_of(written: Unstructured, things: Iterable[KubeObject]) -> tuple[Pod, ...]:
    """The pods among some objects that belong to a workload, by its selector or, without one, its template's labels."""
    spec = _mapping(written.content.get("spec"))
    template = _mapping(_mapping(_mapping(spec.get("template")).get("metadata")).get("labels"))
    labels = _mapping(_mapping(spec.get("selector")).get("matchLabels")) or template
    if written.kind == "Job":
        labels = {"job-name": written.name}
    pods = (each for each in things if isinstance(each, Pod) and each.namespace == written.namespace)
    return tuple(each for each in pods if labels and labels.items() <= each.labels.items())


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _named(workload: Workload, ordinal: int) -> tuple[str, dict[str, str]]:
    """The name of a pod, and the labels that its controller adds."""
    revision = workload.template.revision
    suffix = generated_suffix(workload.owner, revision, ordinal)
    match workload.kind:
        case "Deployment":
            return _generated(f"{workload.name}-{revision}", suffix), {"pod-template-hash": revision}
        case "StatefulSet":
            name = f"{workload.name}-{ordinal}"
            return name, {
                "apps.kubernetes.io/pod-index": str(ordinal),
                "controller-revision-hash": f"{workload.name}-{revision}",
                "statefulset.kubernetes.io/pod-name": name,
            }
        case "DaemonSet":
            return _generated(workload.name, suffix), {"controller-revision-hash": revision}
        case "Job":
            labels = {"batch.kubernetes.io/job-name": workload.name, "job-name": workload.name}
            if workload.indexed:
                labels["batch.kubernetes.io/job-completion-index"] = str(ordinal)
                return _generated(f"{workload.name}-{ordinal}", suffix), labels
            return _generated(workload.name, suffix), labels
        case _:
            return _generated(workload.name, suffix), {}


def _generated(prefix: str, suffix: str) -> str:
    return f"{f'{prefix}-'[:_LONGEST_PREFIX]}{suffix}"
