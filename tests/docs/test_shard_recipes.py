"""The recipes for several machines: the commands of both workflows, one machine after the other, without a kernel."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from documents import ROOT
from plugin_project import CONFTEST
from scenario_text import scenario_text

from proxylab.errors import ExitCode

PAGE = ROOT / "docs/how-to/run-in-ci.md"
SHARDS = 4
DEV = """#!/bin/sh
case $1 in
lab) shift; exec {python} -m pytest -q -p no:cacheprovider scenarios "$@" ;;
proxylab) shift; exec {python} -c '
import sys
from functools import partial
from pathlib import Path
from fake_lab import FakeSession
from proxylab.cli import main
main(sys.argv[1:], make_session=partial(FakeSession, Path("journal")))' "$@" ;;
esac
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A clone with six scenarios, of which one fails."""
    (tmp_path / "scenarios").mkdir()
    for name in "abcdef":
        probe = "fails" if name == "c" else f"holds {name}"
        (tmp_path / f"scenarios/{name}.lab.yaml").write_text(scenario_text(probe, name=name))
    (tmp_path / "conftest.py").write_text(CONFTEST.format(journal=str(tmp_path / "journal")))
    (tmp_path / "dev").write_text(DEV.format(python=sys.executable))
    (tmp_path / "dev").chmod(0o755)
    return tmp_path


def workflows() -> dict[str, dict[str, list[str]]]:
    """The commands of each job, by the CI system."""
    found = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)]
    (github,) = (each["jobs"] for each in found if "jobs" in each)
    (gitlab,) = (each for each in found if "jobs" not in each)
    return {
        "GitHub": {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in github.items()},
        "GitLab": {name: job["script"] for name, job in gitlab.items()},
    }


def typed(folder: Path, command: str, index: int = 0) -> int:
    variables = {"CI_NODE_INDEX": str(index), "CI_NODE_TOTAL": str(SHARDS)}
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT / "lab"), str(ROOT / "tests/support")])}
    text = command.replace("${{ matrix.index }}", str(index))
    return subprocess.run(
        ["sh", "-c", text], cwd=folder, env={"PATH": os.environ["PATH"], **variables, **paths}, timeout=60, check=False
    ).returncode


# tests/unit/features/merge/test_merge.py and tests/plugin/test_shards.py show shards and their merging.
@pytest.mark.thorough
@pytest.mark.parametrize("system", ["GitHub", "GitLab"])
def test_the_shards_of_a_workflow_become_one_red_report(folder: Path, system: str) -> None:
    jobs = workflows()[system]
    ran = [command for command in jobs["shard"] if command.startswith("./dev")]
    codes = [typed(folder, command, index) for index in range(1, SHARDS + 1) for command in ran]
    assert sorted(codes) == [0] * (SHARDS - 1) + [1]
    (merging,) = jobs["lab"]
    assert typed(folder, merging) == ExitCode.FAILED
    if system == "GitHub":
        files = [json.loads(file.read_text())["scenarios"] for file in folder.glob("shard-*.json")]
        assert sorted(each["name"] for scenarios in files for each in scenarios) == list("abcdef")
    else:
        assert (folder / "lab.html").read_text().count('class="probe"') == 6
    next(folder.glob("shard-*")).unlink()
    assert typed(folder, merging) == ExitCode.SCENARIO, "a shard is missing"
