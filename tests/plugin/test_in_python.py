"""Python tests with a lab, beside scenario files."""

from xml.etree import ElementTree

import pytest
from plugin_project import Project

TEST = """
import pytest

@pytest.mark.lab("x.lab.yaml")
def test_{name}(lab):
    lab.probe("client", to={{"service": "echo", "via": "clusterIP"}}, expect={{"outcome": "rejected"}}, {arguments})
"""


def written(project: Project, name: str, arguments: str = "") -> None:
    project.scenario("x.lab.yaml", "holds")
    project.pytester.makepyfile(test_x=TEST.format(name=name, arguments=arguments))


@pytest.mark.parametrize(
    ("name", "outcome"), [("holds", "passed"), ("fails", "failed"), ("doubts", "failed"), ("skips", "skipped")]
)
def test_a_probe_is_held_against_its_expectation(project: Project, name: str, outcome: str) -> None:
    written(project, name)
    project.run("test_x.py").assert_outcomes(**{outcome: 1})


def test_a_failure_is_explained_at_the_line_of_its_call_and_without_a_traceback(project: Project) -> None:
    written(project, "fails")
    result = project.run("test_x.py")
    result.stdout.fnmatch_lines(
        ["test_x.py:5:1: FAIL: fails", "*the packet took another way*", "*reproduce: pytest test_x.py::test_fails"]
    )
    for line in ("*Traceback*", "*lab?pytest_plugin*"):
        result.stdout.no_fnmatch_line(line)


def test_a_test_may_look_at_the_verdict_itself(project: Project) -> None:
    written(project, "fails", "check=False")
    project.run("test_x.py").assert_outcomes(passed=1)


def test_the_evidence_of_a_failure_is_kept_and_named(project: Project) -> None:
    written(project, "fails")
    result = project.run("test_x.py")
    result.stdout.fnmatch_lines(["*evidence:  .proxylab/bundles/embedded-iptables/test_x.py/001-*"])


def test_junit_has_the_same_properties_as_for_a_scenario(project: Project) -> None:
    written(project, "holds")
    project.run("test_x.py", "--junitxml=junit.xml")
    properties = ElementTree.parse(project.pytester.path / "junit.xml").iter("property")
    found = {each.attrib["name"]: each.attrib["value"] for each in properties}
    assert found.keys() == {"engine", "iptables", "kernel", "scenario", "seed", "verdict"}
    assert (found["scenario"], found["verdict"]) == ("fine", "pass")


def test_a_mistake_in_a_probe_is_told_as_one_in_a_file(project: Project) -> None:
    written(project, "holds", 'send={"flow": 3}')
    result = project.run("test_x.py")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["test_x.py:5:1: spec.probes*.send.flow: unknown key;*did you mean 'flows'?"])
    result.stdout.no_fnmatch_line("*During handling*")


def test_a_scenario_may_stand_in_the_test_and_be_followed_by_another(project: Project) -> None:
    text = project.scenario("x.lab.yaml", "holds").read_text()
    project.pytester.makepyfile(
        test_x=f"""
            TEXT = {text!r}

            def test_two(lab_factory):
                assert lab_factory(TEXT).scenario.file == "test_x.py:scenario"
                assert lab_factory("x.lab.yaml").scenario.file == "x.lab.yaml"
            """
    )
    project.run("test_x.py").assert_outcomes(passed=1)
    assert project.events() == ["session embedded/iptables", *["open fine", "close fine"] * 2, "end of session"]


def test_without_a_marker_the_fixture_says_what_it_needs(project: Project) -> None:
    project.pytester.makepyfile("def test_x(lab): pass")
    result = project.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(['the fixture "lab" needs a scenario: mark the test with @pytest.mark.lab(*'])


def test_a_file_that_is_not_there_is_named(project: Project) -> None:
    project.pytester.makepyfile("def test_x(lab_factory): lab_factory('y.lab.yaml')")
    result = project.run()
    result.stdout.fnmatch_lines(["y.lab.yaml:1:1: the file cannot be read: No such file or directory; give*"])


def test_a_matrix_needs_the_case_that_is_meant(project: Project) -> None:
    path = project.scenario("x.lab.yaml", "holds")
    path.write_text(path.read_text().replace("spec:\n", "spec:\n  matrix: {podNetwork: [ptp, bridge]}\n", 1))
    project.pytester.makepyfile(
        test_x="""
        import pytest

        @pytest.mark.lab("x.lab.yaml")
        def test_which(lab): pass

        @pytest.mark.lab("x.lab.yaml", case="bridge")
        def test_this(lab):
            assert lab.scenario.network.pod_network == "bridge"
        """
    )
    result = project.run("test_x.py")
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines(["x.lab.yaml: the matrix has 2 cases; pass case=* with one of 'ptp', 'bridge'"])


def test_what_the_machine_lacks_is_a_skip(project: Project) -> None:
    project.scenario("x.lab.yaml", "holds", name="lacking")
    project.pytester.makepyfile(test_x=TEST.format(name="holds", arguments=""))
    result = project.run("test_x.py", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*needs user namespaces; ask an administrator for them"])


def test_the_marker_is_known(project: Project) -> None:
    project.run("--markers").stdout.fnmatch_lines(["@pytest.mark.lab(scenario, case=''): *"])


def test_several_engines_each_have_their_turn(project: Project) -> None:
    written(project, "holds")
    engines = ("--lab-engine", "embedded/iptables", "--lab-engine", "embedded@v1.34/iptables")
    result = project.run("test_x.py", "-v", *engines)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*test_holds?embedded.iptables?*", "*test_holds?embedded@v1.34.iptables?*"])
