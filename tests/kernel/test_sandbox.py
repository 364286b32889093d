"""The sandbox keeps the machine out of reach, and reports why it cannot be built."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from machine import descendants
from sandboxed import ROOT, sandboxed
from small_plan import small_plan
from users import BOTH

from proxylab.client.lab_process import LabProcess
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import InternalError
from proxylab.kernel.netlink.build import realise
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.protocol.messages import Build, Execute
from proxylab.timing import Deadline


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
        with pytest.raises(InternalError, match="there is no lab"):
            process.request(Execute("node-a", ("true",)), Deadline.after(10))


def test_a_client_that_closes_waits_until_everything_has_ended() -> None:
    process = LabProcess()
    process.ready()
    pids = set(descendants(process.pid))
    roles = ["supervisor", "init", "lab process", "launcher", *(["feeder"] if process.ready().confined else [])]
    assert len(pids) == len(roles), roles
    process.close()
    process.close()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_a_lab_process_that_dies_is_reported_with_its_last_words() -> None:
    with LabProcess() as process:
        process.ready()
        (init,) = descendants(process.pid)[process.pid]
        os.kill(init, signal.SIGKILL)
        deadline = Deadline.after(10)
        while Path(f"/proc/{init}").exists():  # the supervisor reaps it once everything in its pid namespace has ended
            assert not deadline.passed
            time.sleep(0.001)
        with pytest.raises(InternalError, match="the lab process ended before it could answer Execute"):
            process.request(Execute("node-a", ("true",)), Deadline.after(10))


def build(process: LabProcess) -> None:
    process.request(Build(small_plan(), (), EngineChoice()), Deadline.after(60))


def expect_gone(pids: Iterable[int]) -> None:
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_a_lab_process_that_answers_too_late_is_never_asked_again() -> None:
    process = LabProcess()
    build(process)
    pids = set(descendants(process.pid))
    with pytest.raises(InternalError, match="did not answer Execute in time"):
        process.request(Execute("pod-1", ("sleep", "3")), Deadline.after(0.1))
    assert process.closed
    expect_gone(pids)


def test_an_interrupted_client_does_not_take_an_old_answer_for_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    process = LabProcess()
    build(process)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(process._channel, "receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        process.request(Execute("pod-1", ("true",)), Deadline.after(10))
    assert process.closed


def test_a_lab_process_that_is_stopped_takes_no_request_and_is_closed_all_the_same() -> None:
    process = LabProcess()
    process.ready()
    pids = set(descendants(process.pid))
    (init,) = descendants(process.pid)[process.pid]
    (lab_process,) = descendants(init)[init]
    os.kill(lab_process, signal.SIGSTOP)
    with pytest.raises(InternalError, match="did not take the request"):
        process.request(Execute("pod-1", ("x" * 4_000_000,)), Deadline.after(0.2))
    expect_gone(pids)


def test_a_client_s_blocked_signals_are_not_the_sandbox_s() -> None:
    program = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD, signal.SIGTERM])
signal.signal(signal.SIGTERM, signal.SIG_IGN)
import time
from small_plan import small_plan
from proxylab.client.lab_process import LabProcess
from proxylab.engines.protocol import EngineChoice
from proxylab.protocol.messages import Build, Built
from proxylab.timing import Deadline
process = LabProcess()
process.request(Build(small_plan(), (), EngineChoice()), Deadline.after(30))
began = time.monotonic()
process.close()
print("closed" if time.monotonic() - began < 4 else "hung")
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": f"{ROOT}/lab:{ROOT}/tests/kernel"},
    )
    assert done.stdout == "closed\n", done.stderr


def test_too_few_descriptors_are_the_machine_s_lack() -> None:
    program = """
from small_plan import small_plan
from proxylab.client.lab_process import LabProcess
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import CapabilityError
from proxylab.protocol.messages import Build, Built
from proxylab.timing import Deadline
try:
    LabProcess().request(Build(small_plan(), (), EngineChoice()), Deadline.after(30))
except CapabilityError as error:
    print(error)
"""
    done = subprocess.run(
        ["prlimit", "--nofile=24:24", sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": f"{ROOT}/lab:{ROOT}/tests/kernel"},
    )
    assert "this machine lacks 71 open files; 'ulimit -n' allows 24; raise that limit" in done.stdout, done


async def what_a_command_may_do(launcher: Launcher) -> dict[str, Any]:
    with realise(small_plan()) as wiring:
        done = await launcher.run(
            wiring.namespaces["pod-1"], ["cat", "/proc/self/status"], netns_name="pod-1", deadline=Deadline.after(10)
        )
        status = dict(line.split(":\t", 1) for line in done.stdout.decode().splitlines() if ":\t" in line)
        return {"bounding": int(status["CapBnd"], 16), "ignored": int(status["SigIgn"], 16)}


@BOTH
def test_a_command_can_load_no_module_and_ignores_no_signal(ordinary: bool) -> None:
    found = sandboxed(what_a_command_may_do, ordinary=ordinary)
    for capability in (16, 17, 22, 25):  # SYS_MODULE, SYS_RAWIO, SYS_BOOT, SYS_TIME
        assert not found["bounding"] >> capability & 1
    assert found["bounding"] >> 12 & 1, "NET_ADMIN is what a lab is about"
    # SIGCANCEL and SIGSETXID, which only the threading library sends and handles (nptl(7)).
    of_the_c_library = 1 << 31 | 1 << 32
    assert found["ignored"] & ~of_the_c_library == 0


# In a user namespace of its own, where these switches belong to that namespace and not to the machine.
WITHOUT_NAMESPACES = """
echo 0 >/proc/sys/user/max_user_namespaces
exec setpriv --bounding-set=-sys_admin --inh-caps=-all "$@"
"""


def test_a_machine_that_allows_no_sandbox_says_what_to_do_and_says_it_again() -> None:
    program = """
from proxylab.client.lab_process import LabProcess
from proxylab.errors import CapabilityError
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
        env={**os.environ, "PYTHONPATH": str(ROOT / "lab")},
    )
    assert done.stdout.count("CapabilityError: this machine lacks a way into a sandbox") == 3, done.stderr
    assert done.stdout.count("sudo sysctl -w user.max_user_namespaces=15000") == 3
