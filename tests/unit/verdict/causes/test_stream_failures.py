"""The sentence that names why a step failed."""

import pytest
from made_steps import NEW, OLD, ZERO, answered, entry, entry_remains, judged, lost, record, rejected, step, tracked
from msgspec.structs import replace

from proxylab.evidence.stream_records import Break, BreakKind
from proxylab.report.failure_text import explain
from proxylab.scenario.steps import Count
from proxylab.verdict.causes.table import why_step
from proxylab.verdict.model import StepVerdict

BEFORE = answered(9, 0.2, "old")


def test_the_table_is_the_cause_where_it_leads_to_who_answered_before() -> None:
    sentence = (
        "conntrack on node-a still sends queries to old (10.244.0.3:5353), which answered before: "
        "nothing deleted that entry."
    )
    assert why_step(entry_remains()) == sentence
    stranger = judged(step(backend="new"), replace(record(answered(10, 25, "old")), tracked=tracked(OLD)))
    assert why_step(stranger) == "old answered packet 10, sent 24.0 ms after the change was made."


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
            judged(step(source="node-a"), record(answered(10, 21, "old")), source=NEW),
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
