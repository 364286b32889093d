"""Scenarios of the catalogue, by name. What a wheel has of them is the subject of tests/packaging."""

import os
import re
from pathlib import Path

import pytest
from caller import Caller
from scenario_index import SCENARIOS, places

from proxylab.cli.catalogue import copies
from proxylab.errors import ExitCode

CHECKED = re.compile(r"(\S+)\.lab\.yaml: ok, ")


def checked(caller: Caller, *words: str) -> list[str]:
    """The scenarios that ``check`` found in order, by name."""
    code, output, errors = caller.type("check", "--catalogue", *words)
    assert code == ExitCode.OK, errors
    return [os.path.relpath(file, SCENARIOS) for file in CHECKED.findall(output)]


def test_themes_and_scenarios_are_named_in_any_order(caller: Caller) -> None:
    own = [place for place in places() if place.startswith("nodeport/")]
    assert checked(caller, "nodeport", "clusterip/headless") == [*own, "clusterip/headless"]
    assert checked(caller, "clusterip/headless", "nodeport") == ["clusterip/headless", *own]


def test_below_the_catalogue_a_scenario_has_a_short_path(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(SCENARIOS.parent)
    _, output, _ = caller.type("check", "--catalogue", "clusterip/headless")
    assert output == "scenarios/clusterip/headless.lab.yaml: ok, 3 probes\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--catalogue", "nodport"], "the catalogue has no 'nodport'; did you mean 'nodeport'?"),
        (["check", "clusterip/from-pod", "--catalogue"], "did you mean 'clusterip/from-a-pod'?"),
        (["check", "--catalogue", "../dev"], "its themes are affinity, bugs, clusterip"),
        (["init", "--from", "clusterip/from-pod"], "did you mean 'clusterip/from-a-pod'?"),
        (["init", "--from", "sctp"], "'sctp' is a theme; name one of its scenarios: sctp/"),
        (["init", "--from", "xyz"], "the catalogue has no scenario 'xyz'; its themes are affinity, bugs"),
        (["check"], "Missing argument 'FILE…'"),
    ],
)
def test_what_is_not_there_is_told_with_what_is(caller: Caller, words: list[str], said: str) -> None:
    code, output, errors = caller.type(*words)
    assert (code, output) == (ExitCode.SCENARIO, "")
    assert said in errors
    assert list(caller.folder.glob("*.lab.yaml")) == []


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("run --catalogue node", ["nodeport"]),
        ("run --catalogue clusterip/from", ["clusterip/from-a-pod"]),
        ("check --catalogue sctp clusterip/from", ["clusterip/from-a-pod"]),
        ("init --from clusterip/from", ["clusterip/from-a-pod"]),
        ("check own", ["own.lab.yaml"]),
    ],
)
def test_names_are_completed(caller: Caller, words: str, completed: list[str]) -> None:
    (caller.folder / "own.lab.yaml").touch()
    (caller.folder / "node.lab.yaml").touch()
    assert caller.complete(f"proxylab {words}") == completed


def test_a_copy_has_its_own_name_unless_another_is_given(caller: Caller) -> None:
    assert caller.type("init", "--from", "clusterip/headless")[0] == ExitCode.OK
    assert caller.type("init", "--from", "clusterip/headless", "own.lab.yaml")[0] == ExitCode.OK
    assert {file.name for file in caller.folder.iterdir()} == {"headless.lab.yaml", "own.lab.yaml"}


@pytest.mark.parametrize("there", ["own.lab.yaml", "test_own.py"])
def test_a_copy_overwrites_nothing_and_is_made_as_a_whole_or_not(caller: Caller, there: str) -> None:
    (caller.folder / there).write_text("mine")
    code, _, errors = caller.type("init", "--from", "dns/records", "own.lab.yaml")
    assert code == ExitCode.SCENARIO
    assert f"{there} exists already" in errors
    assert [(file.name, file.read_text()) for file in caller.folder.iterdir()] == [(there, "mine")]


def test_every_python_test_of_the_catalogue_is_copied_with_one_scenario(tmp_path: Path) -> None:
    written = [file for place in places() for file in copies(place, tmp_path / f"{place}.lab.yaml")]
    tests = sorted(file.relative_to(tmp_path) for file in written if file.suffix == ".py")
    assert tests == sorted(file.relative_to(SCENARIOS) for file in SCENARIOS.rglob("*.py"))


def test_a_copied_test_opens_the_copied_scenario(tmp_path: Path) -> None:
    named = re.compile(r"[\w-]+\.lab\.yaml")
    for place in places():
        found = copies(place, tmp_path / "own.lab.yaml")
        tests = [text for file, text in found.items() if file.suffix == ".py"]
        assert {name for text in tests for name in named.findall(text)} <= {"own.lab.yaml"}, place
