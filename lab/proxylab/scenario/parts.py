"""The well-formed parts of a Scenario document, even if others are not; and the message for each malformed one.

``read_parts`` reads part by part, so that one mistake in a probe hides neither those in another probe nor those in the
rest of the same probe. ``inventory`` and ``flows`` compare parts with each other. ``validated`` checks any value of a
document by its declaration, with a plain message for each of pydantic's errors.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import partial
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from msgspec import NODEFAULT, Struct, field
from pydantic import Tag, ValidationError
from pydantic_core import ErrorDetails

from proxylab.errors import InternalError
from proxylab.scenario.change import Change
from proxylab.scenario.document import Location, Path, Problems, describe, in_yaml, listed
from proxylab.scenario.expect import Expect
from proxylab.scenario.keys import Declared, Manifest, RefusedError, WrittenAs, declared_keys, other_keys
from proxylab.scenario.matrix import EngineFailure, Exceptional, Matrix
from proxylab.scenario.network import Network
from proxylab.scenario.nodes import LabNode
from proxylab.scenario.pods import Host, LoadBalancer, PodGroup
from proxylab.scenario.probes import Probe, Send, Source, Stream, Target
from proxylab.scenario.reading import placed, read, read_as, read_key
from proxylab.scenario.spec import ScenarioDocument
from proxylab.scenario.steps import Step

AnyDeclared = TypeVar("AnyDeclared", bound=Declared)

_ON_KEY = ("[key]",)
"""The end of pydantic's location for an error in a mapping's key."""


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
    written = validated(ScenarioDocument, location, problems)
    if written is None:
        return _salvaged(location)
    document = placed(written, location)
    spec = document.spec
    return Parts(
        location=location,
        document=document,
        network=spec.network,
        nodes={each.name: each for each in spec.nodes},
        pods={each.name: each for each in spec.pods},
        hosts={each.name: each for each in spec.hosts},
        load_balancers={each.name: each for each in spec.load_balancers},
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
            parts[key.name] = _well_formed(partial(read_key, declared, key.name), at.value, at)
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
    return {
        name: _well_formed(partial(read, declared), {} if entry is None else entry, location[name], name)
        for name, entry in entries.items()
    }


def _part(declared: type[AnyDeclared], location: Location, otherwise: AnyDeclared | None = None) -> AnyDeclared | None:
    """The record at ``location`` if it is well-formed, else ``None``; if the author wrote none, ``otherwise``."""
    return _well_formed(partial(read, declared), location.value, location) if location.exists else otherwise


def _well_formed(reader: Callable[[object], Any], value: object, location: Location, name: str = "") -> Any:
    try:
        made = reader(value)
    except ValidationError:
        return None
    return placed(made, location, name) if isinstance(made, Declared) else made


def validated(declared: type[AnyDeclared], where: Location, problems: Problems) -> AnyDeclared | None:
    """The value at ``where`` as that record, without positions, or ``None`` after noting its mistakes."""
    try:
        return read(declared, where.value)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            _tell(detail, declared, where, problems)
        return None


def _tell(detail: ErrorDetails, declared: Any, root: Location, problems: Problems) -> None:
    kind, location, given = detail["type"], detail["loc"], detail["input"]
    where = _location(root, location)
    refusal = detail.get("ctx", {}).get("error")
    if isinstance(refusal, RefusedError):
        problems.add(where.key if location[-1:] == _ON_KEY else where.spot, **refusal.problem)
    elif kind == "missing":
        problems.add(where[location[-1]].key, "is missing", allowed=_what_to_add(declared, location))
    elif kind == "extra_forbidden":
        found = _annotation_at(declared, location[:-1])
        known = [*_keys(found)]
        word = str(location[-1])
        if word in found.meant:
            problems.add(where.key, "unknown key", allowed=found.meant[word])
        else:
            problems.add(where.key, "unknown key", allowed=f"allowed: {listed(known)}", word=word, known=known)
    elif kind == "string_type":
        quotes = "put it in quotes" if isinstance(given, int | float) else ""
        problems.add(where.spot, f"must be text, is {describe(given)}", allowed=quotes)
    elif kind in ("too_short", "string_too_short"):
        problems.add(where.spot, "must not be empty")
    elif kind in _WANTED:
        problems.add(where.spot, f"must be {_WANTED[kind]}, is {describe(given)}")
    else:
        raise InternalError(f"{where.spot.position}: no message for pydantic's {kind!r}; please report this file")


_WANTED = {
    "int_type": "a whole number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
}


def _location(root: Location, location: Iterable[str | int]) -> Location:
    """The place of a pydantic error. Its location also holds tags of unions and keys that a validator added."""
    where = root
    for part in location:
        if where[part].exists:
            where = where[part]
    return where


def _what_to_add(declared: Any, location: Path) -> str:
    """The words that the key at ``location`` may have, if they are a closed set; otherwise an example."""
    found, owner = _annotation_at(declared, location), _annotation_at(declared, location[:-1])
    if isinstance(found, type) and issubclass(found, StrEnum):
        return f"allowed: {listed(found)}"
    examples = next(key.key.examples for key in declared_keys(owner) if key.alias == location[-1])
    return f"add it, such as {location[-1]}: {in_yaml(examples[0])}" if examples else "add it"


def _annotation_at(declared: Any, location: Path) -> Any:
    reached: Any = declared
    for part in location:
        reached = _step(reached, part)
    return _bare(reached)


def _step(annotation: Any, part: str | int) -> Any:
    """The annotation of the entry ``part`` of a value with this annotation."""
    annotation = _bare(annotation)
    arguments = get_args(annotation)
    match get_origin(annotation):
        case origin if origin in (Union, UnionType):
            tagged = [option for option in arguments if Tag(str(part)) in getattr(option, "__metadata__", ())]
            steps = tagged or [_step(option, part) for option in arguments]
            return next((step for step in steps if step is not None), None)
        case origin if origin in (dict, list):
            return arguments[-1]
        case _ if isinstance(annotation, type) and issubclass(annotation, Declared):
            others = other_keys(annotation)
            return _keys(annotation).get(str(part), read_as(others[1]) if others else None)
    return None


def _keys(declared: type[Declared]) -> dict[str, Any]:
    """The declared keys of a mapping, each with its annotation."""
    known = {key.alias: read_as(key.hint) for key in declared_keys(declared)}
    return {**known, **dict.fromkeys(declared.without_effect, Any)} if issubclass(declared, Manifest) else known


def _bare(annotation: Any) -> Any:
    """An annotation without its metadata, and without ``None`` if that is the only alternative."""
    while True:
        if get_origin(annotation) is Annotated:
            bare, *attached = get_args(annotation)
            form = next((each for each in attached if isinstance(each, WrittenAs)), None)
            annotation = bare if form is None else read_as(form.written)
            continue
        options = [option for option in get_args(annotation) if option is not type(None)]
        if get_origin(annotation) in (Union, UnionType) and len(options) == 1:
            annotation = options[0]
            continue
        return annotation
