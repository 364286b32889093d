"""The summary of many scenarios: a line for each folder."""

import re

import pytest
from plugin_project import Project


@pytest.mark.parametrize("workers", [(), ("-n", "2", "--dist", "loadfile")], ids=["alone", "xdist"])
def test_each_folder_has_a_line(project: Project, workers: tuple[str, ...]) -> None:
    project.scenario("shop/x.lab.yaml", "holds", "fails to hold", "skips")
    project.scenario("till/y.lab.yaml", "stands")
    project.pytester.makepyfile(**{"till/test_more": "def test_more(): pass", "tests/test_own": "def test_own(): pass"})
    result = project.run(*workers)
    result.assert_outcomes(passed=4, failed=1, skipped=1)
    lines = result.outlines
    first = next(number for number, line in enumerate(lines) if "scenarios by folder" in line)
    table = [line.split()[:4] for line in lines[first + 1 : first + 4]]
    assert table == [
        ["folder", "passed", "failed", "skipped"],
        ["shop", "1", "1", "1"],
        ["till", "2", "0", "0"],
    ]
    assert all(re.search(r" \d+\.\d\d s$", line) for line in lines[first + 2 : first + 4])
    assert "=" in lines[first + 4], "tests outside the folders of scenarios have no line"


def test_one_folder_has_none_and_neither_has_a_quiet_run(project: Project) -> None:
    project.scenario("shop/x.lab.yaml", "holds")
    assert "scenarios by folder" not in project.run().stdout.str()
    project.scenario("till/y.lab.yaml", "stands")
    assert "scenarios by folder" not in project.run("-q").stdout.str()
    assert "scenarios by folder" in project.run("-v").stdout.str()
