"""The death of the launcher ends the run at once, with one line."""

import os
import signal
import subprocess
import sys
import time

import pytest
from killing import Run
from machine import descendants
from sandboxed import ROOT

from proxylab.client.lab_process import LabProcess
from proxylab.client.session import Session
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import ExitCode, LabEndedError
from proxylab.scenario.load import load_scenario

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


def close_without_launcher(session: Session) -> None:
    with session:
        lab = session.open(load_scenario(ROOT / "tests/kernel/killed.lab.yaml"))
        assert isinstance(lab.connection, LabProcess)
        below = descendants(lab.connection.pid)
        (init,) = below[lab.connection.pid]
        (lab_process,) = below[init]
        os.kill(below[lab_process][0], signal.SIGKILL)


@pytest.mark.parametrize("engine", ["embedded/iptables", "embedded/userspace"])
def test_a_launcher_that_dies_while_the_lab_closes_is_told_in_one_line(engine: str) -> None:
    session = Session(EngineChoice(name=engine))
    with pytest.raises(LabEndedError, match=SAID) as error:
        close_without_launcher(session)
    assert "\n" not in str(error.value)
