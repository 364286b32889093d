"""The death of the launcher ends the run at once, with one line."""

import os
import signal
import subprocess
import sys
import time

import pytest
from killing import Run
from sandboxed import ROOT

from proxylab.errors import ExitCode

SAID = "its launcher, which starts commands, ended; unless something ended it"


# test_killed_as_root and test_killed_as_ordinary_user kill the launcher in every stage.
@pytest.mark.parametrize("after", [0.0, 0.2, *(pytest.param(each, marks=pytest.mark.thorough) for each in (0.1, 0.3))])
def test_a_run_whose_launcher_is_killed_ends_with_one_line(after: float) -> None:
    client = subprocess.Popen(
        [sys.executable, "-m", "proxylab", "run", "--no-bundles", "tests/kernel/killed.lab.yaml"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "lab")},
    )
    run = Run(client)
    try:
        run.wait_for(lambda: "launcher" in run.look(), "a launcher")
        moment = time.monotonic() + after
        run.wait_for(lambda: time.monotonic() >= moment, "the moment to strike")
        os.kill(run.look()["launcher"], signal.SIGKILL)
        struck = time.monotonic()
        output, errors = client.communicate(timeout=60)
    finally:
        client.kill()
    assert time.monotonic() - struck < 10, "two seconds, on a machine that does nothing else"
    told = output.decode() + errors.decode()
    assert told.count(SAID) == 1, told
    assert "Traceback" not in told
    assert client.returncode == ExitCode.INTERNAL
