"""Exit codes, colour, and the JSON document of a run. The texts themselves are golden files."""

import json
import re
import shlex
import subprocess
from collections.abc import Sequence

import pytest
from recorded import FILE, World

from proxylab.errors import ExitCode
from proxylab.report.document import to_json
from proxylab.report.exit_code import exit_code
from proxylab.report.run_text import run_lines
from proxylab.report.view import view_of
from proxylab.scenario.expect import Preserved
from proxylab.scenario.words import Outcome
from proxylab.verdict.judge import judge
from proxylab.verdict.model import Fault, Judgement, ProbeVerdict, ScenarioResult, Skip

GOOD = World(source=Preserved())
SILENT = World(outcome=Outcome.DROPPED, name="it's dropped")


def passing() -> ProbeVerdict:
    return judge(GOOD.probe, GOOD.resolved, None, GOOD.evidence(GOOD.round_trip(0, "echo-1")))


def failing() -> ProbeVerdict:
    seen = GOOD.round_trip(0, "echo-1", GOOD.address("node-a"))
    return judge(GOOD.probe, GOOD.resolved, None, GOOD.evidence(seen))


def inconclusive() -> ProbeVerdict:
    return judge(SILENT.probe, SILENT.resolved, None, SILENT.evidence([SILENT.leaves(0)]))


def result(*probes: ProbeVerdict, skipped: Skip | None = None, fault: Fault | None = None) -> ScenarioResult:
    return ScenarioResult(
        file=FILE, name="x", engine="embedded/iptables", probes=probes, skipped=skipped, fault=fault, seconds=0.5
    )


LACKING = result(skipped=Skip("IPVS", "modprobe ip_vs"))


def faulty(code: ExitCode) -> ScenarioResult:
    return result(fault=Fault(code, "x"))


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ([], ExitCode.NOTHING_SELECTED),
        ([result()], ExitCode.NOTHING_SELECTED),
        ([LACKING], ExitCode.CAPABILITY),
        ([LACKING, result()], ExitCode.CAPABILITY),
        ([LACKING, result(passing())], ExitCode.OK),
        ([result(passing())], ExitCode.OK),
        ([result(passing(), inconclusive())], ExitCode.INCONCLUSIVE),
        ([result(passing(), inconclusive(), failing())], ExitCode.FAILED),
        ([result(passing()), faulty(ExitCode.FAILED)], ExitCode.FAILED),
        ([result(passing()), faulty(ExitCode.CAPABILITY)], ExitCode.OK),
        ([faulty(ExitCode.CAPABILITY)], ExitCode.CAPABILITY),
        ([result(failing()), faulty(ExitCode.SCENARIO)], ExitCode.SCENARIO),
        ([faulty(ExitCode.SCENARIO), faulty(ExitCode.INTERNAL)], ExitCode.INTERNAL),
    ],
)
def test_exit_codes(results: Sequence[ScenarioResult], code: ExitCode) -> None:
    assert exit_code(results) is code
    assert json.loads(to_json(results))["exitCode"] == code


def test_a_painter_changes_nothing_but_the_words_it_paints() -> None:
    results = [result(passing(), failing(), inconclusive()), LACKING, faulty(ExitCode.FAILED)]
    painted: set[str] = set()

    def paint(word: str, judgement: Judgement) -> str:
        painted.add(word.strip().lower())
        return f"<{judgement}>{word}</>"

    for verbosity in (-1, 0, 1):
        plain = run_lines(results, verbosity=verbosity)
        coloured = run_lines(results, verbosity=verbosity, paint=paint)
        assert coloured != plain
        assert [re.sub(r"<[^>]*>", "", line) for line in coloured] == plain
    assert painted == {"pass", "fail", "inconclusive", "skip", "error"}


def test_nothing_selected_says_so() -> None:
    assert run_lines([]) == ["", "nothing selected in 0.00 s"]


def test_quiet_is_one_line_a_failure() -> None:
    assert run_lines([result(passing(), failing())], verbosity=-1) == [
        f"{FILE}:23:15: fail: {GOOD.name}: echo-1 saw it come from 172.18.0.2",
        "1 failed, 1 passed in 0.50 s",
    ]


def test_the_command_is_quoted_for_a_shell() -> None:
    name = "it's dropped, as no rule leads it to a pod"
    world = World(outcome=Outcome.DROPPED, name=name)
    shown = [result(judge(world.probe, world.resolved, None, world.evidence([world.leaves(0)])))]
    lines = run_lines(shown)
    start = lines.index(f"  reproduce: proxylab run {FILE} \\")
    typed = "\n".join(lines[start : start + 2]).removeprefix("  reproduce: ").replace("\\\n", "")
    assert shlex.split(typed) == ["proxylab", "run", FILE, "--probe", name]
    document = json.loads(to_json(shown))
    assert shlex.split(document["scenarios"][0]["probes"][0]["reproduce"]) == shlex.split(typed)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("costs $5", "'costs $5'"),
        ("it's dropped", '"it\'s dropped"'),
        ("it's $HOME", None),
        ("it's `here`", None),
        ('it\'s "here"', None),
        ("it's here!", None),
        ("it's \\here", None),
    ],
)
def test_a_shell_reads_the_name_as_it_is(name: str, written: str | None) -> None:
    world = World(outcome=Outcome.DROPPED, name=name)
    option = view_of(judge(world.probe, world.resolved, None, world.evidence([world.leaves(0)]))).command.option
    assert shlex.split(option) == ["--probe", name]
    assert written is None or option == f"--probe {written}"
    read = subprocess.run(
        ["bash", "-c", f"printf %s {option.removeprefix('--probe ')}"], capture_output=True, check=True
    )
    assert read.stdout.decode() == name


def test_json_has_every_key_always() -> None:
    document = json.loads(to_json([result(failing()), LACKING]))
    assert (document["apiVersion"], document["kind"]) == ("proxylab/v1", "RunReport")
    assert document["counts"] == {"pass": 0, "fail": 1, "inconclusive": 0, "skip": 0}
    ran, lacking = document["scenarios"]
    assert ran.keys() == lacking.keys()
    assert (ran["judgement"], ran["skipped"], ran["fault"]) == ("fail", None, None)
    assert (lacking["judgement"], lacking["skipped"]["cure"]) == ("skip", "modprobe ip_vs")
    verdicts = ran["probes"][0]["verdicts"]
    assert [each["expectation"] for each in verdicts] == ["outcome", "reply", "source"]
    assert verdicts[2]["position"] == {"file": FILE, "line": 23, "column": 15}


def test_text_and_document_of_a_passed_probe_need_none_of_its_packets() -> None:
    whole, without = result(passing(), failing()), result(passing().without_packets(), failing())
    assert whole.probes[0].evidence.observations
    assert not without.probes[0].evidence.observations
    assert run_lines([without]) == run_lines([whole])
    assert to_json([without]) == to_json([whole])
