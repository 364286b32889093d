"""The sandbox keeps the machine out of reach, and says why where it cannot be built."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from machine import descendants
from sandboxed import ROOT, USERS, sandboxed

from lab.client import LabProcess
from lab.errors import InternalError
from lab.kernel.launcher import Launcher
from lab.messages import Execute, Executed
from lab.timing import Deadline

BOTH = pytest.mark.parametrize("ordinary", USERS.values(), ids=USERS)


async def what_is_in_reach(_: Launcher) -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "uid": os.getuid(),
        "links": [name for _, name in socket.if_nameindex()],
        "run": os.listdir("/run"),
        "pids": sorted(int(name) for name in os.listdir("/proc") if name.isdigit()),
        "hostname": os.uname().nodename,
        "sigint": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
        "mounts": Path("/proc/self/mountinfo").read_text(encoding="utf-8").count(" shared:"),
    }


@BOTH
def test_nothing_of_the_machine_is_in_reach(ordinary: bool) -> None:
    found = sandboxed(what_is_in_reach, ordinary=ordinary)
    assert found == {
        "pid": 2,
        "uid": 0,
        "links": ["lo"],
        "run": [],
        "pids": [1, 2, 3],
        "hostname": "proxylab",
        "sigint": True,
        "mounts": 0,
    }


def test_ctrl_c_reaches_the_client_only() -> None:
    with LabProcess() as process:
        process.ready()
        for pid in descendants(process.pid):
            os.kill(pid, signal.SIGINT)
        with pytest.raises(InternalError, match="no lab stands"):
            process.request(Execute("node-a", ("true",)), Executed, Deadline.after(10))


def test_a_client_that_closes_waits_until_everything_has_ended() -> None:
    process = LabProcess()
    process.ready()
    pids = set(descendants(process.pid))
    assert len(pids) == 4, "keeper, init, lab process, launcher"
    process.close()
    process.close()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_a_lab_process_that_dies_is_reported_with_its_last_words() -> None:
    with LabProcess() as process:
        process.ready()
        (init,) = descendants(process.pid)[process.pid]
        os.kill(init, signal.SIGKILL)
        deadline = Deadline.after(10)
        while Path(f"/proc/{init}").exists():  # the keeper reaps it once everything in its pid namespace has ended
            assert not deadline.passed
            time.sleep(0.001)
        with pytest.raises(InternalError, match="the lab process ended before it could answer Execute"):
            process.request(Execute("node-a", ("true",)), Executed, Deadline.after(10))


# Inside a user namespace of its own, where these switches are that namespace's and not the machine's.
WITHOUT_NAMESPACES = """
echo 0 >/proc/sys/user/max_user_namespaces
exec setpriv --bounding-set=-sys_admin --inh-caps=-all "$@"
"""


def test_a_machine_that_allows_no_sandbox_says_what_to_do_and_says_it_again() -> None:
    program = """
from lab.client import LabProcess
from lab.errors import CapabilityError
process = LabProcess()
for attempt in range(3):
    try:
        process.ready()
    except CapabilityError as error:
        print("CapabilityError:", error)
"""
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-ec", WITHOUT_NAMESPACES, "sh", sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.count("CapabilityError: this machine lacks a way into a sandbox") == 3, done.stderr
    assert done.stdout.count("sudo sysctl -w user.max_user_namespaces=15000") == 3
