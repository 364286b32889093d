"""``metrics`` of a step: what the engines export at /metrics when the step ends. It needs their pages."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

from proxylab.evidence.stream_records import Exported, Sample
from proxylab.evidence.words import amount, listed
from proxylab.scenario.steps import Count, Metric
from proxylab.verdict.findings import Expectation, Findings
from proxylab.verdict.model import Verdict
from proxylab.verdict.step_case import StepCase

_PREFIX: Final = "kubeproxy_"


def exported_names(expected: Iterable[Metric]) -> Mapping[str, tuple[str, ...]]:
    """The names to read, by node: each as its author writes it, and with kube-proxy's prefix."""
    names: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
    for each in expected:
        names[each.node] += (each.name, f"{_PREFIX}{each.name}")
    return dict(names)


def _judge(case: StepCase, expected: Sequence[Metric]) -> Verdict:
    """Each metric has the value that its author expects."""
    findings, pages = Findings(case), {each.node: each for each in case.evidence.exported}
    observed: list[str] = []
    witnesses: list[str] = []
    for metric in expected:
        page = pages.get(metric.node, Exported(metric.node, problem="the lab did not ask it"))
        if page.problem:
            observed.append("no answer")
            findings.doubt(f"the engine of {metric.node} did not answer at /metrics: {page.problem}")
            continue
        samples = [
            each for each in page.samples if each.name.removeprefix(_PREFIX) == metric.name.removeprefix(_PREFIX)
        ]
        found = [each for each in samples if metric.labels.items() <= each.labels.items()]
        value = sum(each.value for each in found)
        if not found:
            observed.append("none")
        if not samples:
            findings.wrong(_unknown(metric, page.names))
        elif not found:
            findings.wrong(f"{metric.node} exports {_called(metric)} only with {_labels(samples, metric)}")
        else:
            observed.append(f"{value:g}")
            witnesses.append(f"{_called(metric)} is {value:g} on {metric.node}")
            if value not in metric.value:
                wrong = f"{_called(metric)} is {value:g} on {metric.node}, not {_words(metric.value)}"
                traced = case.evidence.traced
                if any(value - each in metric.value for each in range(1, traced + 1)):
                    findings.doubt(f"{wrong}; it may count {amount(traced, 'flow')} that the lab sent to trace probes")
                else:
                    findings.wrong(wrong)
    return findings.settle(
        "metrics",
        expected=", ".join(_words(each.value) for each in expected),
        observed=", ".join(observed),
        witnesses=witnesses,
    )


def _unknown(metric: Metric, names: Sequence[str]) -> str:
    """The engine exports no such metric; with the name that the author may have meant, or all of its own."""
    own = [name.removeprefix(_PREFIX) for name in names if name.startswith(_PREFIX)]
    meant = get_close_matches(metric.name.removeprefix(_PREFIX), own, 1)
    hint = f"did you mean {meant[0]!r}?" if meant else f"it exports {listed(own)}"
    return f"the engine of {metric.node} exports no metric {metric.name!r}; {hint}"


def _called(metric: Metric) -> str:
    labels = ", ".join(f"{name}={value}" for name, value in metric.labels.items())
    return metric.name.removeprefix(_PREFIX) + (f" ({labels})" if labels else "")


def _labels(samples: Iterable[Sample], metric: Metric) -> str:
    """The values of the labels that the author names."""
    named = [{name: each.labels[name] for name in metric.labels if name in each.labels} for each in samples]
    shown = [", ".join(f"{name}={value}" for name, value in each.items()) or "other labels" for each in named]
    return listed(list(dict.fromkeys(shown)), "or")


def _words(count: Count) -> str:
    if count.at_least == count.at_most:
        return str(count.at_least)
    least = f"at least {count.at_least}" if count.at_least else ""
    most = "" if count.at_most is None else f"at most {count.at_most}"
    return " and ".join(filter(None, (least, most))) or "any"


METRICS = Expectation[StepCase, Sequence[Metric]](
    key="metrics",
    expected=lambda case: case.expect.metrics or None,
    judge=_judge,
    as_seen=lambda _end, verdict: verdict.reasons[0] + "." * (not verdict.reasons[0].endswith("?")),
)
