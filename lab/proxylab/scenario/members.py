"""The name of a workload in place of its pods: ``with_members`` puts their names into ``backends`` of probes.

A name such as ``web-c6d8979f6-bmb7c`` is hard to write, and another template gives another name.
"""

from collections.abc import Mapping
from typing import TypeVar

from msgspec.structs import replace

from proxylab.scenario.expect import Expect
from proxylab.scenario.parts import Parts, ProbeParts, StepParts
from proxylab.scenario.probes import Probe
from proxylab.scenario.steps import Step

__all__ = ["Members", "with_members"]

Members = Mapping[str, tuple[str, ...]]
"""The pods of each workload, by the workload's name."""

Sent = TypeVar("Sent", Probe, ProbeParts)


def with_members(parts: Parts, first: Members, *by_step: Members) -> Parts:
    """The parts, with the pods of workloads among the backends.

    Args:
        parts: the scenario's well-formed parts.
        first: the workloads when the lab begins.
        by_step: those after each step.
    """
    document = parts.document
    if document is not None:
        spec = document.spec
        steps = tuple(_step(step, members) for step, members in zip(spec.steps, by_step, strict=True))
        probes = tuple(_probe(each, first) for each in spec.probes)
        document = replace(document, spec=replace(spec, probes=probes, steps=steps))
    return replace(
        parts,
        document=document,
        probes=tuple(_probe(each, first) for each in parts.probes),
        steps=tuple(_step_parts(step, members) for step, members in zip(parts.steps, by_step, strict=True)),
    )


def _step(step: Step, members: Members) -> Step:
    return replace(step, probes=tuple(_probe(each, members) for each in step.probes))


def _step_parts(step: StepParts, members: Members) -> StepParts:
    whole = None if step.whole is None else _step(step.whole, members)
    return replace(step, whole=whole, probes=tuple(_probe(each, members) for each in step.probes))


def _probe(sent: Sent, members: Members) -> Sent:
    exceptions = tuple(each and replace(each, expect=_expanded(each.expect, members)) for each in sent.exceptions)
    return replace(sent, expect=sent.expect and _expanded(sent.expect, members), exceptions=exceptions)


def _expanded(expect: Expect, members: Members) -> Expect:
    if expect.backends is None or not any(each.name in members for each in expect.backends):
        return expect
    backends = tuple(
        replace(each, name=name) for each in expect.backends for name in members.get(each.name) or (each.name,)
    )
    return replace(expect, backends=backends)
