"""Connection tracking as a second witness beside the taps."""

import pytest
from msgspec.structs import replace
from recorded import World

from proxylab.evidence.evidence import Evidence, TrackedFlow
from proxylab.report.failure_text import explain
from proxylab.scenario.expect import Preserved
from proxylab.verdict.judge import judge
from proxylab.verdict.model import Judgement, ProbeVerdict

WORLD = World(backends=("echo-1",), source=Preserved())


def entry(pod: str = "echo-1", node: str = "node-a") -> TrackedFlow:
    return TrackedFlow(0, node, WORLD.address(pod), 8080, *WORLD.client(0))


def judged(*tracked: TrackedFlow, **changes: object) -> ProbeVerdict:
    evidence: Evidence = WORLD.evidence(WORLD.round_trip(0, "echo-1"), tracked=tracked)
    return judge(WORLD.probe, WORLD.resolved, None, replace(evidence, **changes))  # type: ignore[arg-type]


UNTRANSLATED = TrackedFlow(0, "node-b", *WORLD.dialled, *WORLD.client(0))


@pytest.mark.parametrize("tracked", [(entry(),), (UNTRANSLATED, entry())], ids=["one node", "two nodes"])
def test_a_delivery_that_conntrack_confirms_passes(tracked: tuple[TrackedFlow, ...]) -> None:
    assert judged(*tracked).overall is Judgement.PASS


def test_what_was_not_read_says_nothing() -> None:
    assert judged(tracked=None).overall is Judgement.PASS


@pytest.mark.parametrize(
    ("tracked", "clause"),
    [
        (
            (entry("echo-2"),),
            (
                "the tap at echo-1 saw 10.244.1.2:40000 > 10.244.2.3:8080, "
                "but conntrack on node-a has 10.244.1.2:40000 > 10.244.2.4:8080"
            ),
        ),
        (
            (replace(entry(), reply_destination=WORLD.address("node-a")),),
            (
                "the tap at echo-1 saw 10.244.1.2:40000 > 10.244.2.3:8080, "
                "but conntrack on node-a has 172.18.0.2:40000 > 10.244.2.3:8080"
            ),
        ),
        ((UNTRANSLATED,), "conntrack on node-b has 10.244.1.2:40000 > 10.96.0.10:80"),
        ((), "but no node's conntrack has an entry for the flow"),
    ],
    ids=["another backend", "another source", "untranslated", "flushed"],
)
def test_a_contradiction_is_inconclusive_and_names_both(tracked: tuple[TrackedFlow, ...], clause: str) -> None:
    verdict = judged(*tracked)
    assert verdict.overall is Judgement.INCONCLUSIVE
    assert any(clause in reason for each in verdict.verdicts for reason in each.reasons)


def test_a_flow_that_arrived_as_it_was_sent_needs_no_entry() -> None:
    direct = replace(WORLD.resolved, destination=WORLD.address("echo-1"), port=8080)
    world = replace(WORLD, addresses={"service": WORLD.address("echo-1")})
    observations = [replace(each, destination_port=8080) for each in (world.leaves(0),)]
    observations += [world.arrives(0, "echo-1"), world.answers(0, "echo-1")]
    observations += [replace(world.hears(0), source_port=8080)]
    evidence = world.evidence(observations, tracked=())
    assert judge(world.probe, direct, None, evidence).overall is Judgement.PASS


def test_an_explanation_shows_the_entry() -> None:
    lines = explain(judged(entry()))
    assert "    conntrack on node-a: 10.244.2.3:8080 answers, to 10.244.1.2:40000" in lines
