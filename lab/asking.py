"""What is asked of a lab process for a step, and what its answers make of what was planned.

Owns: ``advance_to``, ``as_found``, ``circumstances_of`` and ``memory_of``.
Must not: ask.
"""

import platform
import time
from pathlib import Path

import lab
from lab.assembly import Assembly
from lab.engines.protocol import EngineChoice
from lab.messages import Advance, Built, Recalled
from lab.plan.model import Plan
from lab.plan.names import ROUTER
from lab.report.bundle import Circumstances
from lab.scenario.model import Change, Scenario
from lab.visits import Memory

__all__ = ["advance_to", "as_found", "circumstances_of", "memory_of"]


def advance_to(assembly: Assembly, number: int) -> Advance:
    """What is asked of the lab process for a step: objects that differ from those before it, and the rest of it."""
    step = assembly.scenario.steps[number]
    before = {thing.key: thing for thing in assembly.course[number].objects}
    after = {thing.key: thing for thing in assembly.course[number + 1].objects}
    return Advance(
        step=step.name,
        applied=tuple(thing for key, thing in after.items() if before.get(key) != thing),
        deleted=tuple(thing for key, thing in before.items() if key not in after),
        change=Change(nodes=step.change.nodes, engines=step.change.engines, links=step.change.links),
        until=step.until,
        streams=assembly.streams,
        addresses=assembly.addresses if step.until is not None and step.until.conntrack is not None else {},
    )


def as_found(plan: Plan, recalled: Recalled) -> Plan:
    """The plan as the lab stood after a probe: engines write sysctls, and balancers routes."""
    found = {each.node: each.sysctls for each in recalled.nodes}
    return plan.with_sysctls(found).with_routes(ROUTER, recalled.balanced)


def circumstances_of(engine: EngineChoice, built: Built, seed: int) -> Circumstances:
    """Under what a run takes place."""
    return Circumstances(
        proxylab=lab.__version__,
        python=platform.python_version(),
        kernel=platform.release(),
        machine=platform.machine(),
        engine=engine.name,
        iptables=built.variant,
        seed=seed,
    )


def memory_of(
    name: str, scenario: Scenario, source: str, engine: EngineChoice, seed: int, built: Built, made: int
) -> Memory:
    """What others must know of a lab to go on with it, from now on."""
    return Memory(
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
