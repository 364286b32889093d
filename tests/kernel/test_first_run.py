"""The first run of a user leaves nothing in their home, where no one asked for a folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sandboxed import ROOT

SCENARIO = ROOT / "scenarios/clusterip/from-a-pod.lab.yaml"


@pytest.mark.parametrize(
    "words",
    [
        ["run", str(SCENARIO), "--no-bundles"],
        ["check", str(SCENARIO)],
        # They start what `run` starts, or what `check` does.
        *(
            pytest.param(words, marks=pytest.mark.thorough)
            for words in (["trace", str(SCENARIO), "client", "echo"], ["doctor"], ["ps"])
        ),
    ],
    ids=lambda words: words[0],
)
def test_nothing_is_left_in_the_home(words: list[str], tmp_path: Path) -> None:
    home, runtime = tmp_path / "home", tmp_path / "runtime"
    home.mkdir()
    runtime.mkdir(mode=0o700)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    environment = {**kept, "HOME": str(home), "XDG_RUNTIME_DIR": str(runtime), "PYTHONPATH": str(ROOT / "lab")}
    done = subprocess.run(
        [sys.executable, "-m", "proxylab", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=home,
        env={**environment, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode in (0, 4), done.stdout + done.stderr
    assert sorted(home.rglob("*")) == []
