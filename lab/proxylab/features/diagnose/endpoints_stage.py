"""The stage ``endpoints``: does the Service have endpoints, and do they answer."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from proxylab.cluster.objects import Endpoint, Pod, Service, TrafficPolicy
from proxylab.evidence.words import amount, endpoint, listed
from proxylab.features.diagnose.model import Finding, Stage, breaks, holds
from proxylab.features.diagnose.subject import Backend, DiagnosedService, FrontendAddress
from proxylab.verdict.causes.no_endpoint import (
    GIVE_ENDPOINTS,
    MAKE_READY,
    RELABEL,
    misplaced,
    nearest_pod,
    why_no_such_port,
    why_none_listens,
    why_unnamed,
)


class Dial(Struct, frozen=True, kw_only=True):
    """The result of dialling an endpoint by its own address, past the Service.

    Attributes:
        backend: its address and port.
        sender: the pod, node or host that dialled.
        why: the reason why it did not, as a sentence.
        at_home: whether a silent endpoint answers its own node; ``None`` where its node did not dial.
    """

    backend: Backend
    sender: str
    answered: bool
    why: str = ""
    at_home: bool | None = None
    node: str = ""


def ready_endpoints(subject: DiagnosedService) -> tuple[Backend, ...]:
    """The endpoints that should get traffic: the ready ones, or, if there are none, those that still serve."""
    return tuple(dict.fromkeys((each.addresses[0], number) for each, number in _usable(subject)))


def _usable(subject: DiagnosedService) -> Iterator[tuple[Endpoint, int]]:
    everything = list(subject.endpoints())
    for port in subject.service.ports:
        own = [(each.endpoint, each.number) for each in everything if each.port is port]
        ready = [each for each in own if each[0].ready]
        yield from ready or [each for each in own if each[0].serving and each[0].terminating]


def without_backing(subject: DiagnosedService, node: str | None, home: str | None = None) -> Finding | None:
    """The finding that the Service has no endpoint to use; ``None`` where it has one.

    ``node`` is the one that the user names: policy Local needs an endpoint there. ``home`` is that of the pod that
    dials: ``internalTrafficPolicy: Local`` needs one there.
    """
    service = subject.service
    about = f"describe service {service.name}"
    if not service.ports and not service.headless:
        return breaks(Stage.ENDPOINTS, ("the Service has no port",), f"{service.name} has no port.", about)
    chosen = _selected(subject)
    if service.selector and not chosen:
        spelled = ",".join(f"{key}={value}" for key, value in service.selector.items())
        cause = f"the selector of {service.name}, {spelled}, matches no pod{_nearest_pod(subject)}; {RELABEL}."
        return breaks(Stage.ENDPOINTS, (f"{spelled} matches no pod",), cause, about, "get pods -o wide")
    if not service.selector and not any(each.endpoints for each in subject.slices):
        seen = "no selector, and no EndpointSlice has an endpoint"
        cause = f"{service.name} has no selector, and no EndpointSlice names an endpoint for it; {GIVE_ENDPOINTS}."
        return breaks(Stage.ENDPOINTS, (seen,), cause, about, "get endpointslices")
    return _without_port(subject, chosen) or _none_ready(subject, chosen) or _none_local(subject, node, home)


def _without_port(subject: DiagnosedService, chosen: Sequence[Pod]) -> Finding | None:
    """A target port whose name no pod declares, or a port that no EndpointSlice has."""
    name = subject.service.name
    has = {(port.name, port.protocol) for found in subject.slices for port in found.ports if found.endpoints}
    for port in subject.service.ports:
        if (port.name, port.protocol) in has:
            continue
        if chosen and isinstance(port.target_port, str):
            seen, cause = f"no pod has a port {port.target_port!r}", why_unnamed(port, chosen)
            look = (f"get pod {chosen[0].name} -o yaml", f"describe service {name}")
            return breaks(Stage.ENDPOINTS, (seen,), cause, *look)
        if not subject.service.selector:
            seen = f"no EndpointSlice has the port {port.name or port.port}"
            cause = why_no_such_port(name, port, subject.families[0], subject.slices)
            return breaks(Stage.ENDPOINTS, (seen,), cause, "get endpointslices -o yaml", f"describe service {name}")
    return None


def _none_ready(subject: DiagnosedService, chosen: Sequence[Pod]) -> Finding | None:
    if ready_endpoints(subject):
        return None
    names = [pod.name for pod in chosen] or [str(each.endpoint.addresses[0]) for each in subject.endpoints()]
    leaving = bool(chosen) and all(pod.terminating for pod in chosen)
    state = "terminating and not serving" if leaving else "not ready"
    cure = "" if leaving else f"; {MAKE_READY}"
    be = "is" if len(names) == 1 else "are"
    cause = f"none of {amount(len(names), 'endpoint')} is ready: {listed(names)} {be} {state}{cure}."
    look = (f"get endpoints {subject.service.name} -o yaml", "get pods -o wide")
    return breaks(Stage.ENDPOINTS, (f"0 of {amount(len(names), 'endpoint')} ready",), cause, *look)


def _none_local(subject: DiagnosedService, named: str | None, home: str | None) -> Finding | None:
    """A policy Local that leaves the named node, or every node, without an endpoint."""
    nodes = [each.name for each in subject.nodes]
    for frontend in subject.frontends:
        key, policy = _policy(subject.service, frontend)
        node = named or (home if frontend.is_internal else None)
        without = [each for each in nodes if not subject.local(frontend, each)]
        if policy is not TrafficPolicy.LOCAL:
            continue
        misnamed = next(filter(None, (_misnamed(subject, each.endpoint) for each in subject.endpoints())), "")
        if not misnamed and node not in without and len(without) < len(nodes):
            continue
        where = node if node in without else "any node"
        others = [each for each in nodes if each not in without]
        only = f"; nodes with one: {listed(others)}; Cluster uses those from every node" if others else ""
        cause = f"{key} is Local and no endpoint is on {where}, so packets to the {frontend} there are dropped{only}."
        seen = f"{key} is Local, and none on {where}"
        if misnamed:
            seen, cause = f"{key} is Local, and a slice names a wrong node", f"{key} is Local, and {misnamed}."
        look = (f"get endpoints {subject.service.name} -o yaml", f"describe service {subject.service.name}")
        return breaks(Stage.ENDPOINTS, (seen,), cause, *look)
    return None


def _misnamed(subject: DiagnosedService, found: Endpoint) -> str:
    """That a slice names a wrong node, or none, for an endpoint; empty where it names the right one."""
    address, nodes = found.addresses[0], [each.name for each in subject.nodes]
    return misplaced(found, subject.name_of_address(address), subject.pod_at(address), nodes)


def _policy(service: Service, frontend: FrontendAddress) -> tuple[str, TrafficPolicy]:
    if frontend.is_internal:
        return "internalTrafficPolicy", service.internal_traffic_policy
    return "externalTrafficPolicy", service.external_traffic_policy


def judge_endpoints(subject: DiagnosedService, dials: Sequence[Dial]) -> Finding:
    """Judge whether every dialled endpoint answers."""
    silent = next((dial for dial in dials if not dial.answered), None)
    addresses = dict.fromkeys(each.endpoint.addresses[0] for each in subject.endpoints())
    ready = {address for address, _ in ready_endpoints(subject)}
    count = f"{len(ready):,} of {amount(len(addresses), 'endpoint')} ready"
    if silent is not None:
        name = subject.name_of(silent.backend)
        if silent.at_home:
            cause = f"{name} answers its own node {silent.node}, but not {silent.sender}: {silent.why}"
        else:
            cause = f"{name} does not answer when {silent.sender} dials it past the Service: {silent.why}"
            cause = " ".join(filter(None, (cause, _why_silent(subject, silent.backend))))
        sender, target = silent.sender, endpoint(*silent.backend)
        look = (f"trace {sender} {target}", f"describe service {subject.service.name}")
        return breaks(Stage.ENDPOINTS, (f"{name} does not answer {sender}", count), cause, *look)
    names = list(dict.fromkeys(subject.name_of_address(dial.backend[0]) for dial in dials))
    answering = f"{listed(names)} {'answers' if len(names) == 1 else 'answer'} when dialled past the Service"
    unready = list(dict.fromkeys(subject.name_of_address(each) for each in addresses if each not in ready))
    left = (f"not ready: {listed(unready)}",) if unready else ()
    return holds(Stage.ENDPOINTS, count, answering, *left, *_dropping(subject))


def _why_silent(subject: DiagnosedService, backend: Backend) -> str:
    """The Service's target port, where no program of the pod listens on it, as a sentence."""
    address, number = backend
    silent = (each.port for each in subject.endpoints() if (each.endpoint.addresses[0], each.number) == backend)
    port = next(silent, None)
    if port is None:
        return ""
    why = why_none_listens(subject.service, port, subject.pod_at(address), number)
    return why[:1].upper() + why[1:]


def _dropping(subject: DiagnosedService) -> Iterator[str]:
    """What nodes drop under a policy Local, or outside the ranges of a load balancer, as they should."""
    if ranges := subject.service.source_ranges:
        allowed = listed(list(map(str, ranges)))
        yield f"loadBalancerSourceRanges: nodes drop clients of load-balancer IPs outside {allowed}"
    noted = set()
    for frontend in subject.frontends:
        key, policy = _policy(subject.service, frontend)
        without = [each.name for each in subject.nodes if not subject.local(frontend, each.name)]
        if policy is TrafficPolicy.LOCAL and without and key not in noted:
            noted.add(key)
            what = "packets of its own clients" if frontend.is_internal else "packets from outside"
            yield f"{key} Local: {listed(without)} {'drops' if len(without) == 1 else 'drop'} {what}"


def _selected(subject: DiagnosedService) -> list[Pod]:
    service = subject.service
    return [
        pod
        for pod in subject.pods
        if service.selector and pod.namespace == service.namespace and service.selector.items() <= pod.labels.items()
    ]


def _nearest_pod(subject: DiagnosedService) -> str:
    """What the pod lacks whose labels come closest, as the end of a clause."""
    wanted, namespace = subject.service.selector, subject.service.namespace
    own = [pod for pod in subject.pods if pod.namespace == namespace]
    elsewhere = [pod for pod in subject.pods if pod.namespace != namespace and wanted.items() <= pod.labels.items()]
    nearest = nearest_pod(wanted, own, elsewhere)
    return f"; {nearest}" if nearest else ""
