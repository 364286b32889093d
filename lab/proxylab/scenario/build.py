"""Build the frozen ``Scenario`` from shapes that passed every check. ``build_intent`` builds probes and streams."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from proxylab.cluster.objects import Service
from proxylab.errors import InternalError
from proxylab.scenario.build_intent import NamedObjects, build_probe, build_stream
from proxylab.scenario.changes import ClusterState
from proxylab.scenario.conditions import axes_of, conditions_of
from proxylab.scenario.configuration import CONFIGURATION_KIND, Configured
from proxylab.scenario.document import Location
from proxylab.scenario.manifests import Manifests, ServiceId
from proxylab.scenario.model import (
    Axis,
    EngineFailure,
    Probe,
    Scenario,
    Step,
    StepException,
    StepExpect,
)
from proxylab.scenario.networks import with_networks
from proxylab.scenario.parts import Parts
from proxylab.scenario.problems import shown
from proxylab.scenario.reading import placed
from proxylab.scenario.schema.exception import EngineFailureShape
from proxylab.scenario.schema.matrix import no_axes
from proxylab.scenario.schema.step import StepExpectShape, StepShape

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
    spec, at = document.spec, parts.location["spec"]
    services = _services(manifests)
    groups, nodes = _present(parts.pods), _present(parts.nodes)
    named = NamedObjects(services, {each: pod for pod in groups for each in pod.pod_names})
    matrix = spec.matrix or no_axes()
    streams = tuple(build_stream(name, each, at["streams"][name], named) for name, each in spec.streams.items())
    steps = tuple(_steps(spec.steps, at["steps"], states, named))
    probes = tuple(build_probe(probe, at["probes"][index], named) for index, probe in enumerate(spec.probes))
    return Scenario(
        file=file,
        name=document.metadata.name,
        description=document.metadata.description,
        links=tuple(document.metadata.links),
        tags=tuple(document.metadata.tags),
        network=with_networks(parts.network or spec.network, matrix),
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
        probes=probes,
        streams=streams,
        steps=steps,
        failures=tuple(_failure(each, at["except"][index]) for index, each in enumerate(spec.exceptions)),
        dns=spec.dns,
        matrix=tuple(Axis(name=axis, values=values) for axis, values in axes_of(matrix).items()),
        notes=(*_notes(manifests, configured), *_long_names(document.metadata.name, probes, steps)),
        proxy=configured.configuration,
    )


def _steps(
    shapes: Sequence[StepShape], location: Location, states: Sequence[ClusterState], named: NamedObjects
) -> Iterator[Step]:
    for index, (shape, state) in enumerate(zip(shapes, states, strict=True)):
        yield _step(shape, location[index], state, NamedObjects(_services(state.manifests), named.pods))


def _step(shape: StepShape, location: Location, state: ClusterState, named: NamedObjects) -> Step:
    """The step at ``location``; ``named`` is for its probes."""
    return Step(
        name=shape.name,
        change=state.change,
        until=placed(shape.until, location["until"]) if shape.until else None,
        expect=_step_expect(shape.expect, location["expect"]),
        probes=tuple(build_probe(probe, location["probes"][index], named) for index, probe in enumerate(shape.probes)),
        exceptions=tuple(
            StepException(
                when=conditions_of(each.when),
                version=each.when.version,
                expect=_step_expect(each.expect, location["except"][index]["expect"]),
                because=each.because,
                position=location["except"][index].key.position,
            )
            for index, each in enumerate(shape.exceptions)
        ),
        position=location["name"].key.position,
    )


def _step_expect(shape: StepExpectShape, location: Location) -> StepExpect:
    return StepExpect(
        streams={name: placed(each, location[name]) for name, each in shape.streams.items()},
        conntrack=shape.conntrack,
        metrics=tuple(shape.metrics),
        position=location.key.position,
        positions={str(key): location[str(key)].key.position for key in location.keys},
    )


def _services(manifests: Manifests) -> dict[ServiceId, Service]:
    return {key: service for key, service in manifests.services.items() if service is not None}


def _failure(shape: EngineFailureShape, location: Location) -> EngineFailure:
    return EngineFailure(
        when=conditions_of(shape.when),
        version=shape.when.version,
        says=shape.engine_fails,
        because=shape.because,
        position=location.key.position,
    )


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
