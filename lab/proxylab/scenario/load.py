"""Read a file as a ``Scenario``, or report every mistake in it at once.

A mistake must not hide another one or cause a false one. So loading works in layers, and each layer continues with the
parts that the one before could read: YAML (``source``), each document by its shape and each well-formed part
(``parts``, ``manifests``), the parts against each other (``inventory``, ``networks``, ``cases``, ``flows``,
``streams``). A malformed part still counts as declared, so references to it are no mistakes. The module builds the
``Scenario`` only if no layer found a mistake.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar

from msgspec.structs import replace

from proxylab.errors import InternalError
from proxylab.scenario.applied import read_applied
from proxylab.scenario.cases import check_conditions
from proxylab.scenario.changes import ClusterState, read_changes
from proxylab.scenario.configuration import CONFIGURATION_KIND, Configured, read_configuration
from proxylab.scenario.dns import Dns
from proxylab.scenario.document import Document, Location, Problems, Spot, shown, with_probes, with_steps
from proxylab.scenario.flows import check_probes
from proxylab.scenario.host_ports import check_host_ports
from proxylab.scenario.inventory import Inventory, Subject, take_inventory, with_objects
from proxylab.scenario.kinds import note_on
from proxylab.scenario.manifests import Manifests, check_services, read_manifests
from proxylab.scenario.model import Scenario
from proxylab.scenario.networks import check_network, known_network, with_networks
from proxylab.scenario.parts import Parts, read_parts
from proxylab.scenario.patched_engines import PatchedEngines, read_engines
from proxylab.scenario.probes import Probe
from proxylab.scenario.readable import why_unreadable
from proxylab.scenario.services import DEFAULT_NAMESPACE
from proxylab.scenario.silent_services import State, silent_services
from proxylab.scenario.source import MOST_BYTES, decode, read_documents
from proxylab.scenario.steps import Step
from proxylab.scenario.streams import check_steps, check_streams
from proxylab.scenario.strict import check_strictly
from proxylab.scenario.words import Position, Program
from proxylab.scenario.workload_timeline import Rollouts, with_workloads

__all__ = [
    "holds_scenario",
    "load_scenario",
    "parse_scenario",
    "parse_with_manifests",
    "parse_with_probes",
    "parse_with_steps",
    "read_text",
]

Entry = TypeVar("Entry")

_SCENARIO: Final = re.compile(r"^kind:\s*[\"']?Scenario[\"']?\s*(#.*)?$", re.MULTILINE)

_LONGEST_NAME: Final = 80
"""CI reports show the name of a probe on its own, and cut off a longer one."""


def load_scenario(path: Path, *, strict: str | None = None) -> Scenario:
    """Read a scenario file.

    Args:
        path: the file.
        strict: also check manifests against this Kubernetes version's schema (see ``proxylab.scenario.strict``).

    Raises:
        ScenarioError: with a line for each mistake, or the reason why the file is unreadable.
        CapabilityError: ``strict`` needs a package that is not installed.
    """
    return parse_scenario(read_text(path), str(path), strict=strict)


def read_text(path: Path) -> str:
    """The text of a scenario file. Raises ``ScenarioError`` if the file is unreadable."""
    problems = Problems()
    text = _read(path, _start(str(path)), problems)
    problems.raise_any()
    return text


def parse_scenario(text: str, file: str, *, strict: str | None = None) -> Scenario:
    """Read a scenario from text.

    Args:
        text: the YAML of one scenario file.
        file: the name for positions; the paths of ``spec.manifests`` are relative to its folder.
        strict: as for ``load_scenario``.

    Raises:
        ScenarioError: with a line for each mistake.
        CapabilityError: ``strict`` needs a package that is not installed.
    """
    return _scenario(text, file, Problems(), strict=strict)


def parse_with_probes(text: str, file: str, probes: Sequence[object], position: Position) -> Scenario:
    """Read a scenario with these probes instead of its own (``document.with_probes``), for a run.

    Raises:
        ScenarioError: with a line for each mistake; those in the probes at ``position``.
    """
    return _scenario(
        text, file, Problems(), strict=None, amend=lambda location: with_probes(location, probes, position)
    )


def parse_with_steps(text: str, file: str, kept: int, steps: Sequence[tuple[object, Position]]) -> Scenario:
    """Read a scenario with these steps after its first ones (``document.with_steps``), for a run.

    Raises:
        ScenarioError: with a line for each mistake; those in a step at its own position.
    """
    return _scenario(text, file, Problems(), strict=None, amend=lambda location: with_steps(location, kept, steps))


def parse_with_manifests(text: str, file: str, applied: Mapping[str, str]) -> Scenario:
    """Read a scenario to whose cluster further manifests are applied, whole objects in place of those of their names.

    ``applied`` are the texts of files by their names, in their order. Raises ``ScenarioError``.
    """
    return _scenario(text, file, Problems(), strict=None, applied=applied)


def holds_scenario(text: str) -> bool:
    """Whether one of the documents of a text is a scenario, as far as one line says it."""
    return _SCENARIO.search(text) is not None


def _read(path: Path, spot: Spot, problems: Problems) -> str:
    """The text of a file; empty after noting at ``spot`` why it is unreadable."""
    try:
        if why := why_unreadable(path):
            problems.add(spot, f"the file cannot be read: {why}", allowed="name a regular file")
            return ""
        with path.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        problems.add(
            spot, f"the file cannot be read: {reason}", allowed="give a readable path, relative to this file's folder"
        )
        return ""
    return decode(data, str(path), problems) or ""


def _scenario(
    text: str,
    file: str,
    problems: Problems,
    *,
    strict: str | None,
    amend: Callable[[Location], Location] = lambda location: location,
    applied: Mapping[str, str] = MappingProxyType({}),
) -> Scenario:
    documents, complete = read_documents(text, file, problems)
    scenarios = [document.root for document in documents if _is_scenario(document)]
    configurations = [document.root for document in documents if _is_configuration(document)]
    apart = {id(location.document) for location in (*scenarios, *configurations)}
    others = [document.root for document in documents if id(document) not in apart]
    for surplus in scenarios[1:]:
        problems.add(surplus.spot, "the file has a second Scenario", allowed="one file holds one scenario")
    if not scenarios and complete:
        needed = "needed: a document with apiVersion: proxylab/v1 and kind: Scenario"
        problems.add(_start(file), "the file has no Scenario", allowed=needed)
    if not scenarios:
        read_configuration(configurations, problems)
        read_manifests(others, None, problems)
        _check_strictly(others, strict, problems)
        problems.raise_any()
    whole = amend(scenarios[0])
    parts = read_parts(whole, problems)
    configured = read_configuration(configurations, problems)
    files = partial(_further, folder=Path(file).parent, problems=problems)
    others += files(whole["spec"]["manifests"])
    for name, more in applied.items():
        others = _replaced(others, [each.root for each in read_documents(more, name, problems)[0]])
    manifests = read_manifests(others, known_network(parts), problems)
    check_services(manifests, problems)
    _check_strictly(others, strict, problems)
    in_steps = read_applied(parts, files, problems)
    parts, rollouts = with_workloads(with_objects(parts, manifests, problems), manifests, in_steps, problems)
    states: tuple[ClusterState, ...] = ()
    engines = PatchedEngines()
    if complete:
        inventory = take_inventory(parts, problems)
        check_network(parts, inventory, problems)
        check_conditions(parts, problems)
        check_host_ports(parts, manifests.services, problems)
        pods = parts.single_pods
        check_probes(
            parts.probes,
            parts.location["spec"]["probes"],
            lambda probe, location: Subject(probe, location, parts, inventory, manifests, pods, problems),
            problems,
        )
        file_of_proxies = configurations[0] if configurations else None
        engines = read_engines(parts.engines, whole["spec"]["engines"], file_of_proxies, inventory, problems)
        states = _steps(parts, inventory, manifests, in_steps, rollouts, engines, problems)
    problems.raise_any()
    known = [(manifests, parts.single_pods), *((each.manifests, each.pods) for each in states if each.pods is not None)]
    return _built(file, parts, manifests, states, (configured, engines), (known, problems.warnings))


def _replaced(documents: Sequence[Location], further: Sequence[Location]) -> list[Location]:
    """The documents, and further ones, each in place of that of the same object."""
    names = {_identity(each): each for each in further}
    return [names.pop(_identity(each), each) for each in documents] + list(names.values())


def _identity(location: Location) -> tuple[object, ...]:
    """What names an object; of what is none, the document itself."""
    metadata, kind = location["metadata"], location["kind"].value
    if not isinstance(metadata["name"].value, str):
        return (id(location.document),)
    return kind, metadata["namespace"].value or DEFAULT_NAMESPACE, metadata["name"].value


def _steps(
    parts: Parts,
    inventory: Inventory,
    manifests: Manifests,
    applied: Sequence[Manifests],
    rollouts: Rollouts,
    engines: PatchedEngines,
    problems: Problems,
) -> "tuple[ClusterState, ...]":
    """Check streams and steps, and return the cluster's state at each step."""
    if not (parts.streams or parts.steps):
        return ()

    check_streams(parts, inventory, manifests, problems)
    states = read_changes(parts, inventory, manifests, applied, rollouts, engines, problems)
    check_steps(parts, inventory, states, problems)
    return states


def _check_strictly(documents: list[Location], version: str | None, problems: Problems) -> None:
    if version is not None:
        check_strictly(documents, version, problems)


def _further(location: Location, folder: Path, problems: Problems) -> Iterator[Location]:
    """The documents of the files that are named there, one or a list, by their paths from the scenario's folder."""
    several = isinstance(location.value, list)
    for each in (location[index] for index in location.keys) if several else (location,):
        name = each.value
        if not isinstance(name, str):
            continue
        before = len(problems)
        text = _read(folder / name, each.spot, problems)
        if len(problems) > before:
            continue
        for document in read_documents(text, str(folder / name), problems)[0]:
            if _is_scenario(document):
                problems.add(document.root.spot, "a manifest file may not hold a Scenario", allowed="only manifests")
            else:
                yield document.root


def _is_scenario(document: Document) -> bool:
    """Whether a document is meant to be a Scenario: its kind or its API version is enough."""
    value = document.value
    if not isinstance(value, dict):
        return False
    return value.get("kind") == "Scenario" or str(value.get("apiVersion")).startswith("proxylab/")


def _is_configuration(document: Document) -> bool:
    return isinstance(document.value, dict) and document.value.get("kind") == CONFIGURATION_KIND


def _start(file: str) -> Spot:
    return Spot(Position(file, 1, 1), ())


def _built(
    file: str,
    parts: Parts,
    manifests: Manifests,
    states: Sequence[ClusterState],
    proxies: tuple[Configured, PatchedEngines],
    found: tuple[Sequence[State], Sequence[str]],
) -> Scenario:
    """Build the Scenario from documents that passed every check."""
    document, (configured, engines), (known, warnings) = parts.document, proxies, found
    if document is None:
        raise InternalError(f"{file}: proxylab refuses this file without a reason; please report it")
    spec = document.spec
    services = {key: each for key, each in manifests.services.items() if each is not None}
    groups, nodes = _present(parts.pods), _present(parts.nodes)
    routed = any(group.program is Program.NGINX for group in groups)
    steps = tuple(replace(step, change=state.change) for step, state in zip(spec.steps, states, strict=True))
    return Scenario(
        file=file,
        name=document.metadata.name,
        description=document.metadata.description,
        links=document.metadata.links,
        tags=document.metadata.tags,
        network=with_networks(parts.network or spec.network, spec.matrix),
        nodes=tuple(replace(node, programs=node.programs.over(spec.programs)) for node in nodes),
        pods=tuple(replace(pod, nodes=pod.nodes or (nodes[0].name,)) for pod in groups),
        hosts=_present(parts.hosts),
        services=tuple(services.values()),
        service_positions=tuple(manifests.locations[key].spot.position for key in services),
        slices=tuple(each for each in manifests.slices.values() if (each.namespace, each.service) in services),
        further=(*manifests.namespaces.values(), *manifests.kept.values()),
        load_balancers=tuple(
            replace(each, nodes=each.nodes or tuple(node.name for node in nodes))
            for each in _present(parts.load_balancers)
        ),
        probes=spec.probes,
        streams=spec.streams,
        steps=steps,
        failures=spec.exceptions,
        dns=spec.dns is not None,
        name_server=spec.dns or Dns(),
        control_plane=spec.control_plane,
        matrix=spec.matrix,
        requires=spec.requires,
        notes=(
            *_notes(manifests, configured, routed=routed),
            *silent_services(known, [*spec.probes, *(probe for step in steps for probe in step.probes)]),
            *warnings,
            *_long_names(document.metadata.name, spec.probes, steps),
        ),
        proxy=configured.configuration,
        engines=engines.own,
    )


def _present(entries: Mapping[str, Entry | None]) -> tuple[Entry, ...]:
    return tuple(each for each in entries.values() if each is not None)


def _notes(manifests: Manifests, configured: Configured, *, routed: bool) -> tuple[str, ...]:
    """Effects that may surprise the author: each key without an effect, once."""
    note = note_on(manifests.kept.values(), routed=routed)
    notes = [note] if note else []
    if manifests.ignored:
        notes.append(f"no effect on proxying: {', '.join(sorted(manifests.ignored))}")
    if configured.ignored:
        notes.append(f"no effect in {CONFIGURATION_KIND}: {', '.join(configured.ignored)}")
    return (*notes, *manifests.notes)


def _long_names(scenario: str, probes: Sequence[Probe], steps: Sequence[Step]) -> Iterator[str]:
    """A warning for each name that is too long for a CI report."""
    names = [scenario, *(probe.name for probe in probes), *(step.name for step in steps)]
    names += [probe.name for step in steps for probe in step.probes]
    for name in names:
        if len(name) > _LONGEST_NAME:
            yield f"warning: {shown(name)} is {len(name)} characters long; at most {_LONGEST_NAME} fit a report"
