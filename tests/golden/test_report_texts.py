"""The words of a report, as files to be read and reviewed: the product's face.

Write the files anew with ``pytest tests/golden --update-golden``, then read the difference.
"""

from pathlib import Path

import pytest
from made_steps import all_well, entry_remains, torn_connection, unproven_loss
from msgspec.structs import replace
from probed import CASES, RUN
from recorded import SVC

from proxylab.report.document import to_json
from proxylab.report.failure_text import explain
from proxylab.report.run_text import run_lines
from proxylab.report.unmet_rules import coverage_lines
from proxylab.verdict.model import ScenarioResult
from proxylab.verdict.rule_coverage import RuleCoverage, RuleKind

FILES = Path(__file__).parent / "report"


def compare(name: str, text: str, update: bool) -> None:
    file = FILES / name
    if update:
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize("name", CASES)
def test_explanations(name: str, update_golden: bool) -> None:
    lines = explain(CASES[name]())
    assert max(map(len, lines)) <= 80
    compare(f"{name}.txt", "\n".join(lines) + "\n", update_golden)


@pytest.mark.parametrize(("name", "verbosity"), [("run-quiet.txt", -1), ("run.txt", 0), ("run-verbose.txt", 1)])
def test_runs(name: str, verbosity: int, update_golden: bool) -> None:
    compare(name, "\n".join(run_lines(RUN, verbosity=verbosity)) + "\n", update_golden)


def test_json(update_golden: bool) -> None:
    compare("run.json", to_json(RUN) + "\n", update_golden)


STEPS = {
    "step-entry-remains": entry_remains,
    "step-torn-connection": torn_connection,
    "step-unproven-loss": unproven_loss,
    "step-all-well": all_well,
}


@pytest.mark.parametrize("name", STEPS)
def test_timelines(name: str, update_golden: bool) -> None:
    lines = explain(STEPS[name]())
    assert max(map(len, lines)) <= 80
    compare(f"{name}.txt", "\n".join(lines) + "\n", update_golden)


def test_a_run_with_steps(update_golden: bool) -> None:
    steps = (all_well(), entry_remains())
    run = [ScenarioResult(file="roll.lab.yaml", name="roll", engine="embedded/iptables", steps=steps, seconds=0.5)]
    compare("run-of-steps.txt", "\n".join(run_lines(run, verbosity=1)) + "\n", update_golden)
    compare("run-of-steps.json", to_json(run) + "\n", update_golden)


FIREWALL = (
    "firewall-XQNAR6PS-default/echo/tcp/: ip saddr 10.0.0.0/8 return",
    "firewall-XQNAR6PS-default/echo/tcp/: ip saddr 192.0.2.0/24 return",
)
MET = RuleCoverage(
    (
        RuleKind("nftables", "firewall-*", "firewall-* drop", 1, 0, ("firewall-XQNAR6PS-default/echo/tcp/: drop",)),
        RuleKind("nftables", "firewall-*", "firewall-* ip saddr NETWORK return", 2, 0, FIREWALL),
        RuleKind(
            "nftables",
            "map service-ips",
            "element service-ips : goto service-*",
            12,
            11,
            ("service-ips: 10.96.0.10 . udp . 80 : goto service-BBBBBBBB-default/echo/udp/",),
        ),
        RuleKind("nftables", "services", "services ip daddr . meta l4proto . th dport vmap @service-ips", 2, 2, ()),
    )
)
MORE_MET = RuleCoverage(
    (RuleKind("nftables", "firewall-*", "firewall-* ip saddr NETWORK return", 1, 1, ()), MET.kinds[3]),
    ("a client of the source ranges is let in",),
)


@pytest.mark.parametrize(("name", "verbosity"), [("rules-quiet.txt", -1), ("rules.txt", 0), ("rules-verbose.txt", 1)])
def test_rules_that_no_probe_met(name: str, verbosity: int, update_golden: bool) -> None:
    alone = ScenarioResult(file="firewall.lab.yaml", name="firewall", engine="kube-proxy/nftables", rules=MET)
    others = [replace(alone, file="more.lab.yaml", case="ipv6", rules=MORE_MET), replace(alone, rules=None)]
    texts = ["\n".join(coverage_lines(run, verbosity=verbosity)) for run in ([alone], [alone, *others])]
    assert verbosity < 0 or max(len(line) for text in texts for line in text.splitlines()) <= 80
    compare(name, "\n\n\n".join(texts) + "\n", update_golden)
    assert coverage_lines(others[1:], verbosity=verbosity) == []
    assert texts[0] in "\n".join(run_lines([alone], verbosity=verbosity))
    compare("rules.json", to_json([alone]) + "\n", update_golden)


def test_every_file_has_a_case() -> None:
    expected = {f"{name}.txt" for name in (*CASES, *STEPS)}
    expected |= {"run-quiet.txt", "run.txt", "run-verbose.txt", "run.json", "run-of-steps.txt", "run-of-steps.json"}
    expected |= {"rules-quiet.txt", "rules.json", "rules.txt", "rules-verbose.txt"}
    assert {file.name for file in FILES.iterdir()} == expected
    assert SVC[:15] in (FILES / "no-translation.txt").read_text()
