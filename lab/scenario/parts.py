"""The parts of a Scenario document that are well-formed, whatever is wrong with the others.

Owns: ``read_parts``: one mistake in a probe must not hide those in another one's references.
Must not: compare parts with each other (``inventory`` and ``probes`` do).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from lab.scenario.document import Place
from lab.scenario.problems import Problems
from lab.scenario.schema.probe import ProbeShape
from lab.scenario.schema.scenario import (
    HostShape,
    MetadataShape,
    NetworkShape,
    NodeShape,
    PodShape,
    ScenarioDocument,
)
from lab.scenario.validation import AnyShape, validated

__all__ = ["Parts", "read_parts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A Scenario document, part by part. A part is ``None`` where it is there but not well-formed.

    ``place`` is that of the document. ``probes`` are by index.
    """

    place: Place
    metadata: MetadataShape | None
    network: NetworkShape | None
    nodes: Mapping[str, NodeShape | None]
    pods: Mapping[str, PodShape | None]
    hosts: Mapping[str, HostShape | None]
    probes: Mapping[int, ProbeShape]


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
        metadata=document.metadata,
        network=spec.network,
        nodes=spec.nodes,
        pods=spec.pods,
        hosts=spec.hosts,
        probes=dict(enumerate(spec.probes)),
    )


def _salvaged(place: Place) -> Parts:
    """The parts of a document that is not well-formed as a whole. What is wrong has been told already."""
    spec = place["spec"]
    network = spec["network"]
    probes = spec["probes"].value
    indexes = range(len(probes) if isinstance(probes, list) else 0)
    read = {index: validated(ProbeShape, spec["probes"][index]) for index in indexes}
    return Parts(
        place=place,
        metadata=validated(MetadataShape, place["metadata"]),
        network=validated(NetworkShape, network) if network.exists else NetworkShape(),
        nodes=_entries(NodeShape, spec["nodes"]),
        pods=_entries(PodShape, spec["pods"]),
        hosts=_entries(HostShape, spec["hosts"]),
        probes={index: probe for index, probe in read.items() if probe is not None},
    )


def _entries(shape: type[AnyShape], place: Place) -> dict[str, AnyShape | None]:
    entries = place.value
    if not isinstance(entries, dict):
        return {}
    return {name: shape() if entry is None else validated(shape, place[name]) for name, entry in entries.items()}
