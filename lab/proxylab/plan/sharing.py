"""Probes between pods that share a namespace.

Owns: their refusal.
Must not: refuse a pod that reaches itself, which is a hairpin as anywhere else.

What one pod of a namespace sends another never leaves it, so no proxy is asked. And where a proxy's rules lead from one
to the other the packet comes back from the wire with a source address that is the namespace's own: the kernel drops it
as a martian, or hands the answer over by the loopback device, and no rule translates that back.
"""

from collections.abc import Iterable, Iterator

from proxylab.cluster.objects import EndpointSlice
from proxylab.errors import ScenarioError
from proxylab.plan.model import Plan, PodPlacement, Role
from proxylab.scenario.model import AddressTarget, PodTarget, Probe, Scenario, ServiceTarget

__all__ = ["refuse_neighbours"]


def refuse_neighbours(scenario: Scenario, plan: Plan, slices: Iterable[EndpointSlice]) -> None:
    """Refuse probes that a pod would send to another pod of its own namespace, or that a Service may lead there.

    Raises:
        ScenarioError: with a line for each such probe.
    """
    known = tuple(slices)
    problems = [
        f"{probe.position}: probe {probe.name!r}: {probe.source.name} shares its namespace with {reached.name}, and "
        "what one sends the other never leaves it; send from a pod that shares with nobody"
        for probe in scenario.probes
        for reached in _reached(probe, plan, known)
    ]
    if problems:
        raise ScenarioError(problems)


def _reached(probe: Probe, plan: Plan, slices: Iterable[EndpointSlice]) -> Iterator[PodPlacement]:
    """The first of the sender's neighbours that the probe may reach."""
    neighbours = tuple(_neighbours(plan, probe.source.name))
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


def _neighbours(plan: Plan, name: str) -> Iterator[PodPlacement]:
    """The other pods in a pod's namespace; those of the host network are their node's programs, which it can tell."""
    nodes = {each.name for each in plan.namespaces if each.role is Role.NODE}
    for own in (pod for pod in plan.pods if pod.name == name and pod.namespace not in nodes):
        yield from (pod for pod in plan.pods if pod.namespace == own.namespace and pod.name != name)
