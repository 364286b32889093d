"""Evidence before the judge, for the tests of verdicts: the worlds they share, and how good evidence goes bad."""

from collections.abc import Callable
from ipaddress import ip_address

from msgspec.structs import replace
from recorded import World

from proxylab.evidence.evidence import (
    Direction,
    Evidence,
    Packet,
)
from proxylab.scenario.expect import Preserved
from proxylab.scenario.words import Manner, Outcome, Spread
from proxylab.verdict.judge import judge
from proxylab.verdict.model import Judgement, ProbeVerdict, Verdict

PASS, FAIL, INCONCLUSIVE = Judgement.PASS, Judgement.FAIL, Judgement.INCONCLUSIVE

DELIVERED = World(backends=("echo-1", "echo-2", "echo-3"), source=Preserved())
CONNECTED = replace(DELIVERED, manner=Manner.CONNECT)
REJECTED = World(outcome=Outcome.REJECTED)
REFUSED = World(outcome=Outcome.REFUSED)
DROPPED = World(outcome=Outcome.DROPPED, at="node-a")
SPREAD = World(flows=2000, backends=("echo-1", "echo-2", "echo-3"), spread=Spread.EVEN)


def judged(world: World, evidence: Evidence, source: str | None = None) -> ProbeVerdict:
    return judge(world.probe, world.resolved, ip_address(source) if source else None, evidence)


def one(world: World, evidence: Evidence, key: str) -> Verdict:
    return next(verdict for verdict in judged(world, evidence).verdicts if verdict.expectation == key)


def dropped_evidence(world: World = DROPPED, **changes: object) -> Evidence:
    evidence = world.evidence([world.leaves(flow) for flow in range(world.flows)], counts=(world.dropped(world.flows),))
    return replace(evidence, **changes)  # type: ignore[arg-type]


Change = Callable[[Evidence], Evidence]


def without(packet: Packet, direction: Direction) -> Change:
    return lambda evidence: replace(
        evidence,
        observations=tuple(
            seen for seen in evidence.observations if (seen.packet, seen.direction) != (packet, direction)
        ),
    )


def plus(*observations: object) -> Change:
    return lambda evidence: replace(evidence, observations=(*evidence.observations, *observations))  # type: ignore[arg-type]


def changed(**changes: object) -> Change:
    return lambda evidence: replace(evidence, **changes)  # type: ignore[arg-type]


NODE = ip_address("172.18.0.2")
POD = ip_address("10.244.2.3")
