"""Why a Service has no endpoint that a node may use, in Kubernetes' words, with the cure.

The sentences rest on the objects alone: the selector, readiness, target ports, and the nodes that slices name.
"""

from typing import Final

from proxylab.cluster.objects import Endpoint, Pod
from proxylab.evidence.words import listed
from proxylab.plan.dialled_service import DialledService

__all__ = [
    "GIVE_ENDPOINTS",
    "MAKE_READY",
    "RELABEL",
    "not_of_this_cluster",
    "why_none_local",
    "why_none_usable",
    "why_unready",
]

RELABEL: Final = "change the selector, or label a pod so"
GIVE_ENDPOINTS: Final = "give it a selector, or write an EndpointSlice"
MAKE_READY: Final = "a passing readiness probe or publishNotReadyAddresses: true lets such a pod get connections"
"""The cures of three mistakes."""


def why_none_usable(dialled: DialledService) -> str:
    """Why a Service has no endpoint that any node may use, with the cure."""
    if dialled.endpoints:
        return why_unready(dialled, dialled.endpoints)
    name, port = f"{dialled.service.namespace}/{dialled.service.name}", dialled.port
    if not any(each.endpoints for each in dialled.slices):
        if not dialled.service.selector:
            lacks = f"{name} has no selector, and no EndpointSlice names an endpoint for it"
            return f"{lacks}; {GIVE_ENDPOINTS}."
        if not dialled.selected:
            has = f" ({_nearest_label(dialled)})" if _nearest_label(dialled) else ""
            return f"the selector {dialled.selector} matches no pod{has}; {RELABEL}."
    if isinstance(port.target_port, str) and dialled.selected:
        named = dict.fromkeys(each.name for pod in dialled.selected for each in pod.ports if each.name)
        known = f"they name {listed(list(named))}" if named else "they name none"
        return f"targetPort {port.target_port!r} is the name of no port of {_names(dialled)}; {known}."
    return f"no EndpointSlice of {name} has {dialled.family} endpoints of its port {port.name or port.port}."


def _names(dialled: DialledService) -> str:
    return listed([pod.name for pod in dialled.selected], "or")


def _nearest_label(dialled: DialledService) -> str:
    """A pod that has the key of the selector, with another value."""
    for key in dialled.service.selector:
        for pod in dialled.pods:
            if key in pod.labels:
                return f"{pod.name} has {key}={pod.labels[key]}"
    return ""


def why_unready(dialled: DialledService, endpoints: list[Endpoint]) -> str:
    """Which endpoints get no connections, and what lets them."""
    leaving = [dialled.named(each) for each in endpoints if each.terminating]
    waiting = [dialled.named(each) for each in endpoints if not each.ready and not each.terminating]
    if waiting:
        return f"{listed(waiting)} {_are(waiting)} not ready; {MAKE_READY}."
    return f"{listed(leaving)} {_are(leaving)} terminating, and no longer {'serves' if len(leaving) == 1 else 'serve'}."


def _are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def why_none_local(dialled: DialledService, node: str) -> str:
    """Why a node has no endpoint to use under policy Local, with the cure."""
    key, _ = dialled.policy
    for each in dialled.endpoints:
        pod = dialled.pod_at(each.addresses[0])
        if each.node_name not in dialled.nodes and (pod is None or pod.node_name == node):
            return f"{not_of_this_cluster(each, dialled.named(each), pod)}, and {key} is Local."
    others = list(dict.fromkeys(each.node_name for each in dialled.usable if each.node_name))
    cure = f"Cluster uses {'those' if len(others) != 1 else 'the one'} on {listed(others)}"
    here = [each for each in dialled.endpoints if each.node_name == node]
    if here:
        why = why_unready(dialled, here).removesuffix(".").partition(";")[0]
        return f"{why}, no other endpoint is on {node}, and {key} is Local; {cure}."
    return f"no endpoint on {node}, and {key} is Local; {cure}."


def not_of_this_cluster(endpoint: Endpoint, name: str, pod: Pod | None) -> str:
    """The clause that a slice names no node of the cluster for an endpoint, and the node that it must name."""
    cure = f"; {pod.name} runs on {pod.node_name}, so nodeName must be {pod.node_name}" if pod else ""
    if not endpoint.node_name:
        return f"the slice names no node for {name}, which is then local to none{cure}"
    return f"the slice names node {endpoint.node_name}, which is no node{cure}"
