"""Services behind which nothing answers: no pod has the labels of the selector, or none listens on the target port.

Each is a warning and no mistake, since a cluster takes both. It is none where a probe of the Service expects something
else than delivery, where a step brings the pod, and where the author gives the EndpointSlices.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from proxylab.cluster.objects import Service
from proxylab.cluster.slices import NamespacedLabel
from proxylab.scenario.document import listed
from proxylab.scenario.manifests import Manifests
from proxylab.scenario.pods import PodGroup
from proxylab.scenario.probes import Probe, ServiceTarget
from proxylab.scenario.words import Outcome

_ByLabel = Mapping[NamespacedLabel, list[PodGroup]]
State = tuple[Manifests, Mapping[str, PodGroup]]
"""The objects and the single pods of the cluster at one time."""


def silent_services(states: Sequence[State], probes: Sequence[Probe]) -> Iterator[str]:
    """A warning for each such Service; ``probes`` are all of the scenario, those of steps too."""
    first, _ = states[0]
    by_label = [_by_label(pods) for _, pods in states]
    intended = {each.target.id for each in probes if isinstance(each.target, ServiceTarget) and _expects_silence(each)}
    for key, service in first.services.items():
        if service is None or not service.selector or service.external_name or key in intended or key in first.sliced:
            continue
        behind = [pod for (found, _), pods in zip(states, by_label, strict=True) for pod in _behind(key, found, pods)]
        if not behind:
            yield _without_pods(service, states)
        elif not any(pod.owner for pod in behind):  # of a workload's pods there is a note already
            yield from _unheard(service, behind)


def _expects_silence(probe: Probe) -> bool:
    expected = (probe.expect, *(each.expect for each in probe.exceptions))
    return any(each.outcome is not Outcome.DELIVERED for each in expected)


def _by_label(pods: Mapping[str, PodGroup]) -> _ByLabel:
    """The pods by namespace and label, since a cluster may have thousands of Services."""
    found: defaultdict[NamespacedLabel, list[PodGroup]] = defaultdict(list)
    for pod in pods.values():
        for key, value in pod.labels.items():
            found[NamespacedLabel(pod.namespace, key, value)].append(pod)
    return found


def _behind(key: tuple[str, str], manifests: Manifests, pods: _ByLabel) -> list[PodGroup]:
    service = manifests.services.get(key)
    if service is None or not service.selector:
        return []
    label, value = next(iter(service.selector.items()))
    candidates = pods.get(NamespacedLabel(service.namespace, label, value), ())
    return [each for each in candidates if service.selector.items() <= each.labels.items()]


def _without_pods(service: Service, states: Sequence[State]) -> str:
    selector = ",".join(f"{key}={value}" for key, value in service.selector.items())
    elsewhere = {
        pod.namespace for _, pods in states for pod in pods.values() if service.selector.items() <= pod.labels.items()
    }
    where = f"; pods with these labels are in namespace {listed(sorted(elsewhere))}" if elsewhere else ""
    return f"warning: Service {service.namespace}/{service.name}: its selector {selector} matches no pod{where}"


def _unheard(service: Service, behind: Sequence[PodGroup]) -> Iterator[str]:
    heard = {(port.protocol, target) for pod in behind for port in pod.ports for target in (port.port, port.name)}
    for port in service.ports:
        if (port.protocol, port.target_port) not in heard:
            own = sorted({f"{each.port}/{each.protocol}" for pod in behind for each in pod.ports})
            where = f"{port.protocol} port {port.target_port}, its targetPort; they listen on {listed(own)}"
            yield f"warning: Service {service.namespace}/{service.name}: no pod that it selects listens on {where}"
