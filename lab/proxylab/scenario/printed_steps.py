"""``spec.steps`` as plain data, for ``printing``. Reading the data gives the same steps."""

from collections.abc import Iterable
from typing import Any

from proxylab.cluster.objects import EndpointSlice, Service
from proxylab.scenario.model import (
    Change,
    Count,
    NodeChange,
    PodChange,
    Scenario,
    Step,
    StepExpect,
    StreamExpect,
    Until,
)
from proxylab.scenario.printed_intent import printed_conntrack, printed_probe, printed_source, printed_when
from proxylab.scenario.printed_objects import Data, given, printed_service, printed_slice
from proxylab.scenario.updates import merge_patch

__all__ = ["printed_steps"]


def printed_steps(scenario: Scenario) -> list[Data]:
    """The steps, each changed object as a patch from its former state."""
    services = {(each.namespace, each.name): printed_service(each) for each in scenario.services}
    slices = {(each.namespace, each.name): printed_slice(each) for each in scenario.slices}
    steps = []
    for step in scenario.steps:
        change = step.change
        printed = {
            "services": _patches(
                [(each.namespace, each.name, _service(each.service)) for each in change.services], services
            ),
            "endpointSlices": _patches(
                [(each.namespace, each.name, _slice(each.slice)) for each in change.slices], slices
            ),
            **_of_machines(change),
        }
        steps.append(_step(step, {key: value for key, value in printed.items() if value}))
    return steps


def _service(service: Service | None) -> Data | None:
    return printed_service(service) if service is not None else None


def _slice(slice_: EndpointSlice | None) -> Data | None:
    return printed_slice(slice_) if slice_ is not None else None


def _patches(
    changes: Iterable[tuple[str, str, Data | None]], there: dict[tuple[str, str], Data]
) -> dict[str, Data | None]:
    """The patches by name; updates ``there`` with each change."""
    patches: dict[str, Data | None] = {}
    for namespace, name, made in changes:
        before = there.pop((namespace, name), {})
        patches[f"{namespace}/{name}"] = None if made is None else merge_patch(before, made)
        if made is not None:
            there[namespace, name] = made
    return patches


def _of_machines(change: Change) -> Data:
    return {
        "pods": {name: _pod(each) for name, each in change.pods.items()},
        "nodes": {name: _node(each) for name, each in change.nodes.items()},
        "engines": {node: str(action) for node, action in change.engines.items()},
        "links": {f"{each.netns_name}/{each.device}": "mended" if each.up else "cut" for each in change.links},
    }


def _pod(change: PodChange) -> Data:
    said = {key: getattr(change, key) for key in ("present", "ready", "serving", "terminating")}
    return {key: value for key, value in said.items() if value is not None} | given(labels=dict(change.labels))


def _node(change: NodeChange) -> Data:
    said: Data = {} if change.present is None else {"present": change.present}
    said |= {} if change.taints is None else {"taints": list(change.taints)}
    said |= {} if change.terminating is None else {"terminating": change.terminating}
    return said | given(labels=dict(change.labels), sysctls=dict(change.sysctls))


def _step(step: Step, change: Data) -> Data:
    return given(
        name=step.name,
        change=change,
        until=_until(step.until) if step.until else None,
        expect=_expect(step.expect),
        probes=list(map(printed_probe, step.probes)),
        except_=[
            {"when": printed_when(each.when, each.version), "expect": _expect(each.expect), "because": each.because}
            for each in step.exceptions
        ],
    )


def _until(until: Until) -> Data:
    return given(
        engines={node: str(state) for node, state in until.engines.items()},
        rules={node: str(state) for node, state in until.rules.items()},
        conntrack=printed_conntrack(until.conntrack) if until.conntrack else None,
        balancers={name: list(nodes) for name, nodes in until.balancers.items()},
        backends=dict(until.backends),
        elapsed=_milliseconds(until.elapsed),
        within=_milliseconds(until.within),
    )


def _expect(expect: StepExpect) -> Data:
    printed: Data = {name: _stream(each) for name, each in expect.streams.items()}
    if expect.conntrack is not None:
        printed["conntrack"] = printed_conntrack(expect.conntrack)
    return printed


def _stream(expect: StreamExpect) -> Data:
    return given(
        backend=expect.backend,
        backends=list(expect.backends or ()),
        source=printed_source(expect.source),
        lost=_count(expect.lost),
        rejected=_count(expect.rejected),
        resets=_count(expect.resets),
        delay=_milliseconds(expect.delay),
    )


def _count(count: Count | None) -> Any:
    if count is None:
        return None
    return {"atLeast": count.at_least} | ({} if count.at_most is None else {"atMost": count.at_most})


def _milliseconds(number: int | None) -> str | None:
    return f"{number}ms" if number is not None else None
