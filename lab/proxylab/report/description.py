"""``proxylab describe``: all fields of one node, pod, Service or outside host, as text."""

from collections.abc import Iterator, Mapping, Sequence

from proxylab.addresses import Family
from proxylab.cluster.objects import ClusterEvent, EndpointSlice, KubeObject, Node, Pod, Service, Unstructured
from proxylab.cluster.slices import slices_of
from proxylab.cluster.workloads import pods_of
from proxylab.evidence.words import endpoint
from proxylab.plan.model import Plan
from proxylab.report.plan_overview import snat_sources

_WIDTH = 22

Field = tuple[str, str | Sequence[str]]


def describe(thing: KubeObject, everything: Sequence[KubeObject], plan: Plan, families: Sequence[Family]) -> list[str]:
    """The fields of a node, pod or Service and its related objects, one field a line, as kubectl prints them."""
    match thing:
        case Node():
            fields = _node(thing, everything, plan, families)
        case Pod():
            fields = _pod(thing, everything, plan)
        case Service():
            fields = _service(thing, everything)
        case Unstructured():
            fields = _unstructured(thing, everything)
        case _:
            fields = iter([("Name", thing.name)])
    events = [
        f"{each.type} {each.reason}: {each.note}"
        for each in everything
        if isinstance(each, ClusterEvent) and (each.regarding.kind, each.regarding.name) == (thing.key.kind, thing.name)
    ]
    return _lines([*fields, ("Events", events)])


def describe_host(name: str, plan: Plan) -> list[str]:
    """The fields of an outside host, which is not an object of the cluster."""
    return _lines([("Name", name), ("Kind", "outside host"), *_netns_name(name, plan)])


def _lines(fields: Sequence[Field]) -> list[str]:
    lines: list[str] = []
    for name, value in fields:
        values = [value] if isinstance(value, str) else list(value)
        first, *rest = values or ["<none>"]
        lines.append(f"{name + ':':{_WIDTH}}{first or '<none>'}")
        lines += [f"{'':{_WIDTH}}{each}" for each in rest]
    return lines


def _node(node: Node, everything: Sequence[KubeObject], plan: Plan, families: Sequence[Family]) -> Iterator[Field]:
    yield "Name", node.name
    yield "Labels", _labels(node.labels)
    yield "Taints", list(node.taints)
    yield "Internal IPs", list(map(str, node.addresses))
    yield "Pod CIDRs", list(map(str, node.pod_cidrs))
    yield from _netns_name(node.name, plan)
    yield "Masquerades as", [f"{source} by its {device}" for device, source in snat_sources(plan, node.name, families)]
    pods = [each for each in everything if isinstance(each, Pod) and each.node_name == node.name]
    yield "Pods", [f"{pod.name} {' '.join(map(str, pod.addresses))}" for pod in pods]


def _pod(pod: Pod, everything: Sequence[KubeObject], plan: Plan) -> Iterator[Field]:
    yield "Name", pod.name
    yield "Namespace", pod.namespace
    yield "Labels", _labels(pod.labels)
    yield "Node", pod.node_name
    yield "IPs", list(map(str, pod.addresses))
    yield "Ports", [f"{port.port}/{port.protocol}{f' ({port.name})' if port.name else ''}" for port in pod.ports]
    yield "Conditions", _conditions(pod)
    home = next((each for each in plan.pods if each.name == pod.name), None)
    if home is not None:
        yield from _netns_name(home.namespace, plan)
    yield "Endpoint of", list(_memberships(pod, everything))


def _unstructured(thing: Unstructured, everything: Sequence[KubeObject]) -> Iterator[Field]:
    """An object of another kind, with the pods of a workload."""
    yield "Name", thing.name
    yield "Namespace", thing.namespace
    yield "Kind", f"{thing.kind} in {thing.api_version}"
    yield "Labels", _labels(thing.labels)
    pods = pods_of(thing, everything)
    if pods:
        yield "Pods", [f"{pod.name} on {pod.node_name}: {_conditions(pod)}" for pod in pods]


def _conditions(pod: Pod) -> str:
    states = {"ready": pod.ready, "serving": pod.serving, "terminating": pod.terminating}
    return ", ".join(name for name, holds in states.items() if holds) or "not ready"


def _memberships(pod: Pod, everything: Sequence[KubeObject]) -> Iterator[str]:
    """The Services that have the pod as endpoint, each with the endpoint's addresses and ports."""
    for each in everything:
        if isinstance(each, EndpointSlice) and each.namespace == pod.namespace:
            for own in each.endpoints:
                if own.target == pod.name:
                    there = [endpoint(address, port.port) for port in each.ports for address in own.addresses]
                    yield f"{each.service}: {', '.join(there)}"


def _netns_name(name: str, plan: Plan) -> Iterator[Field]:
    """The addresses and links of a network namespace."""
    namespace = plan.namespace(name)
    yield "Addresses", [f"{each.interface} dev {each.device}" for each in namespace.addresses]
    yield (
        "Links",
        [
            f"{ours.device} to {theirs.device} in {theirs.namespace}"
            for link in plan.links
            for ours, theirs in (link.ends, link.ends[::-1])
            if ours.namespace == name
        ],
    )


def _service(service: Service, everything: Sequence[KubeObject]) -> Iterator[Field]:
    yield "Name", service.name
    yield "Namespace", service.namespace
    yield "Labels", _labels(service.labels)
    yield "Selector", _labels(service.selector)
    yield "Type", str(service.type)
    yield "IP Family Policy", service.ip_family_policy
    yield "Cluster IPs", "None" if service.headless else list(map(str, service.cluster_ips))
    if service.external_ips:
        yield "External IPs", list(map(str, service.external_ips))
    if service.load_balancer_ingress:
        yield "LoadBalancer Ingress", [str(each.ip or each.hostname) for each in service.load_balancer_ingress]
    pieces = slices_of(service, everything)
    for port in service.ports:
        named = f"{port.name} " if port.name else ""
        node_port = f", node port {port.node_port}" if port.node_port else ""
        yield "Port", f"{named}{port.port}/{port.protocol} to {port.target_port}{node_port}"
        yield "Endpoints", list(_endpoints(port.name, pieces))
    yield "Session Affinity", "None" if service.affinity_timeout is None else f"ClientIP {service.affinity_timeout}s"
    yield "Internal Policy", str(service.internal_traffic_policy)
    yield "External Policy", str(service.external_traffic_policy)
    if service.health_check_node_port:
        yield "Health Check Port", str(service.health_check_node_port)


def _endpoints(port: str, pieces: Sequence[EndpointSlice]) -> Iterator[str]:
    for piece in pieces:
        for each in (found for found in piece.ports if found.name == port):
            for own in piece.endpoints:
                states = [name for name in ("ready", "serving", "terminating") if getattr(own, name)]
                who = f" {own.target}" if own.target else ""
                where = f" on {own.node_name}" if own.node_name else ""
                yield f"{endpoint(own.addresses[0], each.port)}{who}{where}: {', '.join(states) or 'not ready'}"


def _labels(labels: Mapping[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in labels.items()]
