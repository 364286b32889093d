"""The well-formed parts of a Scenario document, even if others are not.

``read_parts`` reads part by part, so that one mistake in a probe hides neither those in another probe nor those in the
rest of the same probe. ``inventory`` and ``flows`` compare parts with each other.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace
from pydantic import TypeAdapter, ValidationError

from proxylab.scenario.document import Location
from proxylab.scenario.keys import Declared
from proxylab.scenario.manifests import Manifests
from proxylab.scenario.model import (
    Change,
    EngineFailure,
    Exceptional,
    Expect,
    Host,
    LoadBalancer,
    Matrix,
    Network,
    Node,
    PodGroup,
    Probe,
    Send,
    Source,
    Stream,
    Target,
)
from proxylab.scenario.probes import AnyTarget, ProbeName, Sender
from proxylab.scenario.problems import Problems
from proxylab.scenario.reading import placed, read_as
from proxylab.scenario.schema.scenario import ScenarioDocument
from proxylab.scenario.schema.step import StepShape
from proxylab.scenario.validation import validated

__all__ = ["Parts", "ProbeParts", "StepParts", "read_parts", "with_objects"]


AnyDeclared = TypeVar("AnyDeclared", bound=Declared)


class ProbeParts(Struct, frozen=True, kw_only=True):
    """A probe or a stream, part by part. A part is ``None`` if it is not well-formed, or missing though required."""

    name: str | None
    source: Source | None
    target: Target | None
    send: Send | None
    expect: Expect | None
    exceptions: tuple[Exceptional | None, ...] = ()


class StepParts(Struct, frozen=True, kw_only=True):
    """A step, part by part, as ``ProbeParts``. ``shape`` is the whole step, if all of it is well-formed."""

    shape: "StepShape | None"
    change: Change | None
    probes: tuple[ProbeParts, ...]


class Parts(Struct, frozen=True, kw_only=True):
    """A Scenario document, part by part. A part is ``None`` if it is there but not well-formed.

    ``document`` is the whole document, if all of it is well-formed.
    ``in_manifests`` are the places of pods and nodes that the author gives as manifests, by kind and name.
    """

    location: Location
    document: ScenarioDocument | None
    network: Network | None
    nodes: Mapping[str, Node | None]
    pods: Mapping[str, PodGroup | None]
    hosts: Mapping[str, Host | None]
    load_balancers: Mapping[str, LoadBalancer | None]
    matrix: Matrix | None
    failures: tuple[EngineFailure | None, ...]
    probes: tuple[ProbeParts, ...]
    streams: Mapping[str, ProbeParts]
    steps: tuple[StepParts, ...]
    in_manifests: Mapping[tuple[str, str], Location] = field(default_factory=dict)

    def at(self, kind: str, name: str) -> Location:
        """The place of an entry of ``nodes``, ``pods`` or ``hosts``, in the spec or in a manifest."""
        return self.in_manifests.get((kind, name)) or self.location["spec"][kind][name]


def read_parts(location: Location, problems: Problems) -> Parts:
    """Read a Scenario document.

    Args:
        location: the document.
        problems: takes the mistakes in its shape.
    """
    document = validated(ScenarioDocument, location, problems)
    if document is None:
        return _salvaged(location)
    spec, at = document.spec, location["spec"]
    return Parts(
        location=location,
        document=document,
        network=placed(spec.network, at["network"]),
        nodes=_placed_entries(spec.nodes, at["nodes"]),
        pods=_placed_entries(spec.pods, at["pods"]),
        hosts=_placed_entries(spec.hosts, at["hosts"]),
        load_balancers=_placed_entries(spec.load_balancers, at["loadBalancers"]),
        matrix=spec.matrix,
        failures=tuple(spec.exceptions),
        probes=tuple(map(_parts_of, spec.probes)),
        streams={
            name: ProbeParts(name=None, source=stream.source, target=stream.target, send=stream.send, expect=None)
            for name, stream in spec.streams.items()
        },
        steps=tuple(
            StepParts(shape=step, change=step.change, probes=tuple(map(_parts_of, step.probes))) for step in spec.steps
        ),
    )


def _parts_of(probe: Probe) -> ProbeParts:
    return ProbeParts(
        name=probe.name,
        source=probe.source,
        target=probe.target,
        send=probe.send,
        expect=probe.expect,
        exceptions=tuple(probe.exceptions),
    )


def with_objects(parts: Parts, manifests: Manifests, problems: Problems) -> Parts:
    """The parts, with the Pods and Nodes from manifests added.

    A Node adds labels, taints and addresses to the node of that name, or is a further node.
    """
    pods, nodes, in_manifests = dict(parts.pods), dict(parts.nodes), dict(parts.in_manifests)
    for name, given in manifests.pods.items():
        location = given.location["metadata"]["name"]
        if name in pods:
            line = parts.at("pods", name).key.position.line
            problems.add(
                location.spot,
                f"spec.pods has a pod called {name} too, in line {line}",
                allowed="rename one of the two",
            )
            continue
        pods[name], in_manifests["pods", name] = given.shape, location
    for name, given in manifests.nodes.items():
        own = nodes.get(name)
        if name not in nodes:
            nodes[name], in_manifests["nodes", name] = given.shape, given.location["metadata"]["name"]
        elif own is not None and given.shape is not None:
            update = {
                "labels": {**given.shape.labels, **own.labels},
                "taints": own.taints or given.shape.taints,
                "terminating": own.terminating or given.shape.terminating,
                "internal_ips": own.internal_ips or given.shape.internal_ips,
            }
            nodes[name] = replace(own, **update)
    return replace(parts, pods=pods, nodes=nodes, in_manifests=in_manifests)


def _salvaged(location: Location) -> Parts:
    """The parts of a document that is not well-formed as a whole. Its mistakes are noted already."""
    spec = location["spec"]
    network = spec["network"]
    return Parts(
        location=location,
        document=None,
        network=_placed(Network, network) if network.exists else Network(),
        nodes=_placed_entries(_entries(Node, spec["nodes"]), spec["nodes"]),
        pods=_placed_entries(_entries(PodGroup, spec["pods"]), spec["pods"]),
        hosts=_placed_entries(_entries(Host, spec["hosts"]), spec["hosts"]),
        load_balancers=_placed_entries(_entries(LoadBalancer, spec["loadBalancers"]), spec["loadBalancers"]),
        matrix=_part(Matrix, spec["matrix"]) if spec["matrix"].exists else Matrix(),
        failures=tuple(_part(EngineFailure, each) for each in _items(spec["except"])),
        probes=tuple(map(_probe, _items(spec["probes"]))),
        streams={name: _stream(spec["streams"][name]) for name in _entries(Stream, spec["streams"])},
        steps=tuple(map(_step, _items(spec["steps"]))),
    )


def _step(location: Location) -> StepParts:
    return StepParts(
        shape=_part(StepShape, location),
        change=_part(Change, location["change"]) if location["change"].exists else Change(),
        probes=tuple(map(_probe, _items(location["probes"]))),
    )


def _probe(location: Location) -> ProbeParts:
    return ProbeParts(
        name=_part(ProbeName, location["name"]),
        source=_part(Sender, location["from"]),
        target=_part(AnyTarget, location["to"]),
        send=_part(Send, location["send"]) if location["send"].exists else Send(),
        expect=_part(Expect, location["expect"]),
        exceptions=tuple(_part(Exceptional, each) for each in _items(location["except"])),
    )


def _stream(location: Location) -> ProbeParts:
    return ProbeParts(
        name=None,
        source=_part(Sender, location["from"]),
        target=_part(AnyTarget, location["to"]),
        send=_part(Send, location["send"]) if location["send"].exists else Send(),
        expect=None,
    )


def _items(location: Location) -> list[Location]:
    items = location.value
    return [location[index] for index in range(len(items))] if isinstance(items, list) else []


def _entries(shape: type[Any], location: Location) -> dict[str, Any]:
    entries = location.value
    if not isinstance(entries, dict):
        return {}
    return {name: _well_formed(shape, {} if entry is None else entry) for name, entry in entries.items()}


def _placed_entries(entries: Mapping[str, AnyDeclared | None], location: Location) -> dict[str, AnyDeclared | None]:
    """The records of a mapping by their keys, with their names and positions."""
    return {name: None if each is None else placed(each, location[name], name) for name, each in entries.items()}


def _part(wanted: Any, location: Location) -> Any:
    """The value at ``location`` if it matches ``wanted``, an annotation of the schema; else ``None``."""
    return _well_formed(wanted, location.value)


def _placed(wanted: type[AnyDeclared], location: Location) -> AnyDeclared | None:
    """The record at ``location`` with its positions, if the value is well-formed."""
    found = _part(wanted, location)
    return placed(found, location) if found is not None else None


def _well_formed(wanted: Any, value: object) -> Any:
    try:
        return TypeAdapter(read_as(wanted)).validate_python(value, strict=True)
    except ValidationError:
        return None
