"""Compares a standing lab with an edited file.

``edit`` returns the changes in words and as one step, and lists what cannot change in a standing lab. ``concerned``
returns the probes and steps whose verdicts the edited file may change. Neither sends anything.

It lays out both scenarios. Addresses, links and routes, and all that follows from them, must be equal, for those exist
already. Objects of the cluster are applied as a step applies them, and sysctls are written.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from proxylab.cluster.documents import document_of
from proxylab.cluster.kube_dns import KUBE_DNS
from proxylab.cluster.objects import Endpoints, EndpointSlice, KubeObject, Service
from proxylab.encoding import encode
from proxylab.errors import ScenarioError
from proxylab.plan.assembly import Assembly, assemble
from proxylab.plan.model import Plan, PlannedNamespace
from proxylab.plan.topology import draw
from proxylab.protocol.messages import Advance
from proxylab.scenario.change import Change, LoadBalancerChange, NodeChange
from proxylab.scenario.model import Scenario
from proxylab.scenario.probes import Probe, ServiceTarget
from proxylab.scenario.steps import Step

_APPLIED: Final = "apply"
_NEWLY_WRITTEN: Final = {"sysctls"}


class Edit(Struct, frozen=True, kw_only=True):
    """The effect of an edited file.

    Attributes:
        changes: in words, a line each; empty where nothing changes.
        refused: changes that a standing lab cannot make, a line each.
        advance: the change as one step.
        scenario: the lab's scenario after the change, with the addresses and ports that its Services have.
    """

    changes: tuple[str, ...]
    refused: tuple[str, ...]
    advance: Advance
    scenario: Scenario


def edit(stands: Assembly, made: int, wanted: Scenario) -> Edit:
    """Compare a lab with the edited scenario.

    ``made`` is how many steps of the lab's scenario have been made. Raises ``ScenarioError``.
    """
    wanted = _with_absent(stands.scenario, wanted)
    old, new = stands.plan, draw(wanted)
    refused = [*_refused(old, new)]
    if stands.scenario.proxy != wanted.proxy:
        refused.append("the KubeProxyConfiguration: engines read it when they start")
    if stands.scenario.engines != wanted.engines:
        refused.append("the engines of nodes: change them in steps")
    if refused:
        return Edit(changes=(), refused=tuple(refused), advance=Advance(step=_APPLIED), scenario=wanted)
    cluster = stands.timeline[made].brought_to(wanted)
    before = {thing.key: thing for thing in stands.timeline[made].objects}
    after = {thing.key: thing for thing in cluster.objects}
    sysctls = {name: changed for name in _names(new) if (changed := _sysctls(old.namespace(name), new.namespace(name)))}
    lines = [*_object_lines(before, after)]
    now, then = stands.timeline[made], cluster.announcers
    moved = [name for name, node in then.items() if name in now.unheard or now.announcers[name] != node]
    lines += [f"~ load balancer {name}: {then[name]} announces it again" for name in moved]
    standing_at = {name: each.addresses for name, each in now.machines.items()}
    back = {name: each.addresses for name, each in cluster.machines.items() if standing_at[name] != each.addresses}
    lines += [f"~ {name}: its addresses are {', '.join(map(str, own))} again" for name, own in back.items()]
    for name, changed in sysctls.items():
        standing = {each.name: each.value for each in old.namespace(name).sysctls}
        lines += [f"~ {name}: {key}: {standing.get(key, 'unsaid')} -> {value}" for key, value in changed.items()]
    return Edit(
        changes=tuple(lines),
        refused=(),
        advance=Advance(
            step=_APPLIED,
            applied=tuple(thing for key, thing in after.items() if before.get(key) != thing),
            deleted=tuple(thing for key, thing in before.items() if key not in after),
            change=Change(
                nodes={
                    name: NodeChange(sysctls=sysctls.get(name, {}), internal_ips=back.get(name, ()))
                    for name in {**sysctls, **back}
                },
                load_balancers={name: LoadBalancerChange(announced_by=then[name]) for name in moved},
            ),
        ),
        scenario=replace(wanted, services=cluster.services),
    )


def assemble_within(plan: Plan, scenario: Scenario) -> Assembly:
    """Assemble a scenario for a lab that has this plan.

    Raises:
        ScenarioError: the scenario cannot be assembled, or a workload needs pods that the lab has no room for.
    """
    assembly, there = assemble(scenario), {each.name: each for each in plan.pods}
    missing = [each.name for each in assembly.plan.pods if there.get(each.name) != each]
    if missing:
        what = f"the lab has no network namespace for {', '.join(missing)}"
        cure = "change workloads in steps of the file, or let a HorizontalPodAutoscaler allow more pods"
        raise ScenarioError([f"{scenario.file}: {what}; {cure}"])
    return assembly


def _with_absent(standing: Scenario, wanted: Scenario) -> Scenario:
    """The edited scenario, with the workloads' pods that it has no more: they stay, absent."""
    own = {each.name: each for each in wanted.pods}
    there = [own.pop(each.name, replace(each, present=False) if each.owner else None) for each in standing.pods]
    return replace(wanted, pods=(*filter(None, there), *own.values()))


def concerned(before: Scenario, after: Scenario, advance: Advance) -> tuple[Probe | Step, ...]:
    """The probes and steps of the edited scenario that are new or changed, or that a change of the lab may concern.

    A change of a Service or of its endpoints concerns the probes that dial it, and those that dial no Service: they may
    dial its address. Every other change concerns all. A step begins with the state that those before it left, so
    steps and their probes are concerned together.
    """
    things = (*advance.applied, *advance.deleted)
    services = {_service_of(each) for each in things}
    everything = bool(advance.change.nodes) or None in services or f"{KUBE_DNS.namespace}/{KUBE_DNS.name}" in services
    known = {each.name: _bare(each) for each in before.judged}
    in_steps = bool(things) or [*map(_bare, before.steps)] != [*map(_bare, after.steps)]
    in_steps = in_steps or [*map(_bare, before.streams)] != [*map(_bare, after.streams)]

    def is_concerned(each: Probe | Step) -> bool:
        if everything or known.get(each.name) != _bare(each):
            return True
        if isinstance(each, Step) or after.steps_before(each):
            return in_steps
        target = each.target
        if not isinstance(target, ServiceTarget):
            return bool(things)
        return (target.service if "/" in target.service else f"{target.namespace}/{target.service}") in services

    return tuple(each for each in after.judged if is_concerned(each))


def _service_of(thing: KubeObject) -> str | None:
    """The Service that an object belongs to; ``None`` if every Service may depend on it."""
    match thing:
        case Service() | Endpoints():
            return f"{thing.namespace}/{thing.name}"
        case EndpointSlice():
            return f"{thing.namespace}/{thing.service}"
    return None


def _bare(record: object) -> object:
    """A record as plain values without positions, which a new line above it changes."""
    return _without_positions(json.loads(encode(record)))


def _without_positions(value: object) -> object:
    match value:
        case dict():
            kept = ((key, inner) for key, inner in value.items() if key not in ("position", "positions"))
            return {key: _without_positions(inner) for key, inner in kept}
        case list():
            return [_without_positions(each) for each in value]
    return value


def _names(plan: Plan) -> list[str]:
    return [namespace.name for namespace in plan.namespaces]


def _refused(old: Plan, new: Plan) -> Iterator[str]:
    """The parts of the network that would have to differ."""
    before, after = _names(old), _names(new)
    for name in [each for each in after if each not in before]:
        yield f"{name}: a standing lab cannot get a new node, pod or host"
    for name in [each for each in before if each not in after]:
        yield f"{name}: a standing lab cannot lose it; delete a pod with present: false"
    if before != after:
        return  # differences of addresses follow from these
    for name in before:
        yield from (f"{name}: its {part} cannot change" for part in _parts(old.namespace(name), new.namespace(name)))
    pairs = zip(old.links, new.links, strict=False)
    links = {end.namespace for one, other in pairs if one != other for end in one.ends}
    if links or len(old.links) != len(new.links):
        yield f"the links of {', '.join(sorted(links)) or 'the network'} cannot change"
    if old.balancers != new.balancers:
        yield "the load balancers cannot change"
    if not links and old.pods != new.pods:
        yield "pods cannot move to another node or namespace"


def _parts(old: PlannedNamespace, new: PlannedNamespace) -> Iterator[str]:
    """The parts of a namespace that differ and cannot be written anew."""
    for name in PlannedNamespace.__struct_fields__:
        if name not in _NEWLY_WRITTEN and getattr(old, name) != getattr(new, name):
            yield {"listeners": "open ports", "device_sysctls": "sysctls of devices"}.get(name, name)
    if {each.name for each in old.sysctls} - {each.name for each in new.sysctls}:
        yield "sysctls (a sysctl without a line keeps its value; write the value that you want)"


def _sysctls(old: PlannedNamespace, new: PlannedNamespace) -> dict[str, str]:
    standing = {each.name: each.value for each in old.sysctls}
    return {each.name: each.value for each in new.sysctls if standing.get(each.name) != each.value}


def _object_lines(before: Mapping[Any, KubeObject], after: Mapping[Any, KubeObject]) -> Iterator[str]:
    for key, thing in after.items():
        if key not in before:
            yield f"+ {key}"
        elif before[key] != thing:
            old, new = (dict(_leaves(document_of(each, 0, "now"))) for each in (before[key], thing))
            for path in dict.fromkeys([*old, *new]):
                if old.get(path) != new.get(path):
                    yield f"~ {key}: {path}: {_shown(old.get(path))} -> {_shown(new.get(path))}"
    yield from (f"- {key}" for key in before if key not in after)


def _leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Every scalar of a document, by its path."""
    match value:
        case dict() if value:
            for key, inner in value.items():
                yield from _leaves(inner, f"{path}.{key}" if path else str(key))
        case list() if value:
            for number, inner in enumerate(value):
                yield from _leaves(inner, f"{path}[{number}]")
        case _:
            yield path, value


def _shown(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case _:
            return str(value)
