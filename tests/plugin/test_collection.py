"""What pytest finds in a scenario file, and what finding it costs."""

import subprocess
import sys

import pytest
from plugin_project import Project


def test_items_are_the_probes_in_the_order_of_the_file(project: Project) -> None:
    project.scenario("scenarios/x.lab.yaml", "second comes first", "and first second")
    result = project.run("--collect-only", "-q")
    assert result.outlines[:2] == [
        "scenarios/x.lab.yaml::second comes first",
        "scenarios/x.lab.yaml::and first second",
    ]


def test_collecting_starts_no_lab_and_loads_nothing_that_a_run_needs(project: Project) -> None:
    project.scenario("x.lab.yaml", "one")
    conftest = project.pytester.path / "conftest.py"
    conftest.write_text(
        conftest.read_text() + "\n\ndef pytest_unconfigure():\n"
        "    import sys\n"
        "    print('LOADED', sorted({'proxylab.kernel', 'scapy', 'pyroute2', 'docker'} & set(sys.modules)))\n"
    )
    result = project.pytester.runpytest_subprocess("--collect-only", "-q")
    assert result.ret == pytest.ExitCode.OK
    assert result.outlines[-1] == "LOADED []"
    assert project.events() == []


def test_a_project_without_scenarios_pays_for_next_to_nothing() -> None:
    heavy = "{'proxylab.scenario.load', 'yaml', 'scapy', 'pyroute2', 'docker', 'proxylab.kernel'}"
    code = f"import sys; import proxylab.pytest_plugin; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_an_item_stands_at_the_line_of_its_probe(project: Project) -> None:
    path = project.scenario("x.lab.yaml", "one", "two")
    items, _ = project.pytester.inline_genitems(path)
    assert [item.location for item in items] == [("x.lab.yaml", 9, "one"), ("x.lab.yaml", 13, "two")]


def test_a_broken_file_is_a_collection_error_with_every_mistake_at_its_place(project: Project) -> None:
    path = project.scenario("x.lab.yaml", "one")
    path.write_text(
        path.read_text().replace("from: client", "from: cleint").replace("node-a: {}", "node-a: {lables: {}}")
    )
    result = project.run()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines_random(["x.lab.yaml:5:*lables*", "x.lab.yaml:11:*cleint*"])
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*lab?pytest_plugin*")


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_the_rest_runs_past_a_broken_file(project: Project, options: tuple[str, ...]) -> None:
    project.scenario("good.lab.yaml", "one")
    project.scenario("so/is-this.lab.yaml", "another")
    project.pytester.path.joinpath("bad.lab.yaml").write_text("kind: Scenario\n")
    result = project.run(*options)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*ERROR collecting bad.lab.yaml*", "bad.lab.yaml:1:1: apiVersion: is missing*"])


def test_a_broken_file_does_not_hide_broken_python(project: Project) -> None:
    project.scenario("good.lab.yaml", "one")
    project.pytester.path.joinpath("bad.lab.yaml").write_text("kind: Scenario\n")
    project.pytester.path.joinpath("test_bad.py").write_text("import nothing_of_that_name\n")
    result = project.run()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.assert_outcomes(errors=2)


def test_other_yaml_is_left_alone(project: Project) -> None:
    for name in ("deployment.yaml", "lab.yaml", "x.lab.yml.orig"):
        project.pytester.path.joinpath(name).write_text("{[")
    assert project.run().ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_probes_are_selected_by_path_and_by_words(project: Project) -> None:
    project.scenario("a/x.lab.yaml", "a pod reaches it", "an outside host reaches it")
    project.scenario("b/y.lab.yaml", "a pod reaches it")
    project.run("-k", "outside and x.lab").assert_outcomes(passed=1, deselected=2)
    project.run("b/y.lab.yaml::a pod reaches it").assert_outcomes(passed=1)


def test_python_tests_and_scenarios_stand_side_by_side(project: Project) -> None:
    project.scenario("x.lab.yaml", "one")
    project.pytester.makepyfile(test_it="def test_it(tmp_path): assert tmp_path.exists()")
    project.run().assert_outcomes(passed=2)
