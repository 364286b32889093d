"""The names that stand for several backends: an entry of ``spec.pods`` with replicas, and a workload.

Such a name among the backends of a probe stands for the pods that exist when the lab sends it. A pod's own name, such
as ``web-c6d8979f6-bmb7c``, is hard to write, and another template gives another name. From the first step on that runs
kubectl, only the lab knows these pods, so the names stay as they are written (``plan.present``).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeVar

from msgspec.structs import replace

from proxylab.scenario.change import PodChange
from proxylab.scenario.expect import Expect, ReplyByBackend, SourceByBackend
from proxylab.scenario.parts import Parts, ProbeParts, StepParts
from proxylab.scenario.pods import PodGroup
from proxylab.scenario.probes import Probe
from proxylab.scenario.steps import Step

Members = Mapping[str, tuple[str, ...]]
"""The pods of each group or workload, by its name; a workload of another namespace is NAMESPACE/NAME."""

_NONE: Final[Members] = {}

AnyProbe = TypeVar("AnyProbe", Probe, ProbeParts)
Of = TypeVar("Of")


def with_members(parts: Parts, workloads: Sequence[Members]) -> Parts:
    """The parts, with single pods in place of the names of groups and workloads.

    ``workloads`` are those when the lab begins, and then those after each step; empty without any.
    """
    members: list[Members] = [
        {**groups, **(workloads[index] if workloads else _NONE)} for index, groups in enumerate(_groups(parts))
    ]
    first, *by_step = members
    for index, step in enumerate(parts.steps):
        if step.change is not None and step.change.kubectl:
            by_step[index:] = [_NONE] * (len(by_step) - index)
            break
    if not any((first, *by_step)):
        return parts
    document = parts.document
    if document is not None:
        spec = document.spec
        steps = tuple(_step(step, members) for step, members in zip(spec.steps, by_step, strict=True))
        probes = tuple(with_singles(each, first) for each in spec.probes)
        document = replace(document, spec=replace(spec, probes=probes, steps=steps))
    return replace(
        parts,
        document=document,
        probes=tuple(with_singles(each, first) for each in parts.probes),
        steps=tuple(_step_parts(step, members) for step, members in zip(parts.steps, by_step, strict=True)),
    )


def _groups(parts: Parts) -> Iterator[Members]:
    """The pods of each group that exist: when the lab begins, and after each step."""
    groups = {name: pod for name, pod in parts.pods.items() if pod is not None and pod.replicas is not None}
    there = {each: pod.present for pod in groups.values() for each in pod.pod_names}
    yield _present(groups, there)
    for step in parts.steps:
        changes: Mapping[str, PodChange] = step.change.pods if step.change is not None else {}
        for name, change in changes.items():
            singles = groups[name].pod_names if name in groups else (name,)
            there |= dict.fromkeys(singles, change.present) if change.present is not None else {}
        yield _present(groups, there)


def _present(groups: Mapping[str, PodGroup], there: Mapping[str, bool | None]) -> Members:
    return {name: tuple(each for each in pod.pod_names if there[each]) for name, pod in groups.items()}


def _step(step: Step, members: Members) -> Step:
    return replace(step, probes=tuple(with_singles(each, members) for each in step.probes))


def _step_parts(step: StepParts, members: Members) -> StepParts:
    whole = None if step.whole is None else _step(step.whole, members)
    return replace(step, whole=whole, probes=tuple(with_singles(each, members) for each in step.probes))


def with_singles(sent: AnyProbe, members: Members) -> AnyProbe:
    """The probe, with the members of each group and workload in its expectations in place of their name."""
    exceptions = tuple(each and replace(each, expect=_expanded(each.expect, members)) for each in sent.exceptions)
    return replace(sent, expect=sent.expect and _expanded(sent.expect, members), exceptions=exceptions)


def _expanded(expect: Expect, members: Members) -> Expect:
    if expect.backends is not None and any(each.name in members for each in expect.backends):
        singles = tuple(replace(each, name=name) for each in expect.backends for name in _singles(each.name, members))
        expect = replace(expect, backends=singles)
    if expect.http is not None and expect.http.backends is not None:
        named = tuple(name for each in expect.http.backends for name in _singles(each, members))
        expect = replace(expect, http=replace(expect.http, backends=named))
    if isinstance(expect.source, SourceByBackend):
        expect = replace(expect, source=replace(expect.source, of=_by_single(expect.source.of, members)))
    if isinstance(expect.reply, ReplyByBackend):
        expect = replace(expect, reply=replace(expect.reply, of=_by_single(expect.reply.of, members)))
    return expect


def _by_single(of: Mapping[str, Of], members: Members) -> dict[str, Of]:
    return {name: value for key, value in of.items() for name in _singles(key, members)}


def _singles(name: str, members: Members) -> tuple[str, ...]:
    return members.get(name) or (name,)
