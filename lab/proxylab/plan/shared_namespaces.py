"""Refuse probes between pods that share a network namespace; a pod that reaches itself is a normal hairpin.

Packets between pods of one namespace never leave it, so no proxy sees them. If a proxy's rules lead from one to the
other, the packet comes back from the network with a source address of the same namespace: the kernel drops it as a
martian, or delivers the answer over the loopback device, where no rule translates it back.
"""

from collections.abc import Iterable, Iterator, Sequence

from proxylab.cluster.objects import EndpointSlice
from proxylab.errors import ScenarioError
from proxylab.plan.model import Plan, PodPlacement, Role
from proxylab.scenario.model import Scenario
from proxylab.scenario.probes import AddressTarget, PodTarget, Probe, ServiceTarget

__all__ = ["refuse_neighbours"]


def refuse_neighbours(scenario: Scenario, plan: Plan, slices: Iterable[EndpointSlice]) -> None:
    """Refuse probes from a pod to another pod of its own namespace, directly or through a Service.

    Raises:
        ScenarioError: with a line for each such probe.
    """
    known = tuple(slices)
    neighbours = _neighbours(plan)
    problems = [
        f"{probe.position}: probe {probe.name!r}: {probe.source.name} shares its network namespace with "
        f"{reached.name}, and packets between them never leave it; send from a pod with its own namespace"
        for probe in scenario.probes
        if probe.source.name in neighbours
        for reached in _reached(probe, neighbours[probe.source.name], known)
    ]
    if problems:
        raise ScenarioError(problems)


def _reached(
    probe: Probe, neighbours: Sequence[PodPlacement], slices: Iterable[EndpointSlice]
) -> Iterator[PodPlacement]:
    """The first of the sender's neighbours that the probe may reach."""
    match probe.target:
        case PodTarget(pod=name):
            found = [each for each in neighbours if each.name == name]
        case AddressTarget(address=address):
            found = [each for each in neighbours if address in each.addresses]
        case ServiceTarget(namespace=namespace, service=service):
            behind = {
                address
                for slice_ in slices
                if (slice_.namespace, slice_.service) == (namespace, service)
                for endpoint in slice_.endpoints
                if endpoint.ready or endpoint.serving
                for address in endpoint.addresses
            }
            found = [each for each in neighbours if not behind.isdisjoint(each.addresses)]
        case _:
            found = []
    yield from found[:1]


def _neighbours(plan: Plan) -> dict[str, list[PodPlacement]]:
    """By name, each pod that shares a namespace with other pods, and those.

    On the host network a pod has none: the node's rules see every packet.
    """
    nodes = {each.name for each in plan.namespaces if each.role is Role.NODE}
    sharing: dict[str, list[PodPlacement]] = {}
    for pod in plan.pods:
        if pod.namespace not in nodes:
            sharing.setdefault(pod.namespace, []).append(pod)
    return {
        pod.name: [each for each in pods if each is not pod]
        for pods in sharing.values()
        if len(pods) > 1
        for pod in pods
    }
