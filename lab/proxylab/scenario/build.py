"""Build the frozen ``Scenario`` from parts that passed every check."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from proxylab.cluster.objects import Service
from proxylab.errors import InternalError
from proxylab.scenario.changes import ClusterState
from proxylab.scenario.configuration import CONFIGURATION_KIND, Configured
from proxylab.scenario.manifests import Manifests, ServiceId
from proxylab.scenario.model import (
    Probe,
    Scenario,
    Step,
)
from proxylab.scenario.networks import with_networks
from proxylab.scenario.parts import Parts
from proxylab.scenario.problems import shown

__all__ = ["build_scenario"]

Entry = TypeVar("Entry")

_LONGEST_NAME = 80
"""CI reports show the name of a probe on its own, and cut off a longer one."""


def build_scenario(
    file: str, parts: Parts, manifests: Manifests, states: "Sequence[ClusterState]", configured: Configured
) -> Scenario:
    """Build the Scenario from documents that passed every check.

    Args:
        file: the file's name, for positions.
        parts: the Scenario document, with the Pods and Nodes from manifests.
        manifests: the other objects.
        states: the cluster's state at each step.
        configured: the configuration of the proxies.
    """
    document = parts.document
    if document is None:
        raise InternalError(f"{file}: proxylab refuses this file without a reason; please report it")
    spec = document.spec
    services = _services(manifests)
    groups, nodes = _present(parts.pods), _present(parts.nodes)
    steps = tuple(replace(step, change=state.change) for step, state in zip(spec.steps, states, strict=True))
    return Scenario(
        file=file,
        name=document.metadata.name,
        description=document.metadata.description,
        links=document.metadata.links,
        tags=document.metadata.tags,
        network=with_networks(parts.network or spec.network, spec.matrix),
        nodes=nodes,
        pods=tuple(replace(pod, nodes=pod.nodes or (nodes[0].name,)) for pod in groups),
        hosts=_present(parts.hosts),
        services=tuple(services.values()),
        service_positions=tuple(manifests.locations[key].spot.position for key in services),
        slices=tuple(each for each in manifests.slices.values() if (each.namespace, each.service) in services),
        load_balancers=tuple(
            replace(each, nodes=each.nodes or tuple(node.name for node in nodes))
            for each in _present(parts.load_balancers)
        ),
        probes=spec.probes,
        streams=spec.streams,
        steps=steps,
        failures=spec.exceptions,
        dns=spec.dns,
        matrix=spec.matrix,
        notes=(*_notes(manifests, configured), *_long_names(document.metadata.name, spec.probes, steps)),
        proxy=configured.configuration,
    )


def _services(manifests: Manifests) -> dict[ServiceId, Service]:
    return {key: service for key, service in manifests.services.items() if service is not None}


def _present(entries: Mapping[str, Entry | None]) -> tuple[Entry, ...]:
    return tuple(each for each in entries.values() if each is not None)


def _notes(manifests: Manifests, configured: Configured) -> tuple[str, ...]:
    """Effects that may surprise the author: each key without an effect, once."""
    notes = []
    if manifests.ignored:
        notes.append(f"no effect on proxying: {', '.join(sorted(manifests.ignored))}")
    if configured.ignored:
        notes.append(f"no effect in {CONFIGURATION_KIND}: {', '.join(configured.ignored)}")
    return (*notes, *manifests.notes)


def _long_names(scenario: str, probes: Sequence[Probe], steps: "Sequence[Step]") -> Iterator[str]:
    """A warning for each name that is too long for a CI report."""
    names = [scenario, *(probe.name for probe in probes), *(step.name for step in steps)]
    names += [probe.name for step in steps for probe in step.probes]
    for name in names:
        if len(name) > _LONGEST_NAME:
            yield f"warning: {shown(name)} is {len(name)} characters long; at most {_LONGEST_NAME} fit a report"
