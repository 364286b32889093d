"""Scenarios beside the plugins that people use with pytest."""

import pytest
from plugin_project import Project


def test_rerunfailures_runs_a_failed_probe_again(project: Project) -> None:
    pytest.importorskip("pytest_rerunfailures")
    project.scenario("x.lab.yaml", "holds", "fails to hold")
    result = project.run("--reruns", "2")
    result.stdout.fnmatch_lines(["*1 failed, 1 passed, 2 rerun*"])
    assert project.events().count("probe fails to hold") == 3


def test_html_shows_every_probe_with_its_words(project: Project) -> None:
    pytest.importorskip("pytest_html")
    project.scenario("x.lab.yaml", "holds", "fails to hold")
    project.run("--html=report.html", "--self-contained-html").assert_outcomes(passed=1, failed=1)
    page = (project.pytester.path / "report.html").read_text()
    assert "x.lab.yaml::fails to hold" in page
    assert "the packet took another way" in page


def test_randomly_changes_the_order_and_no_outcome(project: Project) -> None:
    pytest.importorskip("pytest_randomly")
    for number in range(3):
        project.scenario(f"{number}.lab.yaml", *(f"{word} {number}" for word in ("holds", "fails", "stands", "sits")))
    orders = set()
    for seed in (1, 2, 3):
        result = project.run("-p", "randomly", "-v", f"--randomly-seed={seed}")
        result.assert_outcomes(passed=9, failed=3)
        orders.add(tuple(line.split(" ")[0] for line in result.outlines if ".lab.yaml::" in line))
    assert len(orders) == 3
    assert project.events().count("session embedded/iptables") == 3


def test_timeout_watches_probes_as_it_does_tests(project: Project) -> None:
    project.scenario("x.lab.yaml", "holds")
    project.pytester.makepyfile(
        conftest=(project.pytester.path / "conftest.py").read_text()
        + "\n@pytest.fixture\ndef lab_verdict():\n    import threading\n    threading.Event().wait(20)\n"
    )
    result = project.run("--timeout=0.5", "--timeout-method=signal")
    result.stdout.fnmatch_lines(["*Timeout (>0.5s) from pytest-timeout*"])


# With loadfile a file has one worker, as with worksteal at first. test_themes and test_run use it.
@pytest.mark.parametrize("distribution", [pytest.param("loadfile", marks=pytest.mark.thorough), "worksteal"])
def test_xdist_shares_files_among_workers(project: Project, distribution: str) -> None:
    for number in range(4):
        project.scenario(f"{number}.lab.yaml", f"holds {number}", f"fails {number}")
    project.run("-n", "2", "--dist", distribution).assert_outcomes(passed=4, failed=4)
