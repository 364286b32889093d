"""Why a Service has no endpoint that a node may use, in Kubernetes' words, with the cure.

The sentences rest on the objects alone: the selector, readiness, target ports, and the nodes that slices name.
"""

from collections.abc import Collection, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Final

from proxylab.addresses import Family
from proxylab.cluster.objects import Endpoint, EndpointSlice, Pod, Service, ServicePort
from proxylab.evidence.words import listed
from proxylab.plan.dialled_service import DialledService

RELABEL: Final = "change the selector, or label a pod so"
GIVE_ENDPOINTS: Final = "give it a selector, or write an EndpointSlice"
MAKE_READY: Final = "a passing readiness probe or publishNotReadyAddresses: true lets such a pod get connections"
"""The cures of three mistakes."""


def why_none_usable(dialled: DialledService) -> str:
    """Why a Service has no endpoint that any node may use, with the cure."""
    if dialled.endpoints:
        return why_unready(dialled, dialled.endpoints)
    name = f"{dialled.service.namespace}/{dialled.service.name}"
    if not any(each.endpoints for each in dialled.slices):
        if not dialled.service.selector:
            lacks = f"{name} has no selector, and no EndpointSlice names an endpoint for it"
            return f"{lacks}; {GIVE_ENDPOINTS}."
        if not dialled.selected:
            nearest = nearest_pod(dialled.service.selector, dialled.pods, dialled.elsewhere)
            return f"the selector {dialled.selector} matches no pod{nearest and f' ({nearest})'}; {RELABEL}."
    if isinstance(dialled.port.target_port, str) and dialled.selected:
        return why_unnamed(dialled.port, dialled.selected)
    return why_no_such_port(name, dialled.port, dialled.family, dialled.slices)


def why_unnamed(port: ServicePort, pods: Sequence[Pod]) -> str:
    """No selected pod has a port of the name and protocol of a targetPort."""
    target, protocol = port.target_port, port.protocol
    names = listed([pod.name for pod in pods], "or")
    other = next((each for pod in pods for each in pod.ports if each.name == target), None)
    if other is not None:
        of_other = f"{target} there is a port of {other.protocol}"
        return (
            f"targetPort {target!r} is the name of no {protocol} port of {names}; {of_other}: give both one protocol."
        )
    it = "it names" if len(pods) == 1 else "they name"
    known = list(dict.fromkeys(each.name for pod in pods for each in pod.ports if each.name))
    cure = f"write {'one of these' if len(known) > 1 else 'that'} as targetPort" if known else "write its number"
    return (
        f"targetPort {target!r} is the name of no port of {names}; {it} {listed(known) if known else 'none'}; {cure}."
    )


def why_no_such_port(name: str, port: ServicePort, family: Family, slices: Sequence[EndpointSlice]) -> str:
    """A Service has slices, and none with endpoints of this family for this port."""
    lacks = f"no EndpointSlice of {name} has {family} endpoints of its port {port.name or port.port}"
    own = [each for each in slices if each.address_type is family and each.endpoints]
    if not own:
        others = list(dict.fromkeys(str(each.address_type) for each in slices if each.endpoints))
        return f"{lacks}; {'they have' if len(slices) > 1 else 'it has'} those of {listed(others)} alone."
    has = [f"{each.name or 'one without a name'} ({each.protocol})" for found in own for each in found.ports]
    must = (
        f"must have the name {port.name!r}, as the Service's has"
        if port.name
        else "must have no name, as the Service's"
    )
    return f"{lacks}; they have {listed(list(dict.fromkeys(has)))}, and a slice's port {must}."


def nearest_pod(selector: Mapping[str, str], pods: Sequence[Pod], elsewhere: Sequence[Pod] = ()) -> str:
    """What the pod lacks whose labels come closest to a selector that matches none, as a clause; empty without pods.

    ``elsewhere`` are the pods of other namespaces that it would match.
    """
    if elsewhere:
        pod, spelled = elsewhere[0], ",".join(f"{key}={value}" for key, value in selector.items())
        return f"{pod.name} has {spelled}, but in namespace {pod.namespace}, not in the Service's"
    labelled = [pod for pod in pods if pod.labels.keys() & selector.keys()]
    if not labelled:
        key = next(iter(selector), "")
        return f"no pod has the label {key}" if pods else ""
    pod = max(labelled, key=lambda each: _likeness(selector, each))
    key = next(key for key, value in selector.items() if pod.labels.get(key) != value)
    return f"{pod.name} has {key}={pod.labels[key]}" if key in pod.labels else f"{pod.name} has no label {key}"


def _likeness(selector: Mapping[str, str], pod: Pod) -> float:
    return sum(SequenceMatcher(None, value, pod.labels.get(key, "")).ratio() for key, value in selector.items())


def why_none_listens(service: Service, port: ServicePort, pod: Pod | None, number: int) -> str:
    """No program of the endpoint's pod listens on the target port, as the pod declares its ports."""
    if pod is None or any((each.port, each.protocol) == (number, port.protocol) for each in pod.ports):
        return ""
    declared = [f"{each.port}/{each.protocol}" for each in pod.ports]
    listens = f"{pod.name} listens on {listed(declared)}" if declared else f"{pod.name} declares no port"
    if not service.selector:
        return f"the port of the EndpointSlice is {number}/{port.protocol}, and {listens}; make both the same."
    return f"the Service's targetPort is {number}/{port.protocol}, and {listens}; make both the same."


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
        if pod is None or pod.node_name == node:
            wrong = misplaced(each, dialled.named(each), pod, dialled.nodes)
            if wrong:
                return f"{key} is Local, and {wrong}."
    others = list(dict.fromkeys(each.node_name for each in dialled.usable if each.node_name))
    cure = f"Cluster uses {'those' if len(others) != 1 else 'the one'} on {listed(others)}"
    here = [each for each in dialled.endpoints if each.node_name == node]
    if here:
        why = why_unready(dialled, here).removesuffix(".").partition(";")[0]
        return f"{why}, no other endpoint is on {node}, and {key} is Local; {cure}."
    return f"no endpoint on {node}, and {key} is Local; {cure}."


def misplaced(endpoint: Endpoint, name: str, pod: Pod | None, nodes: Collection[str]) -> str:
    """The clause that a slice names a wrong node, or none, for an endpoint; empty where it names the right one."""
    cure = f"; {pod.name} runs on {pod.node_name}, so nodeName must be {pod.node_name}" if pod else ""
    who = pod.name if pod else name
    if not endpoint.node_name:
        return f"the slice names no node for {who}, which is then local to none{cure}"
    if endpoint.node_name not in nodes:
        return f"the slice names node {endpoint.node_name}, which is no node{cure}"
    return (
        f"the slice names node {endpoint.node_name} for {who}{cure}"
        if pod and pod.node_name != endpoint.node_name
        else ""
    )
