"""``--lab-shard``: pytest runs a part of the files, also under xdist, and the parts are balanced by recorded times."""

from xml.etree import ElementTree

import pytest
from plugin_project import Project

NAMES = "abcde"


@pytest.fixture
def five(project: Project) -> Project:
    for name in NAMES:
        project.scenario(f"{name}.lab.yaml", f"holds {name}", f"holds {name} too")
    project.pytester.makepyfile(test_f="def test_f(): pass")
    return project


def files(project: Project, *arguments: str) -> list[str]:
    lines = project.run("--collect-only", "-q", *arguments).outlines
    return sorted({line.partition("::")[0] for line in lines if "::" in line})


def test_every_file_is_in_one_shard(five: Project) -> None:
    found = [files(five, "--lab-shard", f"{index}/3") for index in (1, 2, 3)]
    assert sorted(each for shard in found for each in shard) == [*(f"{name}.lab.yaml" for name in NAMES), "test_f.py"]
    assert [len(each) for each in found] == [2, 2, 2]


def test_under_xdist_the_workers_run_the_files_of_the_shard(five: Project) -> None:
    result = five.run("--lab-shard=1/2", "-n2", "--dist=loadfile")
    result.assert_outcomes(passed=2 * 3)


def test_junit_of_an_earlier_run_balances_the_shards(five: Project) -> None:
    case = '<testcase classname="{}" name="x" time="{}"/>'
    cases = [case.format(f"{name}.lab.yaml", 1) for name in NAMES] + [case.format("test_f", 60)]
    five.pytester.path.joinpath("times.xml").write_text(f"<testsuite>{''.join(cases)}</testsuite>")
    assert files(five, "--lab-shard=1/2", "--lab-times=times.xml") == ["test_f.py"]


@pytest.mark.parametrize("workers", [(), ("-n1",)], ids=["in one process", "under xdist"])
def test_junit_names_the_shard(five: Project, workers: tuple[str, ...]) -> None:
    five.run("--lab-shard=2/2", "--junitxml=found.xml", *workers)
    (suite,) = ElementTree.parse(five.pytester.path / "found.xml").iter("testsuite")
    assert [(each.get("name"), each.get("value")) for each in suite.iterfind("properties/property")] == [
        ("shard", "2/2")
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--lab-shard=3/2"], "--lab-shard: '3/2' is not valid; give I/N"),
        (["--lab-shard=1/2", "--lab-times=nowhere.xml"], "--lab-times: nowhere.xml: "),
    ],
)
def test_what_is_no_shard_is_refused(five: Project, arguments: list[str], words: str) -> None:
    result = five.run(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{words}*"])
