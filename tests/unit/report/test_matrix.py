"""The table of scenarios and engines, and what took longest."""

from msgspec.structs import replace

from proxylab.errors import ExitCode
from proxylab.report.exit_code import exit_code
from proxylab.report.matrix import result_table, slowest
from proxylab.report.run_text import run_lines
from proxylab.verdict.model import Fault, ScenarioResult, Skip

OURS, THEIRS = "embedded/iptables", "kube-proxy/nftables"
BROKEN = Fault(1, "the engine ended")
LACKING = Skip("nftables", "a newer kernel")


def result(file: str, engine: str = OURS, seconds: float = 0.5, **fields: object) -> ScenarioResult:
    return replace(ScenarioResult(file=file, name="n", engine=engine, seconds=seconds), **fields)


def test_one_engine_needs_no_table() -> None:
    assert result_table([result("a"), result("b")]) == []


def test_a_row_for_each_scenario_and_a_column_for_each_engine() -> None:
    results = [
        result("scenarios/first.lab.yaml", fault=BROKEN),
        result("b.lab.yaml", skipped=LACKING),
        result("scenarios/first.lab.yaml", THEIRS),
        result("c.lab.yaml", THEIRS, fault=BROKEN),
    ]
    assert result_table(results, lambda word, judgement: word.replace(judgement, judgement.upper())) == [
        "scenario                  embedded/iptables  kube-proxy/nftables",
        "scenarios/first.lab.yaml  FAIL               nothing",
        "b.lab.yaml                SKIP               -",
        "c.lab.yaml                -                  FAIL",
    ]


def test_an_engine_has_a_column_for_each_of_its_kernels() -> None:
    old, new = result("a", fault=BROKEN), result("a", kernel="uml", skipped=LACKING)
    assert result_table([old, new]) == [
        "scenario  embedded/iptables  embedded/iptables on uml",
        "a         fail               skip",
    ]
    assert result_table([old, result("a", THEIRS, kernel="uml", fault=BROKEN)])[0].split("  ")[-1] == f"{THEIRS} on uml"


def test_kernels_have_a_column_each_and_engines_a_row_if_each_engine_ran_on_each_kernel() -> None:
    results = [
        result("a", engine, kernel=kernel, fault=BROKEN) for engine in (OURS, THEIRS) for kernel in ("host", "uml")
    ]
    assert result_table(results) == [
        "scenario                 host  uml",
        "a [embedded/iptables]    fail  fail",
        "a [kube-proxy/nftables]  fail  fail",
    ]


def test_a_run_exits_with_4_if_a_kernel_judged_nothing() -> None:
    judged, skipped = result("a"), result("a", kernel="uml", skipped=LACKING)
    assert exit_code([judged, skipped]) == ExitCode.CAPABILITY


def test_cases_of_a_matrix_share_a_row_that_shows_the_worst() -> None:
    results = [result("a", skipped=LACKING), result("a", fault=BROKEN), result("a", THEIRS)]
    assert result_table(results)[1:] == ["a         fail               nothing"]


def test_the_ten_slowest_are_told_where_there_are_more() -> None:
    results = [result(f"{number}.lab.yaml", seconds=number / 10) for number in range(11)]
    assert slowest(results[:10]) == []
    lines = slowest(results)
    assert lines[:2] == ["slowest 10 of 11:", "    1.00 s  10.lab.yaml [embedded/iptables]"]
    assert len(lines) == 11


def test_both_stand_above_the_line_that_sums_up() -> None:
    results = [result(f"{number}.lab.yaml", engine) for number in range(6) for engine in (OURS, THEIRS)]
    lines = run_lines(results)
    assert lines.index("slowest 10 of 12:") < lines.index(result_table(results)[0]) < len(lines) - 1
    assert run_lines(results, verbosity=-1) == lines[-1:]
