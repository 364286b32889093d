"""The parts of a Scenario document that are well-formed, whatever is wrong with the others.

Owns: ``read_parts``: one mistake in a probe must not hide those in another, nor those in the rest of the same probe.
Must not: compare parts with each other (``inventory`` and ``probes`` do).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from lab.scenario.document import Place
from lab.scenario.problems import Problems
from lab.scenario.schema.probe import (
    AnyTarget,
    ExpectShape,
    ProbeName,
    Sender,
    SendShape,
    SourceShape,
    TargetShape,
)
from lab.scenario.schema.scenario import HostShape, NetworkShape, NodeShape, PodShape, ScenarioDocument
from lab.scenario.validation import validated

__all__ = ["Parts", "ProbeParts", "read_parts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeParts:
    """A probe, part by part. A part is ``None`` where it is not well-formed, or missing though required."""

    name: str | None
    source: SourceShape | None
    target: AnyTarget | None
    send: SendShape | None
    expect: ExpectShape | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A Scenario document, part by part. A part is ``None`` where it is there but not well-formed.

    ``place`` is that of the document, and ``document`` the whole of it where all is well-formed.
    """

    place: Place
    document: ScenarioDocument | None
    network: NetworkShape | None
    nodes: Mapping[str, NodeShape | None]
    pods: Mapping[str, PodShape | None]
    hosts: Mapping[str, HostShape | None]
    probes: tuple[ProbeParts, ...]


def read_parts(place: Place, problems: Problems) -> Parts:
    """Read a Scenario document.

    Args:
        place: the document.
        problems: takes what is wrong with its shape.
    """
    document = validated(ScenarioDocument, place, problems)
    if document is None:
        return _salvaged(place)
    spec = document.spec
    return Parts(
        place=place,
        document=document,
        network=spec.network,
        nodes=spec.nodes,
        pods=spec.pods,
        hosts=spec.hosts,
        probes=tuple(
            ProbeParts(name=probe.name, source=probe.source, target=probe.target, send=probe.send, expect=probe.expect)
            for probe in spec.probes
        ),
    )


def _salvaged(place: Place) -> Parts:
    """The parts of a document that is not well-formed as a whole. What is wrong has been told already."""
    spec = place["spec"]
    network = spec["network"]
    probes = spec["probes"].value
    count = len(probes) if isinstance(probes, list) else 0
    return Parts(
        place=place,
        document=None,
        network=_part(NetworkShape, network) if network.exists else NetworkShape(),
        nodes=_entries(NodeShape, spec["nodes"]),
        pods=_entries(PodShape, spec["pods"]),
        hosts=_entries(HostShape, spec["hosts"]),
        probes=tuple(_probe(spec["probes"][index]) for index in range(count)),
    )


def _probe(place: Place) -> ProbeParts:
    return ProbeParts(
        name=_part(ProbeName, place["name"]),
        source=_part(Sender, place["from"]),
        target=_part(TargetShape, place["to"]),
        send=_part(SendShape, place["send"]) if place["send"].exists else SendShape(),
        expect=_part(ExpectShape, place["expect"]),
    )


def _entries(shape: type[Any], place: Place) -> dict[str, Any]:
    entries = place.value
    if not isinstance(entries, dict):
        return {}
    return {name: shape() if entry is None else _part(shape, place[name]) for name, entry in entries.items()}


def _part(wanted: Any, place: Place) -> Any:
    """What stands at ``place`` if it is as wanted, an annotation of the schema; else ``None``."""
    try:
        return TypeAdapter(wanted).validate_python(place.value, strict=True)
    except ValidationError:
        return None
