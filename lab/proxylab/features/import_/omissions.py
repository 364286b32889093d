"""What the imported scenario leaves out, by reason; ``features.import_.listeners`` decides which pods it needs."""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from proxylab.features.import_.live_objects import LiveNode, LivePod
from proxylab.features.import_.networks import Networks
from proxylab.features.import_.reading import KubectlOutput, namespaced
from proxylab.text import printable

_MOST_NAMES: Final = 6

_ALWAYS: Final = (
    "what runs in pods: the lab's pods answer on their ports themselves",
    "NetworkPolicies, the network plugin's own rules, and firewalls: pods are wired as kind does it (spec.network)",
)


class Omissions:
    """Things left out, each once, under the reason."""

    def __init__(self) -> None:
        self._by_reason: dict[str, dict[str, None]] = {}

    def add(self, reason: str, what: str) -> None:
        """Note one thing."""
        self._by_reason.setdefault(reason, {})[what] = None

    def lines(self) -> Iterator[str]:
        """A line for each reason, and for what kubectl's output never contains."""
        for reason, things in self._by_reason.items():
            shown = ", ".join(list(things)[:_MOST_NAMES])
            more = f" and {len(things) - _MOST_NAMES} more" if len(things) > _MOST_NAMES else ""
            yield printable(f"{reason}: {shown}{more}", keep="")
        yield from _ALWAYS


def note_unneeded(
    kubectl_output: KubectlOutput,
    pods: Iterable[LivePod],
    needed: Collection[tuple[str, str]],
    nodes: Iterable[LiveNode],
    networks: Networks,
    omissions: Omissions,
) -> None:
    """Note pods that no Service needs, and properties of nodes that a lab's nodes lack."""
    for pod in pods:
        if (pod.namespace, pod.name) not in needed:
            omissions.add(_why(pod), f"{pod.namespace}/{pod.name}")
    for workload in kubectl_output.workloads:
        omissions.add(
            "workloads; the scenario has the pods that Services need",
            f"{workload['kind']} {'/'.join(namespaced(workload))}",
        )
    for kind, count in kubectl_output.others.items():
        omissions.add("objects of other kinds", f"{count} {kind}")
    for node in nodes:
        if not node.ready:
            omissions.add("the NotReady state of nodes, since nodes of a lab are ready", node.name)
        if node.other_addresses:
            omissions.add("external addresses of nodes", f"{node.name} ({', '.join(node.other_addresses)})")
    if not networks.nodes_stay:
        omissions.add("addresses of nodes", "no network holds them without those of others; the lab chooses others")
    if not networks.pods_stay:
        omissions.add("addresses of pods", "they lie among those of nodes or Services; others stand for them")


def _why(pod: LivePod) -> str:
    if pod.finished:
        return "pods that have finished"
    return "pods to which no Service sends" if pod.addresses else "pods without an address"
