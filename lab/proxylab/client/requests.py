"""What a client asks of a lab process: requests, the plan with its answers, and one more packet of a failed probe.

The module sends nothing. After a failure the traced packet shall follow the flow that failed. The proxy chooses an
endpoint for each connection anew, so a few packets are sent, until one goes to that flow's endpoint.
"""

import platform
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

import proxylab
from proxylab.addresses import Transport
from proxylab.cluster.configuration import TERMINATING_MODES
from proxylab.cluster.objects import KubeObject
from proxylab.cluster.rollout import RolloutStage
from proxylab.engines.protocol import EngineChoice
from proxylab.evidence.evidence import Evidence
from proxylab.plan.assembly import Assembly
from proxylab.plan.cluster_timeline import ClusterMoment
from proxylab.plan.device_names import ROUTER
from proxylab.plan.model import Plan
from proxylab.plan.resolved import ResolvedProbe
from proxylab.protocol.messages import Advance, Built, CollectedState, PodStage
from proxylab.protocol.standing_labs import LabRecord
from proxylab.report.bundle import Circumstances
from proxylab.scenario.change import Change
from proxylab.scenario.model import Scenario
from proxylab.scenario.words import Manner
from proxylab.timing import Deadline
from proxylab.verdict.flows import flows_of
from proxylab.verdict.hops import last_destination
from proxylab.verdict.model import UNRESOLVED, Judgement, ProbeVerdict

_MOST_PACKETS: Final = 32
"""With three endpoints, the packet goes elsewhere once in half a million failures."""

_SAME: Final[Mapping[str, EngineChoice]] = MappingProxyType({})

_PATIENCE: Final = 10.0
"""Seconds: a packet whose answer or sentinel packet is lost takes one."""


def advance_to(
    assembly: Assembly, number: int, lacks: Mapping[str, str], engines: Mapping[str, EngineChoice] = _SAME
) -> Advance:
    """The request for a step: the objects that differ from those before it, and the rest of its change.

    ``lacks`` has what the proxy's mode cannot show (``engines.lacking``): the step does not wait for that. ``engines``
    are those of nodes that get another one.
    """
    step, former = assembly.scenario.steps[number], assembly.timeline[number]
    waits_for_entries = step.until is not None and step.until.conntrack is not None
    until = step.until and replace(
        step.until,
        backends={stream: pod for stream, pod in step.until.backends.items() if stream not in lacks},
    )
    first, *others = former.through(step)
    applied, deleted = _difference(former, first)
    rollout = [stage for each in step.change.workloads for stage in each.stages]
    return Advance(
        step=step.name,
        applied=applied,
        deleted=deleted,
        stages=tuple(map(_stage, rollout, [first, *others], others)),
        change=Change(
            nodes=step.change.nodes,
            engines=step.change.engines,
            links=step.change.links,
            load_balancers=step.change.load_balancers,
            api_server=step.change.api_server,
            kubectl=step.change.kubectl,
        ),
        engines=engines,
        until=until,
        streams=assembly.streams,
        addresses=assembly.plan_after(number + 1).addresses_by_name if waits_for_entries else {},
    )


def _stage(stage: RolloutStage, before: ClusterMoment, after: ClusterMoment) -> PodStage:
    applied, deleted = _difference(before, after)
    ended = stage.deleted if stage.killed else ()
    return PodStage(applied=applied, deleted=deleted, ended=ended, delay=stage.delay, grace=stage.grace)


def _difference(before: ClusterMoment, after: ClusterMoment) -> tuple[tuple[KubeObject, ...], tuple[KubeObject, ...]]:
    """The objects that are new or differ, and those that are gone."""
    old, new = ({thing.key: thing for thing in each.objects} for each in (before, after))
    applied = tuple(thing for key, thing in new.items() if old.get(key) != thing)
    return applied, tuple(thing for key, thing in old.items() if key not in new)


def with_state_after(plan: Plan, collected: CollectedState) -> Plan:
    """The plan with the lab's state after a probe: engines write sysctls, and balancers write routes."""
    found = {each.node: each.sysctls for each in collected.nodes}
    return plan.with_sysctls(found).with_routes(ROUTER, collected.balanced)


def circumstances_of(engine: EngineChoice, built: Built, seed: int) -> Circumstances:
    """The circumstances of a run."""
    return Circumstances(
        proxylab=proxylab.__version__,
        python=platform.python_version(),
        kernel=built.kernel,
        chosen_kernel=engine.kernel,
        machine=platform.machine(),
        engine=engine.name,
        iptables=built.variant,
        seed=seed,
        binary=engine.binary,
    )


def record_of(
    name: str, scenario: Scenario, source: str, engine: EngineChoice, seed: int, built: Built, made: int
) -> LabRecord:
    """The record that other clients need to go on with a lab."""
    return LabRecord(
        name=name,
        scenario=scenario,
        source=source,
        engine=engine,
        seed=seed,
        built=built,
        made=made,
        directory=str(Path.cwd()),
        began=time.time(),
    )


def changing(verdict: ProbeVerdict) -> ProbeVerdict:
    """The verdict on a probe during which the cluster changed each time: it shows nothing."""
    reason = "the cluster changed each time while the lab sent the probe; let controllers come to rest first"
    doubted = (replace(each, judgement=Judgement.INCONCLUSIVE, reasons=(reason,)) for each in verdict.verdicts)
    return replace(verdict, verdicts=tuple(doubted))


def single_packet(resolved: ResolvedProbe, modes: Iterable[str]) -> ResolvedProbe:
    """The probe as one packet, or as one connection if a node's mode ends connections."""
    ends = not TERMINATING_MODES.isdisjoint(modes) and resolved.protocol is Transport.TCP
    return replace(resolved, flows=1, manner=Manner.CONNECT if ends else Manner.PACKET, http=False)


def trace_alike(verdict: ProbeVerdict, trace: Callable[[], tuple[ResolvedProbe, Evidence]]) -> Evidence:
    """The evidence of a traced packet that goes where the verdict's example went, or else of the first one.

    ``trace`` sends and traces one. Raises what it raises.
    """
    first = trace()
    wanted = _destination(verdict.resolved, verdict.evidence, _example(verdict))
    if verdict.overall not in UNRESOLVED or not wanted or len(verdict.resolved.receivers) < 2:
        return first[1]
    sent, deadline = first, Deadline.after(_PATIENCE)
    for _ in range(_MOST_PACKETS):
        if _destination(*sent) == wanted:
            return sent[1]
        if deadline.passed:
            break
        sent = trace()
    return first[1]


def _example(verdict: ProbeVerdict) -> int:
    """The flow that reports show: the first that shows what is wrong."""
    wrong = (each.example for each in verdict.verdicts if each.judgement is verdict.overall)
    return next(wrong, None) or 0


def _destination(resolved: ResolvedProbe, evidence: Evidence, number: int = 0) -> str:
    return last_destination(flows_of(resolved, evidence)[number])
