"""What can be asked of the plugin, in each of the three ways, and what items and reports then say."""

from xml.etree import ElementTree

import pytest
from kube_proxies import program
from plugin_project import Project

from proxylab.pytest_plugin.markers import MARKERS

BOTH = ("--lab-engine", "embedded/iptables", "--lab-engine", "embedded@v1.23/iptables")


def collected(project: Project, *arguments: str) -> list[str]:
    lines = project.run("--collect-only", "-q", *arguments).outlines
    return [line.partition("::")[2] for line in lines if "::" in line]


def test_an_id_names_the_engine_where_several_run(project: Project) -> None:
    project.scenario("x.lab.yaml", "one", "two")
    assert collected(project) == ["one", "two"]
    assert collected(project, *BOTH) == [
        "one[embedded.iptables]",
        "two[embedded.iptables]",
        "one[embedded@v1.23.iptables]",
        "two[embedded@v1.23.iptables]",
    ]


def test_an_engine_may_keep_to_scenarios_with_a_tag(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.scenario("both.lab.yaml", "one", metadata=", tags: [slow, core]")
    project.scenario("first.lab.yaml", "two", metadata=", tags: [slow]")
    project.scenario("neither.lab.yaml", "three")
    on_both = ["one[embedded.iptables]", "one[embedded@v1.23.iptables]"]
    assert collected(project, *BOTH, "--lab-tags=embedded@v1.23/iptables=core,quick") == [
        *on_both,
        "two[embedded.iptables]",
        "three[embedded.iptables]",
    ]
    monkeypatch.setenv("LAB_TAGS", "embedded@v1.23/iptables=core embedded/iptables=slow")
    assert collected(project, *BOTH) == [*on_both, "two[embedded.iptables]"]


def test_an_item_of_several_engines_is_selected_by_its_id(project: Project) -> None:
    project.scenario("x.lab.yaml", "one", "two")
    result = project.run(*BOTH, "x.lab.yaml::two[embedded@v1.23.iptables]")
    result.assert_outcomes(passed=1)
    assert "session embedded@v1.23/iptables" in project.events()
    assert "session embedded/iptables" not in project.events()


def test_each_engine_has_a_session_of_its_own_and_each_run_a_lab(project: Project) -> None:
    project.scenario("x.lab.yaml", "one", "two")
    project.run(*BOTH).assert_outcomes(passed=4)
    assert project.events() == [
        "session embedded/iptables",
        "open fine",
        "probe one",
        "probe two",
        "close fine",
        "session embedded@v1.23/iptables",
        "open fine",
        "probe one",
        "probe two",
        "close fine",
        "end of session",
        "end of session",
    ]


def test_a_matrix_and_a_repetition_share_the_brackets(project: Project) -> None:
    path = project.scenario("x.lab.yaml", "one")
    path.write_text(path.read_text().replace("  probes:\n", "  matrix: {podNetwork: [ptp, bridge]}\n  probes:\n"))
    assert collected(project, "--lab-repeat", "2") == [
        "one[ptp-1 of 2]",
        "one[bridge-1 of 2]",
        "one[ptp-2 of 2]",
        "one[bridge-2 of 2]",
    ]


def test_every_repetition_has_a_lab_of_its_own(project: Project) -> None:
    project.scenario("x.lab.yaml", "one")
    project.run("--lab-repeat=3").assert_outcomes(passed=3)
    assert project.events().count("open fine") == 3


def test_the_command_line_wins_over_the_environment_and_that_over_the_ini_file(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.scenario("x.lab.yaml", "one")
    project.pytester.makeini("[pytest]\nlab_repeat = 2\nlab_engine = embedded@v1.23/iptables\n")
    assert len(collected(project)) == 2
    project.run()
    assert project.events()[0] == "session embedded@v1.23/iptables"
    monkeypatch.setenv("LAB_REPEAT", "3")
    assert len(collected(project)) == 3
    assert len(collected(project, "--lab-repeat", "4")) == 4


def test_a_lab_may_be_required_by_environment_or_ini_file(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.scenario("x.lab.yaml", "one", name="lacking")
    assert project.run().ret == pytest.ExitCode.OK
    monkeypatch.setenv("LAB_REQUIRED", "1")
    assert project.run().ret == pytest.ExitCode.TESTS_FAILED
    monkeypatch.setenv("LAB_REQUIRED", "0")
    project.pytester.makeini("[pytest]\nlab_required = true\n")
    assert project.run().ret == pytest.ExitCode.OK
    monkeypatch.delenv("LAB_REQUIRED")
    assert project.run().ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        (
            "--lab-engine=kubeproxy",
            "*there is no engine 'kubeproxy'; did you mean kube-proxy/*? There are*",
        ),
        ("--lab-iptables=nftables", "*'nftables' is not a variant; choose legacy, nft*"),
        ("--lab-tags=kubeproxy=core", "*--lab-tags: there is no engine 'kubeproxy'*"),
        ("--lab-tags=embedded/iptables", "*'embedded/iptables' names no tag; give ENGINE=TAG*"),
        ("--lab-repeat=many", "*'many' is not valid; give a number from 1 to *"),
        (
            "--lab-feature-gates=A=true",
            "*--lab-feature-gates is for kube-proxy, but --lab-engine is embedded/iptables*",
        ),
        ("--lab-kube-proxy-flag=--v=4", "*--lab-kube-proxy-flag is for kube-proxy, but --lab-engine is embedded/*"),
    ],
)
def test_what_cannot_be_asked_for_is_a_usage_error(project: Project, argument: str, words: str) -> None:
    result = project.run(argument)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([words])


FOUND = """
def test_what_runs(lab_sessions):
    embedded, upstream = lab_sessions("embedded/iptables").engine, lab_sessions("kube-proxy/nftables").engine
    assert embedded.upstream is None
    print(*upstream.options, upstream.upstream.feature_gates, upstream.version)
"""


@pytest.mark.parametrize("way", ["command line", "environment", "ini file"])
def test_kube_proxy_gets_its_flags_and_feature_gates(
    way: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = program(pytester.path / "mine", "v1.36.3")
    pytester.makepyfile(FOUND)
    said = ["--lab-engine=embedded/iptables", "--lab-engine=kube-proxy/nftables"]
    if way == "command line":
        said += [f"--lab-kube-proxy={file}", "--lab-feature-gates=A=true,B=False"]
        said += ["--lab-kube-proxy-flag=--v=4", "--lab-kube-proxy-flag=--profiling"]
    elif way == "environment":
        monkeypatch.setenv("LAB_KUBE_PROXY", str(file))
        monkeypatch.setenv("LAB_FEATURE_GATES", "A=true,B=False")
        monkeypatch.setenv("LAB_KUBE_PROXY_FLAG", "--v=4 --profiling")
    else:
        pytester.makeini(
            f"[pytest]\nlab_kube_proxy = {file}\nlab_feature_gates = A=true,B=False\n"
            "lab_kube_proxy_flag = --v=4 --profiling\n"
        )
    result = pytester.runpytest("-s", *said)
    result.assert_outcomes(passed=1)
    options = "--feature-gates A=true,B=false --kube-proxy-flag=--v=4 --kube-proxy-flag=--profiling"
    gates = "{'A': True, 'B': False} (1, 36, 3)"
    result.stdout.fnmatch_lines([f"*--engine kube-proxy/nftables --kube-proxy {file} {options} {gates}"])


def test_what_environment_and_ini_file_say_of_kube_proxy_is_no_matter_of_other_engines(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.scenario("x.lab.yaml", "one")
    project.pytester.makeini("[pytest]\nlab_kube_proxy_flag = --v=4\n")
    monkeypatch.setenv("LAB_FEATURE_GATES", "A=true")
    project.run().assert_outcomes(passed=1)


def test_what_is_no_feature_gate_is_a_usage_error(project: Project) -> None:
    result = project.run("--lab-engine=kube-proxy/iptables", "--lab-feature-gates=A=maybe")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--lab-feature-gates: 'A=maybe' is not a feature gate; write NAME=true*"])


def test_markers_choose_by_engine_family_and_tag(project: Project) -> None:
    project.scenario("fast.lab.yaml", "one")
    project.scenario("slow.lab.yaml", "two", metadata=", tags: [slow]")
    assert collected(project, "-m", "slow", "--strict-markers") == ["two"]
    assert collected(project, "-m", "ipv4 and not slow") == ["one"]
    assert collected(project, "-m", "ipv6") == []
    assert collected(project, *BOTH, "-m", "engine_embedded and mode_iptables and not slow") == [
        "one[embedded.iptables]",
        "one[embedded@v1.23.iptables]",
    ]
    project.pytester.makepyfile(test_x="def test_lab(lab): ...")
    only = [*BOTH, "--lab-engine", "kube-proxy/nftables", "test_x.py", "-m"]
    assert collected(project, *only, "engine_kube_proxy or mode_nftables") == ["test_lab[kube-proxy.nftables]"]
    assert collected(project, "test_x.py", "-m", "engine_embedded and mode_iptables") == ["test_lab"]


def test_markers_are_listed_with_their_meaning(project: Project) -> None:
    said = project.run("--markers").stdout.str()
    assert all(f"@pytest.mark.{name}: {meaning}" in said for name, meaning in MARKERS.items())


def test_junit_tells_engine_kernel_and_verdict_of_each_probe(project: Project) -> None:
    project.scenario("x.lab.yaml", "holds", "fails to hold", "doubts it")
    project.run("--junitxml=junit.xml")
    found = {
        case.attrib["name"]: {each.attrib["name"]: each.attrib["value"] for each in case.iter("property")}
        for case in ElementTree.parse(project.pytester.path / "junit.xml").iter("testcase")
    }
    assert {name: each["verdict"] for name, each in found.items()} == {
        "holds": "pass",
        "fails to hold": "fail",
        "doubts it": "inconclusive",
    }
    assert {each["engine"] for each in found.values()} == {"embedded/iptables"}
    assert all({"kernel", "iptables", "scenario"} <= each.keys() for each in found.values())


def test_several_kernels_run_side_by_side_and_reports_name_them(project: Project) -> None:
    project.scenario("x.lab.yaml", "one")
    linux = program(project.pytester.path / "linux", "7.2.11")
    linux.write_text("#!/bin/sh\necho 7.2.11\n", encoding="ascii")
    (project.pytester.path / "test_in_python.py").write_text(
        "def test_two(lab_factory):\n    lab_factory('x.lab.yaml').probe('client', to={'pod': 'echo'}, expect={})\n"
    )
    kernels = ("--lab-kernel", "host", "--lab-kernel", str(linux))
    result = project.run("--junitxml=junit.xml", "x.lab.yaml", *kernels)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines([f"lab kernel {linux}: 7.2.11, {linux}"])
    found = {
        case.attrib["name"]: {each.attrib["name"]: each.attrib["value"] for each in case.iter("property")}
        for case in ElementTree.parse(project.pytester.path / "junit.xml").iter("testcase")
    }
    name = str(linux).replace("/", ".")
    assert {each: found[each].get("kernel_name") for each in found} == {"one[host]": None, f"one[{name}]": str(linux)}
    assert [event for event in project.events() if event.startswith(("session", "open"))] == [
        "session embedded/iptables",
        "open fine",
        f"open fine on {linux}",
    ]
    assert collected(project, "test_in_python.py", *kernels) == ["test_two[host]", f"test_two[{name}]"]


def test_without_a_kernel_pytest_s_header_names_none(project: Project) -> None:
    project.scenario("x.lab.yaml", "one")
    assert "lab kernel" not in project.run().stdout.str()
    project.run("--lab-kernel", "./none").stdout.fnmatch_lines(["lab kernel ./none: missing: the kernel *none*"])


def test_github_shows_its_line(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    project.scenario("x.lab.yaml", "holds", '"fails with a colon: and, more"', "doubts it")
    result = project.run()
    lines = [line for line in result.outlines if line.startswith("::error ")]
    assert [line.partition("::FAIL")[0].partition("::x.lab")[0] for line in lines] == [
        "::error file=x.lab.yaml,line=14,title=fails with a colon%3A and%2C more",
        "::error file=x.lab.yaml,line=18,title=doubts it",
    ]
    assert all("%0A" in line for line in lines)


def test_github_shows_each_mistake_in_a_scenario_beside_its_line(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    path = project.scenario("x.lab.yaml", "one")
    path.write_text(
        path.read_text().replace("from: client", "from: cleint").replace("node-a: {}", "node-a: {lables: {}}")
    )
    lines = [line for line in project.run().outlines if line.startswith("::error ")]
    assert [line[: line.index(",title")] for line in lines] == [
        "::error file=x.lab.yaml,line=5",
        "::error file=x.lab.yaml,line=11",
    ]


def test_nothing_is_annotated_elsewhere(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    project.scenario("x.lab.yaml", "fails to hold")
    project.run().stdout.no_fnmatch_line("::*")


def test_github_is_not_flooded(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    project.scenario("x.lab.yaml", *(f"fails {number}" for number in range(13)))
    result = project.run()
    assert sum(line.startswith("::error ") for line in result.outlines) == 10
    result.stdout.fnmatch_lines(["::notice::3 more probes failed*"])
