"""What becomes of verdicts and errors, and how many labs that takes."""

from xml.etree import ElementTree

import pytest
from plugin_project import Project


def test_each_judgement_has_its_own_outcome(project: Project) -> None:
    project.scenario("x.lab.yaml", "holds", "fails to hold", "doubts it", "skips it")
    result = project.run()
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1, failed=1, errors=1, skipped=1)


def test_a_failure_is_explained_where_it_stands_and_without_a_traceback(project: Project) -> None:
    project.scenario("x.lab.yaml", "holds", "fails to hold")
    result = project.run()
    result.stdout.fnmatch_lines(
        ["*_ fails to hold _*", "x.lab.yaml:17:*: FAIL: fails to hold", "*the packet took another way*"]
    )
    for line in ("*Traceback*", "*lab?pytest_plugin*", "*lab_verdict*"):
        result.stdout.no_fnmatch_line(line)


def test_what_could_not_be_decided_is_an_error_with_its_reason(project: Project) -> None:
    project.scenario("x.lab.yaml", "doubts it")
    result = project.run()
    result.stdout.fnmatch_lines(
        ["*ERROR at setup of doubts it*", "x.lab.yaml:13:*: INCONCLUSIVE: doubts it", "*no tap saw where it went*"]
    )
    result.stdout.no_fnmatch_line("*lab?pytest_plugin*")


def test_junit_tells_failures_from_errors(project: Project) -> None:
    project.scenario("x.lab.yaml", "holds", "fails to hold", "doubts it", "skips it")
    project.run("--junitxml=junit.xml")
    cases = ElementTree.parse(project.pytester.path / "junit.xml").iter("testcase")
    found = {case.attrib["name"]: [child.tag for child in case if child.tag != "properties"] for case in cases}
    assert found == {"holds": [], "fails to hold": ["failure"], "doubts it": ["error"], "skips it": ["skipped"]}


def test_what_the_machine_lacks_is_a_skip_with_its_cure(project: Project) -> None:
    project.scenario("x.lab.yaml", "one", "two", name="lacking")
    result = project.run("-rs")
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(["SKIPPED*needs user namespaces; ask an administrator for them"])


def test_what_the_mode_cannot_show_is_skipped_without_a_lab(project: Project) -> None:
    project.scenario("x.lab.yaml", "unshown first", "holds", "unshown last")
    project.scenario("y.lab.yaml", "unshown alone", name="other")
    result = project.run("-rs", "--junitxml=junit.xml", "--lab-report=page.html")
    result.assert_outcomes(passed=1, skipped=3)
    result.stdout.fnmatch_lines(["SKIPPED*this mode shows none of it"])
    assert [each for each in project.events() if each.startswith(("open", "probe"))] == ["open fine", "probe holds"]
    cases = ElementTree.parse(project.pytester.path / "junit.xml").iter("testcase")
    found = {case.attrib["name"]: {each.attrib["name"] for each in case.iter("property")} for case in cases}
    assert found["unshown alone"] == {"engine", "scenario", "seed", "verdict"}
    assert "not sent" in (project.pytester.path / "page.html").read_text()


@pytest.mark.parametrize("workers", [(), ("-n", "2", "--dist", "loadfile")], ids=["one process", "two workers"])
def test_where_the_lab_is_required_a_machine_that_can_run_nothing_fails(
    project: Project, workers: tuple[str, ...]
) -> None:
    project.scenario("x.lab.yaml", "one", "two", name="lacking")
    result = project.run("--lab-required", *workers)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(["--lab-required: this machine could run none of 2 probes"])


def test_where_the_lab_is_required_single_skips_are_still_skips(project: Project) -> None:
    project.scenario("x.lab.yaml", "holds", "skips it")
    result = project.run("--lab-required")
    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(passed=1, skipped=1)


@pytest.mark.parametrize(
    ("name", "words"),
    [("refused", "*engine on node-a: its rules were refused*"), ("crowded", "*no address is left*")],
)
def test_the_fault_of_an_engine_or_author_is_told_in_its_own_words(project: Project, name: str, words: str) -> None:
    project.scenario("x.lab.yaml", "one", "two", name=name)
    result = project.run()
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines([words])
    result.stdout.no_fnmatch_line("*lab?pytest_plugin*")


@pytest.mark.parametrize(("name", "outcome"), [("refused", "xfailed"), ("fine", "errors")])
def test_an_engine_that_fails_as_foreseen_fails_as_expected(project: Project, name: str, outcome: str) -> None:
    path = project.scenario("x.lab.yaml", "one", "two", name=name)
    foreseen = '  except: [{when: {mode: iptables}, engineFails: "line 7 failed", because: a bug}]\n  probes:\n'
    path.write_text(path.read_text().replace("  probes:\n", foreseen))
    result = project.run("-rx", "--lab-required")
    result.assert_outcomes(**{outcome: 2})
    words = {
        "refused": "XFAIL * x.lab.yaml::two - the engine fails as x.lab.yaml:9:12 foresees: a bug; it logged *line 7 *",
        "fine": "*engine on node-a: it programmed what x.lab.yaml:9:12 says it cannot (a bug)*",
    }
    result.stdout.fnmatch_lines([words[name]])
    result.stdout.no_fnmatch_line("*could run none*")


@pytest.mark.parametrize("name", ["broken", "buggy"])
def test_our_own_fault_comes_with_its_traceback(project: Project, name: str) -> None:
    project.scenario("x.lab.yaml", "one", name=name)
    result = project.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*lab?pytest_plugin*"])


def test_one_session_for_all_and_one_lab_a_file(project: Project) -> None:
    project.scenario("a.lab.yaml", "one", "two", name="a")
    project.scenario("b.lab.yaml", "three", name="b")
    project.run().assert_outcomes(passed=3)
    assert project.events() == [
        "session embedded/iptables",
        *("open a", "probe one", "probe two", "close a"),
        *("open b", "probe three", "close b"),
        "end of session",
    ]


def test_a_lab_is_closed_when_a_probe_of_it_fails(project: Project) -> None:
    project.scenario("a.lab.yaml", "fails", "doubts", name="a")
    project.run("-x")
    assert project.events()[-2:] == ["close a", "end of session"]


def test_workers_share_files_and_not_labs(project: Project) -> None:
    for name in "abcd":
        project.scenario(f"{name}.lab.yaml", "one", "two", "fails", name=name)
    result = project.run("-n", "2", "--dist", "loadfile")
    result.assert_outcomes(passed=8, failed=4)
    result.stdout.fnmatch_lines(["a.lab.yaml:21:*: FAIL: fails", "*the packet took another way*"])
    events = project.events()
    assert sorted(event for event in events if event.startswith("open")) == [f"open {name}" for name in "abcd"]
    assert events.count("session embedded/iptables") == events.count("end of session") == 2


def test_an_unknown_engine_is_a_usage_error_that_lists_them(project: Project) -> None:
    project.scenario("x.lab.yaml", "one")
    result = project.run("--lab-engine", "embedded/ipfilter")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*embedded/ipfilter*embedded/iptables*"])


def test_each_case_of_a_matrix_has_a_lab_and_items_with_its_id(project: Project) -> None:
    file = project.scenario("x.lab.yaml", "one", "two")
    file.write_text(file.read_text().replace("spec:\n", "spec:\n  matrix: {podNetwork: [ptp, bridge]}\n", 1))
    project.run("x.lab.yaml").assert_outcomes(passed=4)
    events = [event for event in project.events() if not event.startswith(("session", "end"))]
    assert events == [
        "open fine",
        "probe one[ptp]",
        "probe two[ptp]",
        "close fine",
        "open fine",
        "probe one[bridge]",
        "probe two[bridge]",
        "close fine",
    ]


def test_evidence_is_kept_below_rootdir_or_where_the_user_wants_it(project: Project) -> None:
    project.scenario("deep/x.lab.yaml", "holds", "fails to hold")
    root = project.pytester.path
    project.run("--junitxml=junit.xml").stdout.fnmatch_lines(
        ["*evidence:  .proxylab/bundles/embedded-iptables/deep/x/001-fails-to-hold"]
    )
    assert [file.parent.name for file in root.rglob("case.json")] == ["001-fails-to-hold"]
    found = {
        each.attrib["name"]: each.attrib["value"] for each in ElementTree.parse(root / "junit.xml").iter("property")
    }
    assert found["bundle"].endswith("/001-fails-to-hold")
    project.run("--lab-bundle-dir=elsewhere")
    assert (root / "elsewhere/embedded-iptables/deep/x/001-fails-to-hold/case.json").is_file()


def test_no_evidence_is_kept_where_it_is_switched_off(project: Project) -> None:
    project.scenario("x.lab.yaml", "fails")
    project.run("--lab-no-bundles").stdout.no_fnmatch_line("*evidence:*")
    assert not list(project.pytester.path.rglob("case.json"))
