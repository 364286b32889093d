"""The command line as its caller sees it: what it prints where, and how it exits."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from caller import Caller
from scenario_text import scenario_text

from proxylab.cli.verbs import VERBS
from proxylab.errors import ExitCode
from proxylab.scenario.model import Scenario


@pytest.mark.parametrize(
    ("probes", "code"),
    [
        (["holds", "holds too"], ExitCode.OK),
        (["holds", "fails", "doubts"], ExitCode.FAILED),
        (["holds", "doubts", "skips"], ExitCode.INCONCLUSIVE),
        (["holds", "skips"], ExitCode.OK),
        (["skips"], ExitCode.CAPABILITY),
    ],
)
def test_a_run_exits_with_the_worst_of_its_verdicts(caller: Caller, probes: list[str], code: ExitCode) -> None:
    caller.scenario("x.lab.yaml", *probes)
    assert caller.type("run", "x.lab.yaml")[0] == code


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("lacking", ExitCode.CAPABILITY, "ask an administrator for them"),
        ("refused", ExitCode.FAILED, "iptables-restore: line 7 failed"),
        ("crowded", ExitCode.SCENARIO, "crowded.lab.yaml:4:3: spec.pods: no address is left"),
        ("broken", ExitCode.INTERNAL, "the lab process ended before it could answer"),
    ],
)
def test_an_error_is_told_with_its_code_and_ends_no_other_scenario(
    caller: Caller, name: str, code: ExitCode, words: str
) -> None:
    caller.scenario("a.lab.yaml", "one", name=name)
    caller.scenario("b.lab.yaml", "skips")
    found, output, errors = caller.type("run", "a.lab.yaml", "b.lab.yaml")
    assert found == code
    assert words in output
    assert "Traceback" not in output + errors
    assert "probe skips" in caller.events()


FORESEEN = '  except: [{when: {mode: iptables}, engineFails: "line 7 failed", because: a bug}]\n  probes:\n'


def foreseen(caller: Caller, name: str) -> None:
    caller.scenario("x.lab.yaml", "one", "two", name=name)
    path = caller.folder / "x.lab.yaml"
    path.write_text(path.read_text().replace("  probes:\n", FORESEEN))


def test_an_engine_that_fails_as_foreseen_is_green_and_says_so(caller: Caller) -> None:
    foreseen(caller, "refused")
    code, output, _ = caller.type("run", "-v", "x.lab.yaml")
    assert code == ExitCode.OK
    first, *others = output.splitlines()
    assert first.startswith("pass ")
    assert "fails as expected" in first
    assert "x.lab.yaml:9:12 foresees: a bug; it logged 'iptables-restore: line 7 failed'" in " ".join(
        line.strip() for line in others
    )
    assert others[-1].startswith("1 scenario failing as expected in")


def test_an_engine_that_does_not_fail_as_foreseen_is_an_error(caller: Caller) -> None:
    foreseen(caller, "fine")
    code, output, _ = caller.type("run", "x.lab.yaml")
    assert code == ExitCode.FAILED
    assert "it programmed what x.lab.yaml:9:12 says it cannot (a bug)" in output


def test_programs_hear_of_engines_that_fail_as_foreseen(caller: Caller) -> None:
    foreseen(caller, "refused")
    _, output, _ = caller.type("run", "-o", "json", "x.lab.yaml")
    (scenario,) = json.loads(output)["scenarios"]
    assert (scenario["judgement"], scenario["probes"]) == ("pass", [])
    assert scenario["foreseen"] == {
        "because": "a bug",
        "said": "iptables-restore: line 7 failed",
        "position": {"file": "x.lab.yaml", "line": 9, "column": 12},
    }


def test_results_go_to_standard_output_and_progress_to_standard_error(caller: Caller) -> None:
    caller.scenario("x.lab.yaml", "holds", "fails to hold")
    _, output, errors = caller.type("run", "x.lab.yaml")
    assert "x.lab.yaml:17:5: FAIL: fails to hold" in output
    assert "the packet took another way" in output
    assert output.splitlines()[-1].startswith("1 failed, 1 passed in")
    assert errors == ""


def test_verbose_names_every_probe_and_quiet_only_the_bad_ones(caller: Caller) -> None:
    caller.scenario("x.lab.yaml", "holds", "fails to hold")
    assert "holds\n" in caller.type("run", "-v", "x.lab.yaml")[1]
    first, last = caller.type("run", "-q", "x.lab.yaml")[1].splitlines()
    assert "fails to hold" in first
    assert last.startswith("1 failed, 1 passed in")


def test_json_is_one_document_that_knows_the_exit_code(caller: Caller) -> None:
    caller.scenario("x.lab.yaml", "holds", "fails to hold")
    code, output, _ = caller.type("run", "-o", "json", "x.lab.yaml")
    document = json.loads(output)
    assert document["exitCode"] == code == ExitCode.FAILED
    assert [probe["name"] for probe in document["scenarios"][0]["probes"]] == ["holds", "fails to hold"]


def test_one_session_for_all_files_and_one_lab_after_the_other(caller: Caller) -> None:
    caller.scenario("a.lab.yaml", "one", "two", name="a")
    caller.scenario("b.lab.yaml", "three", name="b")
    caller.type("run", "a.lab.yaml", "b.lab.yaml")
    assert caller.events() == [
        "session embedded/iptables",
        *("open a", "probe one", "probe two", "close a"),
        *("open b", "probe three", "close b"),
        "end of session",
    ]


def test_a_directory_stands_for_the_scenarios_below_it_each_once(caller: Caller) -> None:
    caller.scenario("some/b.lab.yaml", "one", name="b")
    caller.scenario("some/deeper/a.lab.yaml", "one", name="a")
    (caller.folder / "some/deployment.yaml").write_text("{[")
    caller.type("run", "some", "some/b.lab.yaml")
    assert [event for event in caller.events() if event.startswith("open")] == ["open b", "open a"]


def test_only_the_probes_that_were_asked_for_are_sent(caller: Caller) -> None:
    caller.scenario("a.lab.yaml", "one", "two", name="a")
    caller.scenario("b.lab.yaml", "three", name="b")
    assert caller.type("run", "a.lab.yaml", "b.lab.yaml", "--probe", "two")[0] == ExitCode.OK
    assert caller.events()[1:-1] == ["open a", "probe two", "close a"]


def test_a_matrix_runs_a_lab_for_each_case_and_a_probe_is_called_with_or_without_it(caller: Caller) -> None:
    caller.scenario("x.lab.yaml", "one", "two")
    file = caller.folder / "x.lab.yaml"
    file.write_text(file.read_text().replace("spec:\n", "spec:\n  matrix: {podNetwork: [ptp, bridge]}\n", 1))
    opened = ["open fine", "probe one[ptp]", "close fine", "open fine", "probe one[bridge]", "close fine"]
    assert caller.type("run", "x.lab.yaml", "--probe", "one")[0] == ExitCode.OK
    assert caller.events()[1:-1] == opened
    assert caller.type("run", "x.lab.yaml", "--probe", "two[bridge]")[0] == ExitCode.OK
    assert caller.events()[-4:-1] == ["open fine", "probe two[bridge]", "close fine"]


def test_a_scenario_runs_on_each_kernel_that_is_asked_for_or_on_those_of_its_axis(caller: Caller) -> None:
    other = caller.folder / "linux"
    other.write_text("#!/bin/sh\necho 7.2.11\n", encoding="ascii")
    other.chmod(0o755)
    caller.scenario("x.lab.yaml", "one")
    on_both = ("--kernel", "host", "--kernel", "./linux")
    code, output, _ = caller.type("run", "x.lab.yaml", *on_both)
    opened = ["open fine", "probe one", "close fine", "open fine on ./linux", "probe one", "close fine"]
    assert caller.events()[1:-1] == opened, "one session serves all kernels"
    assert code == ExitCode.OK
    assert "kernel ./linux: 6.18.0" in output.splitlines()
    assert "embedded/iptables on ./linux" in " ".join(output.split())
    document = json.loads(caller.type("run", "x.lab.yaml", *on_both, "-o", "json")[1])
    kernels = [(each["kernel"], each["release"]) for each in document["scenarios"]]
    assert kernels == [("host", "6.18.0"), ("./linux", "6.18.0")]

    file = caller.folder / "x.lab.yaml"
    file.write_text(file.read_text().replace("spec:\n", "spec:\n  matrix: {kernel: [uml]}\n", 1))
    caller.type("run", "x.lab.yaml", *on_both)
    assert caller.events()[-4:-1] == ["open fine on uml", "probe one[uml]", "close fine"]


def test_a_kernel_that_is_not_there_ends_the_run_before_it_begins(caller: Caller) -> None:
    caller.scenario("x.lab.yaml", "one")
    code, _, errors = caller.type("run", "x.lab.yaml", "--kernel", "host", "--kernel", "./none")
    assert (code, caller.events()) == (ExitCode.CAPABILITY, [])
    assert "the kernel" in errors


def test_a_probe_that_is_not_there_selects_nothing_and_starts_nothing(caller: Caller) -> None:
    caller.scenario("x.lab.yaml", "a pod reaches it")
    code, output, errors = caller.type("run", "x.lab.yaml", "--probe", "a pot reaches it")
    assert (code, output) == (ExitCode.NOTHING_SELECTED, "")
    assert "a pod reaches it" in errors
    assert caller.events() == []


def test_a_file_with_mistakes_is_an_error_of_its_own_and_the_others_run(caller: Caller) -> None:
    for name in ("a", "b"):
        caller.scenario(f"{name}.lab.yaml", f"one of {name}")
    (caller.folder / "bad.lab.yaml").write_text("kind: Scenario\nspce: {}\n")
    code, output, _ = caller.type("run", "-v", "a.lab.yaml", "bad.lab.yaml", "b.lab.yaml")
    assert code == ExitCode.SCENARIO
    assert "pass          one of a" in output
    assert "pass          one of b" in output
    assert "bad.lab.yaml [embedded/iptables]: ERROR\n" in output
    assert "error         bad.lab.yaml [embedded/iptables]" in output
    assert ("fail  " in output, "0 probes" in output) == (False, False)
    assert "  bad.lab.yaml:2:1: spce: unknown key" in output
    assert caller.type("run", ".")[0] == ExitCode.SCENARIO
    code, output, _ = caller.type("run", ".", "--probe", "in bad")
    assert code == ExitCode.SCENARIO
    assert "bad.lab.yaml:2:1: spce" in output


def test_a_file_with_a_mistake_is_told_in_one_line_and_exits_2(caller: Caller) -> None:
    caller.scenario("bad.lab.yaml", "one")
    file = caller.folder / "bad.lab.yaml"
    file.write_text(file.read_text().replace("spec:", "spce: {}\nspec:", 1))
    line = file.read_text().splitlines().index("spce: {}") + 1
    code, output, errors = caller.type("run", "bad.lab.yaml")
    assert (code, output) == (ExitCode.SCENARIO, "")
    assert errors.startswith(f"bad.lab.yaml:{line}:1: spce: unknown key; ")
    assert len(errors.splitlines()) == 1


def test_json_has_the_mistakes_of_a_file_among_its_results(caller: Caller) -> None:
    caller.scenario("a.lab.yaml", "one")
    (caller.folder / "bad.lab.yaml").write_text("kind: Scenario\n")
    code, output, _ = caller.type(
        "run", "-o", "json", ".", "--engine", "embedded/iptables", "--engine", "embedded/nftables"
    )
    document = json.loads(output)
    assert document["exitCode"] == code == ExitCode.SCENARIO
    faults = {each["file"]: each["fault"] for each in document["scenarios"]}
    assert faults["a.lab.yaml"] is None
    assert faults["bad.lab.yaml"]["exitCode"] == ExitCode.SCENARIO
    assert "bad.lab.yaml:1:1: apiVersion: is missing" in faults["bad.lab.yaml"]["message"]


@pytest.mark.parametrize(("verb", "sound"), [("run", False), ("check", True)])
def test_every_mistake_of_every_file_is_told_before_anything_runs(caller: Caller, verb: str, sound: bool) -> None:
    if sound:
        caller.scenario("good.lab.yaml", "one")
    for name in ("bad", "worse"):
        (caller.folder / f"{name}.lab.yaml").write_text("kind: Scenario\nspce: {}\n")
    code, output, errors = caller.type(verb, ".")
    assert (code, output) == (ExitCode.SCENARIO, "")
    assert "bad.lab.yaml:2:1: spce" in errors
    assert "worse.lab.yaml:2:1: spce" in errors
    assert caller.events() == []


def test_check_says_what_stands_in_a_file_that_is_fine(caller: Caller) -> None:
    caller.scenario("x.lab.yaml", "one", "two")
    assert caller.type("check", "x.lab.yaml") == (ExitCode.OK, "x.lab.yaml: ok, 2 probes\n", "")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "client: {",
            "client: {addresses: [10.9.0.1], ",
            ":8:5: client: 10.9.0.1 is not in the pod network or the nodes'; choose one of 10.244.0.0/16, 172.18",
        ),
        ("spec:\n", "spec:\n  network: {nodeCIDR: 10.9.0.0/31}\n", ": no address is left in spec.network.nodeCIDR"),
        ("spec:\n", "spec:\n  network: {podCIDR: 10.9.0.0/25}\n", ": no /24 is left in spec.network.podCIDR"),
        ("spec:\n", "spec:\n  network: {serviceCIDR: 10.9.0.0/31}\n", "10.9.0.0/31 has no address left"),
        ("source: preserved", "source: {node: node-a, device: overlay}", "a node has no device 'overlay'"),
    ],
    ids=["fixed address", "nodes", "pods", "Services", "device"],
)
def test_check_says_where_what_only_laying_out_can_tell(caller: Caller, old: str, new: str, said: str) -> None:
    caller.scenario("x.lab.yaml", "one")
    text = (caller.folder / "x.lab.yaml").read_text()
    assert old in text
    (caller.folder / "x.lab.yaml").write_text(text.replace(old, new, 1))
    code, output, errors = caller.type("check", "x.lab.yaml")
    assert (code, output) == (ExitCode.SCENARIO, "")
    assert said in errors
    assert all(re.match(r"x\.lab\.yaml:\d+:\d+: ", line) for line in errors.splitlines())


@pytest.mark.parametrize(
    ("exception", "laid_out"),
    [("", 1), ("except: [{when: {mode: ipvs}, expect: {outcome: dropped}, because: of it}]\n    ", 2)],
)
def test_check_lays_a_scenario_out_once_unless_its_modes_differ(
    caller: Caller, exception: str, laid_out: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases: list[Scenario] = []
    monkeypatch.setattr("proxylab.plan.assembly.assemble", cases.append)
    text = scenario_text("one")
    assert text.count("expect: {") == 1
    (caller.folder / "x.lab.yaml").write_text(text.replace("expect: {", f"{exception}expect: {{"))
    assert caller.type("check", "x.lab.yaml")[0] == ExitCode.OK
    assert len(cases) == laid_out


@pytest.mark.parametrize("verb", ["run", "check"])
def test_a_directory_without_scenarios_selects_nothing(caller: Caller, verb: str) -> None:
    code, output, errors = caller.type(verb, ".")
    assert (code, output) == (ExitCode.NOTHING_SELECTED, "")
    assert "no *.lab.yaml" in errors


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--engine", "embedded/ipfilter", "."], "embedded/iptables"),
        (["run"], "FILE"),
        (["run", "absent.lab.yaml"], "absent.lab.yaml"),
        (["walk"], "walk"),
        (["run", "--quick", "."], "--quick"),
    ],
)
def test_bad_usage_exits_2_and_says_what_would_be_right(caller: Caller, arguments: list[str], words: str) -> None:
    code, output, errors = caller.type(*arguments)
    assert (code, output) == (ExitCode.SCENARIO, "")
    assert words in errors


def test_an_internal_error_exits_3_with_a_traceback_and_a_request(caller: Caller) -> None:
    caller.scenario("x.lab.yaml", "one", name="buggy")
    code, _, errors = caller.type("run", "x.lab.yaml")
    assert code == ExitCode.INTERNAL
    assert "RuntimeError: an unforeseen case" in errors
    assert "please report" in errors
    assert caller.events()[-1] == "end of session"


def test_an_interrupt_closes_the_session_and_exits_130(caller: Caller) -> None:
    caller.scenario("x.lab.yaml", "one", name="interrupted")
    code, _, errors = caller.type("run", "x.lab.yaml")
    assert code == 130
    assert "Traceback" not in errors
    assert caller.events()[-1] == "end of session"


@pytest.mark.parametrize(
    ("environment", "arguments", "colored"),
    [
        ({}, [], False),
        ({"FORCE_COLOR": "1"}, [], True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, [], False),
        ({"FORCE_COLOR": "1"}, ["--color", "never"], False),
        ({"NO_COLOR": "1"}, ["--color=always"], True),
    ],
)
def test_color_is_as_the_user_wants_it(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], arguments: list[str], colored: bool
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    caller.scenario("x.lab.yaml", "holds")
    _, output, _ = caller.type("run", "x.lab.yaml", *arguments)
    assert (click.unstyle(output) != output) is colored


def test_help_tells_every_exit_code(caller: Caller) -> None:
    code, output, _ = caller.type("--help")
    assert code == ExitCode.OK
    told = [int(word) for line in output.splitlines() if (word := line.strip().split(" ")[0]).isdigit()]
    assert told == [*map(int, ExitCode), 130]


def test_help_of_every_verb_has_an_example(caller: Caller) -> None:
    for verb in VERBS:
        code, output, _ = caller.type(verb, "--help")
        assert code == ExitCode.OK
        assert f"Example: proxylab {verb}" in output


def test_version(caller: Caller) -> None:
    assert caller.type("--version")[1].startswith("proxylab, version ")


def test_what_was_judged_is_told_even_if_something_is_left_in_the_end(caller: Caller) -> None:
    caller.scenario("x.lab.yaml", "fails", name="leaving")
    code, output, errors = caller.type("run", "x.lab.yaml")
    assert code == ExitCode.INTERNAL
    assert "the packet took another way" in output
    assert "left behind: descriptor 9" in errors


def test_check_loads_nothing_that_a_run_needs(tmp_path: Path) -> None:
    (tmp_path / "x.lab.yaml").write_text(scenario_text("one"))
    heavy = {"asyncio", "docker", "proxylab.client.session", "pyroute2", "pytest", "scapy"}
    code = (
        "import sys\n"
        "from proxylab.cli import main\n"
        "try: main(['check', 'x.lab.yaml'])\n"
        f"finally: print(sorted({heavy} & set(sys.modules)))\n"
    )
    root = str(Path(__file__).resolve().parents[3] / "lab")  # the package need not be installed
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == ["x.lab.yaml: ok, 1 probe", "[]"]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("nft", "'nft' names no program; write nft=PATH or iptables=PATH"),
        ("ipset=/bin/true", "'ipset=/bin/true' names no program; write nft=PATH or iptables=PATH"),
        ("nft=nowhere", "nowhere is no program that can run here"),
        ("nft=.", ". is no program that can run here"),
    ],
)
def test_what_is_no_program_is_refused_before_any_lab(caller: Caller, value: str, why: str) -> None:
    caller.scenario("a.lab.yaml", "holds")
    code, _, errors = caller.type("run", "a.lab.yaml", "--program", value)
    assert (code, caller.events()) == (ExitCode.SCENARIO, [])
    assert why in " ".join(errors.split())


def test_programs_of_proxies_are_named_by_their_whole_paths(caller: Caller) -> None:
    file = caller.folder / "nft"
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    caller.scenario("a.lab.yaml", "holds")
    code, _, errors = caller.type("run", "a.lab.yaml", "--program", f"nft={file}", "--program", "iptables=/bin/true")
    assert code == ExitCode.OK, errors


@pytest.mark.parametrize("verb", ["exec", "get", "probe", "shell"])
def test_a_verb_at_a_standing_lab_loads_no_reader_of_files_and_no_http_client(verb: str) -> None:
    unneeded = {"docker", "http.client", "proxylab.scenario.load", "pyroute2", "scapy", "urllib.request", "yaml"}
    code = f"import sys, proxylab.cli.{verb}; print(sorted({unneeded} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_variant_of_iptables_is_asked_for_by_name(caller: Caller) -> None:
    caller.scenario("x.lab.yaml", "one")
    caller.type("run", "--iptables", "nft", ".")
    assert caller.events()[0] == "session embedded/iptables by nft"
    assert "'legacy', 'nft'" in caller.type("run", "--iptables", "ebpf", ".")[2]


def test_a_seed_is_passed_on(caller: Caller) -> None:
    caller.scenario("x.lab.yaml", "one")
    caller.type("run", "--seed", "7", ".")
    assert caller.events()[0] == "session embedded/iptables seed 7"
