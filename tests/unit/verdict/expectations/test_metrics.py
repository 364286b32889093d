"""What a step expects of the engines' metrics, against the pages that the lab read."""

import pytest
from golden_words import Told
from made_steps import at
from msgspec.structs import replace

from proxylab.evidence.stream_records import Exported, Sample, StepEvidence
from proxylab.scenario.steps import Count, Metric, Step, StepExpect
from proxylab.verdict.causes.table import why_step
from proxylab.verdict.judge import judge_step
from proxylab.verdict.model import StepVerdict

NAME = "kubeproxy_sync_proxy_rules_no_local_endpoints_total"
PAGE = Exported(
    "node-a",
    (NAME, "kubeproxy_sync_proxy_rules_iptables_last", "go_goroutines"),
    tuple(
        Sample(NAME, {"ip_family": family, "traffic_policy": policy}, value)
        for family in ("IPv4", "IPv6")
        for policy, value in (("internal", 1.0), ("external", 2.0))
    ),
)
INTERNAL = Metric(
    name="sync_proxy_rules_no_local_endpoints_total",
    node="node-a",
    labels={"traffic_policy": "internal", "ip_family": "IPv4"},
    value=Count(at_least=1, at_most=1),
)


def judged(*wanted: Metric, page: Exported = PAGE, traced: int = 0) -> StepVerdict:
    expect = StepExpect(metrics=wanted, position=at(20), positions={"metrics": at(21)})
    step = Step(name="a step", expect=expect, position=at(19))
    evidence = StepEvidence(began=0, changed=1, settled=2, ended=3, exported=(page,), traced=traced)
    return judge_step(step, 1, (), {}, ("node-a",), {}, evidence)


@pytest.mark.parametrize("name", [NAME, NAME.removeprefix("kubeproxy_")])
def test_a_metric_by_either_name(name: str) -> None:
    (verdict,) = judged(replace(INTERNAL, name=name)).verdicts
    assert (verdict.expectation, verdict.judgement, verdict.position) == ("metrics", "pass", at(21))
    assert (verdict.expected, verdict.observed) == ("1", "1")
    assert verdict.witnesses == (
        "sync_proxy_rules_no_local_endpoints_total (traffic_policy=internal, ip_family=IPv4) is 1 on node-a",
    )


def test_samples_with_the_labels_count_together() -> None:
    external = replace(INTERNAL, labels={"traffic_policy": "external"}, value=Count(at_least=4, at_most=4))
    everything = replace(INTERNAL, labels={}, value=Count(at_least=5))
    assert judged(external, everything).overall == "pass"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"value": Count(at_least=2, at_most=2), "labels": {"traffic_policy": "internal"}, "name": "other"},
            (
                "the engine of node-a exports no metric 'other'; it exports sync_proxy_rules_no_local_endpoints_total "
                "and sync_proxy_rules_iptables_last"
            ),
        ),
        (
            {"name": "sync_proxy_rules_no_local_endpoint_total"},
            (
                "the engine of node-a exports no metric 'sync_proxy_rules_no_local_endpoint_total'; did you mean "
                "'sync_proxy_rules_no_local_endpoints_total'?"
            ),
        ),
        (
            {"value": Count(at_least=3)},
            (
                "sync_proxy_rules_no_local_endpoints_total (traffic_policy=internal, ip_family=IPv4) is 1 on node-a, "
                "not at least 3"
            ),
        ),
        (
            {"labels": {"traffic_policy": "local"}},
            (
                "node-a exports sync_proxy_rules_no_local_endpoints_total (traffic_policy=local) only with "
                "traffic_policy=internal or traffic_policy=external"
            ),
        ),
    ],
)
def test_what_is_wrong_with_a_metric(changes: dict[str, object], reason: str) -> None:
    verdict = judged(replace(INTERNAL, **changes))  # type: ignore[arg-type]
    assert (verdict.overall, verdict.verdicts[0].reasons) == ("fail", (reason,))
    assert why_step(verdict) == reason if reason.endswith("?") else f"{reason}."


def test_an_engine_that_does_not_answer_shows_nothing(told: Told) -> None:
    verdict = judged(INTERNAL, page=Exported("node-a", problem="Connection refused"))
    assert (verdict.overall, verdict.verdicts[0].reasons) == told()


@pytest.mark.parametrize(
    ("most", "traced", "judgement"), [(1, 1, "pass"), (0, 0, "fail"), (0, 1, "inconclusive"), (0, 3, "inconclusive")]
)
def test_flows_that_the_lab_sent_to_trace_a_probe_may_count(most: int, traced: int, judgement: str) -> None:
    (verdict,) = judged(replace(INTERNAL, value=Count(at_most=most)), traced=traced).verdicts
    assert verdict.judgement == judgement
    if judgement == "inconclusive":
        assert "not 0; it may count" in verdict.reasons[0]


def test_a_metric_that_no_traced_flow_explains_is_wrong() -> None:
    (verdict,) = judged(replace(INTERNAL, value=Count(at_least=2)), traced=5).verdicts
    assert verdict.judgement == "fail"
