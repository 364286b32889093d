"""The verdicts that need no lab: of what the engine's mode cannot show, whatever the proxy does.

Owns ``unshown``, for a probe or a step. A run asks it before it builds a lab, or makes the steps on the way in an open
one: a scenario about conntrack costs nothing in mode userspace, which ends all connections. A test in Python asks the
open lab itself, which makes each step that it is asked for.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from proxylab.engines.engine_names import mode_of
from proxylab.engines.lacking import lacking, lacking_of_step
from proxylab.engines.protocol import EngineChoice
from proxylab.evidence.stream_records import StepEvidence, StreamRecord
from proxylab.plan.assembly import Assembly
from proxylab.scenario.probes import Probe
from proxylab.scenario.steps import Step
from proxylab.verdict.judge import judge_step, skip
from proxylab.verdict.model import ProbeVerdict, StepVerdict, step_expectations


def unshown(
    engine: EngineChoice, assembly: Assembly, each: Probe | Step, options: Sequence[str] = ()
) -> ProbeVerdict | StepVerdict | None:
    """The verdict on a probe or step of which the mode can show nothing: skip. ``None`` where it can show a part.

    ``options`` are those of the run, for the command that repeats it.
    """
    if isinstance(each, Probe):
        return _unshown_probe(engine, assembly, each, options)
    return _unshown_step(engine, assembly, each, options)


def _unshown_probe(
    engine: EngineChoice, assembly: Assembly, probe: Probe, options: Sequence[str]
) -> ProbeVerdict | None:
    """The same of a probe. What the scenario does not foretell, only the lab can say."""
    if not assembly.scenario.foretells(probe) or not (reason := lacking(mode_of(engine.name), assembly, probe)):
        return None
    return replace(skip(probe, assembly.resolved(probe), reason), options=tuple(options))


def _unshown_step(engine: EngineChoice, assembly: Assembly, step: Step, options: Sequence[str]) -> StepVerdict | None:
    """The same of a step. Its streams have sent nothing."""
    number = assembly.scenario.steps_before(step)
    if number > assembly.scenario.foretold:
        return None
    lacks = lacking_of_step(mode_of(engine.name), assembly, step)
    if not all(key in lacks or key.rpartition(".")[0] in lacks for key in step_expectations(step.expect)):
        return None
    streams, sources = assembly.streams_by_step[number - 1], assembly.stream_sources[number - 1]
    nodes, addresses = assembly.nodes, assembly.addresses
    unsent = tuple(StreamRecord(stream=name, port=0) for name in step.expect.streams)
    evidence = StepEvidence(began=0, changed=0, settled=0, ended=0, streams=unsent)
    verdict = judge_step(step, number, streams, sources, nodes, addresses, evidence, lacks)
    return replace(verdict, plan=assembly.plan_after(number), options=tuple(options))
