"""Which process does not run, and how a lab ended."""

import os
import signal
import subprocess
import sys

import pytest

from proxylab.client.process_states import StuckProcess, ended_by_itself, how_it_ended, stuck_process
from proxylab.errors import GUEST_ENDED, LAUNCHER_ENDED


@pytest.mark.parametrize(
    ("status", "how"),
    [
        (LAUNCHER_ENDED, "its launcher, which starts commands, ended"),
        (GUEST_ENDED, "its guest's kernel ended"),
        (-signal.SIGKILL, "SIGKILL ended its supervisor"),
        (128 + signal.SIGKILL, "SIGKILL ended its init, pid 1 of the sandbox"),
        (256 - signal.SIGSEGV, "SIGSEGV ended its lab process"),
        (0, "it was asked to end, by `proxylab down`, by SIGTERM or by the end of its time"),
        (1, "it exited with status 1"),
    ],
)
def test_a_status_tells_which_process_ended_and_how(status: int, how: str) -> None:
    assert how_it_ended(status) == how


@pytest.mark.parametrize("status", [-signal.SIGKILL, 128 + signal.SIGTERM, 256 - signal.SIGHUP, 0, GUEST_ENDED])
def test_the_last_words_of_a_process_that_others_ended_are_no_bug(status: int) -> None:
    assert ended_by_itself(1)
    assert not ended_by_itself(status)


def test_a_stopped_process_is_found_below_the_supervisor_and_a_sleeping_one_is_none() -> None:
    program = "import subprocess, sys; print(flush=True); subprocess.run(['sleep', '1000'])"
    supervisor = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert supervisor.stdout is not None
        supervisor.stdout.readline()
        assert stuck_process(supervisor.pid) is None
        os.kill(supervisor.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, supervisor.pid, os.WSTOPPED | os.WNOWAIT)
        assert stuck_process(supervisor.pid) == StuckProcess("supervisor", supervisor.pid, "stopped")
    finally:
        os.killpg(supervisor.pid, signal.SIGKILL)
        supervisor.communicate()
    assert stuck_process(supervisor.pid) is None, "one that has ended is not stuck"
