"""The sentence that names why a step failed."""

import pytest
from golden_words import Told
from made_steps import NEW, OLD, ZERO, answered, entry, entry_remains, judged, lost, record, rejected, step, tracked
from msgspec.structs import replace

from proxylab.cluster.rollout import RolloutStage
from proxylab.evidence.stream_records import Break, BreakKind
from proxylab.report.failure_text import explain
from proxylab.scenario.change import Change, PodChange, WorkloadChange
from proxylab.scenario.expect import NodeDevice
from proxylab.scenario.steps import Count
from proxylab.verdict.causes.table import why_step
from proxylab.verdict.model import StepVerdict

BEFORE = answered(9, 0.2, "old")


def test_the_table_is_the_cause_where_it_leads_to_who_answered_before(told: Told) -> None:
    sentence = (
        "conntrack on node-a still sends queries to old (10.244.0.3:5353), which answered before: "
        "nothing deleted that entry."
    )
    assert why_step(entry_remains()) == sentence
    stranger = judged(step(backend="new"), replace(record(answered(10, 25, "old")), tracked=tracked(OLD)))
    assert why_step(stranger) == told()


@pytest.mark.parametrize(
    ("verdict", "sentence"),
    [
        (
            judged(step(lost=ZERO), record(BEFORE, lost(10, 5), answered(11, 21, "new"))),
            "1 packet lost, sent 4.0 ms after the change was made; new answered what was sent 20.0 ms after it.",
        ),
        (
            judged(step(rejected=ZERO), record(BEFORE, rejected(10, 5), rejected(11, 9), answered(12, 21, "new"))),
            (
                "2 packets rejected by an ICMP error, the first sent 4.0 ms after the change was made; "
                "new answered what was sent 20.0 ms after it."
            ),
        ),
        (
            judged(step(backend="new"), replace(record(BEFORE, lost(10, 21), lost(11, 26)), tracked=tracked(NEW))),
            "queries gets no answer from packet 10 on, sent 20.0 ms after the change was made.",
        ),
        (
            judged(step(lost=ZERO), record(lost(9, 0.5), answered(10, 21, "new"))),
            "1 packet lost, sent 0.5 ms before the change was made; new answered what was sent 20.0 ms after it.",
        ),
        (
            judged(step(resets=ZERO), replace(record(BEFORE), breaks=(Break(6_000_000, BreakKind.RESET),))),
            "queries was reset 5.0 ms after the change was made.",
        ),
        (
            judged(step(delay=5), record(BEFORE, answered(10, 21, "new", delay=7.5))),
            "new took 7.5 ms to answer packet 10, which was sent 20.0 ms after the change was made.",
        ),
        (
            judged(step(conntrack=True), record(BEFORE), entries=(entry(OLD),)),
            (
                "conntrack on node-a still holds UDP 10.244.0.2:12345 > 10.96.0.53:53, answered by 10.244.0.3:5353: "
                "nothing deleted it."
            ),
        ),
        (
            judged(step(lost=Count(at_least=1)), record(BEFORE)),
            "nothing stopped queries: 1 of 1 packet got an answer.",
        ),
        (
            judged(step(source=NodeDevice("node-a", "uplink")), record(answered(10, 21, "old")), source=NEW),
            "old saw 10.244.0.2 as the sender of packet 10, sent 20.0 ms after the change was made.",
        ),
        (
            judged(step(backends=("new", "old")), record(BEFORE, answered(10, 21, "new"))),
            "new was the last to answer: packet 10, sent 20.0 ms after the change was made.",
        ),
        (judged(step(backend="old"), record(BEFORE, answered(10, 21, "old"))), ""),
    ],
)
def test_otherwise_it_says_when(verdict: StepVerdict, sentence: str) -> None:
    assert why_step(verdict) == sentence
    assert any(line.startswith("  why: ") for line in explain(verdict)) is bool(sentence)


def changed(verdict: StepVerdict, change: Change) -> StepVerdict:
    return replace(verdict, case=replace(verdict.case, step=replace(verdict.step, change=change)))


def test_a_connection_that_leads_to_a_gone_pod_is_no_riddle() -> None:
    connection = replace(record(BEFORE, lost(10, 5), lost(11, 9)), tracked=tracked(OLD), by_connection=True)
    gone = Change(pods={"old": PodChange(present=False)})
    sentence = (
        "conntrack on node-a still leads queries to old (10.244.0.3:5353), a pod that is gone: nothing answers or "
        "resets it there. kube-proxy deletes such entries for UDP alone."
    )
    for expect in (step(lost=ZERO), step(resets=Count(at_least=1))):
        assert why_step(changed(judged(expect, connection), gone)) == sentence
    assert why_step(judged(step(lost=ZERO), connection)) != sentence, "the pod is there"
    over_udp = replace(connection, by_connection=False)
    assert "nothing deleted that entry" in why_step(changed(judged(step(lost=ZERO), over_udp), gone))


def test_no_proxy_is_to_blame_for_a_pod_without_a_grace_period() -> None:
    verdict = judged(step(lost=ZERO), record(BEFORE, lost(10, 5), answered(11, 21, "new")))
    stage = RolloutStage(deleted=("old",), killed=True)
    killed = Change(workloads=(WorkloadChange(namespace="default", name="web", stages=(stage,)),))
    sentence = (
        "old ended without a grace period (terminationGracePeriodSeconds is 0), before the API server knew, so the "
        "proxy is not to blame; with a grace period it serves until proxies have followed."
    )
    assert why_step(changed(verdict, killed)) == sentence
    on_link = replace(lost(10, 3), link="node-b")
    after_link = judged(step(lost=ZERO), record(BEFORE, on_link, lost(11, 5), answered(12, 21, "new")))
    assert why_step(changed(after_link, killed)) == sentence, "a packet that a link lost had no backend"
    graceful = Change(
        workloads=(WorkloadChange(namespace="default", name="web", stages=(replace(stage, killed=False),)),)
    )
    assert why_step(changed(verdict, graceful)) == why_step(verdict) != sentence


def test_a_backend_that_answers_last_is_no_cause_of_a_loss() -> None:
    flow = replace(record(BEFORE, lost(10, 5), answered(11, 12, "new"), answered(12, 30, "new")), tracked=tracked(NEW))
    assert why_step(judged(step(lost=ZERO), flow)).startswith(
        "1 packet lost, sent 4.0 ms after the change was made; new"
    )


def test_what_nothing_decides_says_why() -> None:
    silent = replace(record(BEFORE, lost(10, 5)), silent=("node-b",))
    assert why_step(judged(step(lost=ZERO), silent)).startswith("nothing decides queries.lost: ")
