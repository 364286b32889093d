"""The well-formed parts of a Scenario document, even if others are not.

``read_parts`` reads part by part, so that one mistake in a probe hides neither those in another probe nor those in the
rest of the same probe. ``inventory`` and ``flows`` compare parts with each other.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec import NODEFAULT, Struct, field

from proxylab.scenario.change import Change
from proxylab.scenario.document import Location, Problems
from proxylab.scenario.expect import Expect
from proxylab.scenario.keys import Declared, declared_keys
from proxylab.scenario.matrix import EngineFailure, Exceptional, Matrix
from proxylab.scenario.network import Network
from proxylab.scenario.node_engines import NodeEngine
from proxylab.scenario.nodes import LabNode
from proxylab.scenario.pods import Host, LoadBalancer, PodGroup
from proxylab.scenario.probes import Probe, Send, Source, Stream, Target
from proxylab.scenario.reading import read, read_entry, read_key
from proxylab.scenario.spec import ScenarioDocument
from proxylab.scenario.steps import Step

AnyDeclared = TypeVar("AnyDeclared", bound=Declared)


class ProbeParts(Struct, frozen=True, kw_only=True):
    """A probe or a stream, part by part. A part is ``None`` if it is not well-formed, or missing though required."""

    name: str | None = None
    source: Source | None
    target: Target | None
    send: Send | None
    expect: Expect | None = None
    exceptions: tuple[Exceptional | None, ...] = ()


class StepParts(Struct, frozen=True, kw_only=True):
    """A step, part by part, as ``ProbeParts``. ``whole`` is the step, if all of it is well-formed."""

    whole: Step | None
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
    nodes: Mapping[str, LabNode | None]
    pods: Mapping[str, PodGroup | None]
    hosts: Mapping[str, Host | None]
    load_balancers: Mapping[str, LoadBalancer | None]
    engines: Mapping[str, NodeEngine]
    matrix: Matrix | None
    failures: tuple[EngineFailure | None, ...]
    probes: tuple[ProbeParts, ...]
    streams: Mapping[str, ProbeParts]
    steps: tuple[StepParts, ...]
    in_manifests: Mapping[tuple[str, str], Location] = field(default_factory=dict)

    @property
    def single_pods(self) -> dict[str, PodGroup]:
        """The entry of every single pod, by the pod's name."""
        return {each: pod for pod in self.pods.values() if pod is not None for each in pod.pod_names}

    def at(self, kind: str, name: str) -> Location:
        """The place of an entry of ``nodes``, ``pods`` or ``hosts``, in the spec or in a manifest."""
        return self.in_manifests.get((kind, name)) or self.location["spec"][kind][name]


def read_parts(location: Location, problems: Problems) -> Parts:
    """Read a Scenario document."""
    document = read(ScenarioDocument, location, problems)
    if document is None:
        return _salvaged(location)
    spec = document.spec
    return Parts(
        location=location,
        document=document,
        network=spec.network,
        nodes={each.name: each for each in spec.nodes},
        pods={each.name: each for each in spec.pods},
        hosts={each.name: each for each in spec.hosts},
        load_balancers={each.name: each for each in spec.load_balancers},
        engines=spec.engines,
        matrix=spec.matrix,
        failures=spec.exceptions,
        probes=tuple(map(_parts_of, spec.probes)),
        streams={each.name: _parts_of(each) for each in spec.streams},
        steps=tuple(
            StepParts(whole=each, change=each.change, probes=tuple(map(_parts_of, each.probes))) for each in spec.steps
        ),
    )


def _parts_of(sent: Probe | Stream) -> ProbeParts:
    return ProbeParts(**{key.name: getattr(sent, key.name) for key in declared_keys(type(sent))})


def _salvaged(location: Location) -> Parts:
    """The parts of a document that is not well-formed as a whole. Its mistakes are noted already."""
    spec = location["spec"]
    return Parts(
        location=location,
        document=None,
        network=_part(Network, spec["network"], Network()),
        nodes=_entries(LabNode, spec["nodes"]),
        pods=_entries(PodGroup, spec["pods"]),
        hosts=_entries(Host, spec["hosts"]),
        load_balancers=_entries(LoadBalancer, spec["loadBalancers"]),
        engines={},  # one that is not well-formed is noted, and steps do not depend on the others
        matrix=_part(Matrix, spec["matrix"], Matrix()),
        failures=tuple(_part(EngineFailure, each) for each in _items(spec["except"])),
        probes=tuple(_sent(Probe, each) for each in _items(spec["probes"])),
        streams={name: _sent(Stream, spec["streams"][name]) for name in map(str, spec["streams"].keys)},
        steps=tuple(
            StepParts(
                whole=_part(Step, each),
                change=_part(Change, each["change"], Change()),
                probes=tuple(_sent(Probe, probe) for probe in _items(each["probes"])),
            )
            for each in _items(spec["steps"])
        ),
    )


def _sent(declared: type[Probe | Stream], location: Location) -> ProbeParts:
    """The parts of a probe or stream, each read on its own."""
    parts: dict[str, Any] = {}
    for key in declared_keys(declared):
        at = location[key.alias]
        if at.exists:
            parts[key.name] = read_key(key, at, Problems())
        else:
            parts[key.name] = None if key.default is NODEFAULT else key.default
    parts["exceptions"] = tuple(_part(Exceptional, each) for each in _items(location["except"]))
    return ProbeParts(**parts)


def _items(location: Location) -> list[Location]:
    items = location.value
    return [location[index] for index in range(len(items))] if isinstance(items, list) else []


def _entries(declared: type[AnyDeclared], location: Location) -> dict[str, AnyDeclared | None]:
    """The records of a mapping by their keys. An entry without a value has all defaults."""
    entries = location.value
    if not isinstance(entries, dict):
        return {}
    return {name: read_entry(declared, location[name], name, Problems()) for name in entries}


def _part(declared: type[AnyDeclared], location: Location, otherwise: AnyDeclared | None = None) -> AnyDeclared | None:
    """The record at ``location`` if it is well-formed, else ``None``; if the author wrote none, ``otherwise``."""
    return read(declared, location, Problems()) if location.exists else otherwise
