"""The sentences of the page "What a lab can and cannot do to the machine" (docs/explanation)."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from guests import EACH, readable
from machine import descendants
from sandboxed import ROOT, sandboxed
from small_plan import small_plan
from users import BOTH

from proxylab.client.lab_process import LabProcess
from proxylab.engines.protocol import EngineChoice
from proxylab.guest.kernels import Kernel
from proxylab.kernel.netlink.build import realise
from proxylab.kernel.sandbox.confinement import FIRST_ID
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.protocol.messages import Build, Execute, Executed
from proxylab.scenario.words import HOST
from proxylab.timing import Deadline, wait_until

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, whose labs are confined; run it as root")
WRITES: Final = {
    "a file of the machine": "echo x >/etc/proxylab-was-here",
    "a file of the kernel": "echo x >/proc/sys/kernel/core_pattern",
    "a file of the kernel, after a remount": "mount -o remount,rw,bind /proc/sys && echo x >/proc/sys/vm/swappiness",
    "a file of the kernel, in a new mount": "mount -t proc proc /mnt && echo x >/mnt/sys/vm/swappiness",
    "a file of the kernel, below the mount that hides it": "umount -l /proc && echo x >/proc/sys/vm/swappiness",
    "a setting of a device": "for f in /sys/block/*/queue/read_ahead_kb /sys/kernel/mm/*/enabled; do echo 0 >$f; done",
    "a setting of a device, in a new mount": "mount -t sysfs s /mnt && echo 0 >/mnt/kernel/mm/ksm/run",
    "a read-only folder, after a remount": "mount -o remount,rw,bind / && mkdir /proxylab-was-here",
    "a file that only root may read": "cat /etc/shadow",
    "a disk": "head -c 1 /dev/vda || head -c 1 /dev/sda || head -c 1 /dev/nvme0n1",
    "a device file of its own": "mknod /run/disk b 254 0 && head -c 1 /run/disk",
    "the kernel's memory": "head -c 1 /dev/mem",
    "a module": "modprobe dummy",
    "the clock": "date -s 2001-01-01",
    "the log of the kernel": "dmesg --clear",
    "a swap file": "swapoff -a && swapon -a && swapon --show=NAME --noheadings | grep -q . ",
}


class Lab:
    """A small lab of this process's user, and commands in it."""

    def __init__(self, process: LabProcess) -> None:
        self.process = process
        process.request(Build(small_plan(), (), EngineChoice()), Deadline.after(120))

    def run(self, command: str, place: str = "pod-1") -> Executed:
        return self.process.request(Execute(place, ("sh", "-c", command), 30.0), Deadline.after(60))

    def says(self, command: str, place: str = "pod-1") -> str:
        done = self.run(command, place)
        return (done.stdout + done.stderr).strip()


@contextmanager
def lab(*, privileged: bool = False, kernel: str = HOST) -> Iterator[Lab]:
    with LabProcess(kernel=kernel, privileged=privileged) as process:
        yield Lab(process)


@pytest.fixture(scope="module")
def confined() -> Iterator[Lab]:
    with lab() as found:
        assert found.process.ready().confined, found.process.ready().refused
        yield found


@AS_ROOT
def test_a_command_in_a_lab_of_root_is_a_user_who_owns_nothing(confined: Lab) -> None:
    assert confined.says("id -u; cat /proc/self/uid_map /proc/self/gid_map").split() == [
        "0",
        *(str(each) for _ in "ug" for each in (0, FIRST_ID, 65536)),
    ]
    assert confined.says("stat -c %u /etc/shadow") == "65534", "the machine's root is a stranger there"


@AS_ROOT
@pytest.mark.parametrize("place", ["pod-1", "node-a"])
def test_a_command_in_a_lab_of_root_can_harm_nothing_of_the_machine(confined: Lab, place: str) -> None:
    before = machine()
    done = {what: confined.run(command, place).status for what, command in WRITES.items()}
    assert [what for what, status in done.items() if status == 0] == []
    assert machine() == before


def machine() -> dict[str, Any]:
    """What the commands of this file try to change."""
    read = ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/swappiness", "/proc/swaps")
    found: dict[str, Any] = {path: Path(path).read_text() for path in read}
    found["made"] = [path for path in ("/etc/proxylab-was-here", "/proxylab-was-here") if Path(path).exists()]
    settings = (*Path("/sys/block").glob("*/queue/read_ahead_kb"), *Path("/sys/kernel/mm").glob("*/enabled"))
    return found | {str(path): path.read_text() for path in settings}


@AS_ROOT
def test_a_command_in_a_lab_of_root_has_every_right_over_its_own_network(confined: Lab) -> None:
    assert confined.run("ip link add made type veth peer name other && ip link del made", "node-a").status == 0
    assert confined.run("nft add table ip made && nft delete table ip made", "node-a").status == 0
    assert confined.run("iptables -t nat -A PREROUTING -j RETURN && iptables -t nat -F", "node-b").status == 0
    assert confined.says("echo 1 >/proc/sys/net/ipv4/ip_forward && cat /proc/sys/net/ipv4/ip_forward") == "1"
    assert "eth0" in confined.says("ls /sys/class/net")
    assert confined.says("echo x >/run/own && cat /run/own") == "x"


@AS_ROOT
def test_a_command_in_a_lab_of_root_writes_where_every_user_may(confined: Lab) -> None:
    assert confined.run("for d in /tmp /var/tmp /dev/shm; do f=$(mktemp -p $d) && rm $f || exit 1; done").status == 0
    assert confined.run("echo x >/dev/null && head -c 1 /dev/zero && : </dev/urandom").status == 0


@AS_ROOT
def test_commands_of_root_have_a_limit_of_processes_and_end_first_when_memory_runs_out(confined: Lab) -> None:
    assert re.search(r"^Max processes +16384 +16384 ", confined.says("cat /proc/self/limits"), re.MULTILINE)
    assert confined.says("cat /proc/self/oom_score_adj") == "1000"
    assert "fork" in confined.says("bash -c 'ulimit -u 20; for i in $(seq 40); do sleep 0.5 & done; wait'")


@AS_ROOT
def test_files_below_the_home_of_root_stay_readable_and_are_never_written(tmp_path: Path) -> None:
    home = tmp_path / "home"
    secret = home / "cache" / "program"
    secret.parent.mkdir(parents=True)
    secret.write_text("#!/bin/sh\necho it runs\n")
    secret.chmod(0o700)
    home.chmod(0o700)
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent.stat().st_mode & 0o005 != 0o005:
            home = parent  # the temporary folder of the tests is closed as a whole
            break
    program = f"""
from test_what_a_lab_may_do import lab
with lab() as found:
    print(found.says("{secret}; cp {secret} {secret}.copy; echo >>{secret}; mount -o remount,rw {home}; rm {secret}"))
"""
    done = python(program, HOME=str(secret.parent))
    lines = done.stdout.splitlines()
    assert lines[0] == "it runs", done
    assert sum("Read-only file system" in line for line in lines) == 3, lines
    assert secret.read_text() == "#!/bin/sh\necho it runs\n"


def python(program: str, *become: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a program in a process of its own."""
    path = f"{ROOT}/lab:{ROOT}/tests/kernel:{ROOT}/tests/support"
    return subprocess.run(
        [*become, sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )


@pytest.fixture
def folders() -> Iterator[tuple[Path, Path]]:
    """A folder that each user may write, and one in it that only root may enter."""
    top = Path(tempfile.mkdtemp(prefix="open-", dir="/tmp"))
    closed = top / "closed"
    closed.mkdir(mode=0o700)
    top.chmod(0o777)
    yield top, closed
    shutil.rmtree(top)


@AS_ROOT
@EACH
def test_a_guest_of_root_can_harm_nothing_of_the_machine(kernel: Kernel, folders: tuple[Path, Path]) -> None:
    """Its kernel is a program of the machine, by which its root mounts the machine's files anew."""
    top, closed = folders
    (closed / "secret").write_text("x\n")
    mounted = "mount -t hostfs none /mnt -o / && "
    with readable(kernel) as binary, lab(kernel=binary) as found:
        assert found.process.ready().confined, found.process.ready().refused
        assert found.run(f"{mounted} cat /mnt/etc/passwd").status == 0
        for harm in (
            "echo x >/mnt/etc/proxylab-was-here",
            "cat /mnt/etc/shadow",
            "echo x >/mnt/proc/sys/kernel/core_pattern",
            f"echo x >/mnt{closed}/written",
            f"cat /mnt{closed}/secret",
            "mkdir /mnt/proxylab-was-here",
        ):
            assert found.run(mounted + harm).status != 0, harm
        assert found.run(f"mount -t hostfs none /mnt -o {top} && echo x >/mnt/written").status == 0
    assert (top / "written").stat().st_uid == FIRST_ID
    made = ("/etc/proxylab-was-here", "/proxylab-was-here", closed / "written")
    assert [path for path in made if Path(path).exists()] == []


@AS_ROOT
@EACH
def test_a_privileged_guest_is_a_program_of_the_machine_s_root(kernel: Kernel, folders: tuple[Path, Path]) -> None:
    closed = folders[1]
    with readable(kernel) as binary, lab(kernel=binary, privileged=True) as found:
        assert not found.process.ready().confined
        done = found.run(f"mount -t hostfs none /mnt -o {closed} && echo x >/mnt/written")
        assert done.status == 0, done
    assert (closed / "written").stat().st_uid == 0


@AS_ROOT
@EACH
def test_the_kernel_of_a_guest_of_root_is_a_user_with_bounds_and_no_capability(kernel: Kernel) -> None:
    with readable(kernel) as binary, lab(kernel=binary) as found:
        pid = found.process.pid
        for _ in range(3):  # init, relay, kernel
            pid = descendants(pid)[pid][0]
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        assert status["Uid"].split() == status["Gid"].split() == [str(FIRST_ID)] * 4
        assert {status[name].strip().strip("0") for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {""}
        assert re.search(r"^Max processes +16384 +16384 ", Path(f"/proc/{pid}/limits").read_text(), re.MULTILINE)
        assert Path(f"/proc/{pid}/oom_score_adj").read_text() == "1000\n"


@AS_ROOT
@EACH
def test_a_guest_of_root_whose_files_only_root_may_read_says_that_it_keeps_its_rights(
    kernel: Kernel, folders: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    """A mount changes the owners in a closed folder, but not that of a file in an open one."""
    with readable(kernel) as given:
        binary = str(shutil.copy(given, folders[0] / "linux")) if not kernel.modules else given
        mode = Path(binary).stat().st_mode
        Path(binary).chmod(0o700)
        try:
            with lab(kernel=binary) as found:
                ready = found.process.ready()
        finally:
            Path(binary).chmod(mode)
    assert (ready.confined, binary in ready.refused) == (False, True)
    assert [binary in each.message for each in caplog.records] == [True]


@AS_ROOT
def test_a_privileged_lab_keeps_the_rights_of_root() -> None:
    with lab(privileged=True) as found:
        ready = found.process.ready()
        assert (ready.confined, ready.refused) == (False, "")
        assert found.says("cat /proc/self/uid_map").split() == ["0", "0", "4294967295"]
        assert found.run("head -c 1 /etc/shadow >/dev/null").status == 0


@AS_ROOT
def test_where_the_machine_refuses_confinement_a_lab_of_root_runs_without_and_says_why() -> None:
    program = """
from test_what_a_lab_may_do import lab
with lab() as found:
    print(found.process.ready().confined, found.process.ready().refused)
    print(*found.says("cat /proc/self/uid_map").split())
"""
    done = python(program, "setpriv", "--bounding-set=-setuid", "--inh-caps=-setuid")
    assert done.stdout.splitlines() == ["False Operation not permitted", "0 0 4294967295"], done


KILLS_ALL: Final = "kill -9 -1; sleep 0.05; kill -9 -1; echo survived"


async def ended_by_one(launcher: Launcher) -> dict[str, Any]:
    with realise(small_plan()) as wiring:
        lines: dict[str, list[str]] = {"pod-1": [], "pod-2": [], "node-a": []}
        started = {
            place: await launcher.start(
                wiring.namespaces[place], ["sh", "-c", "echo up; sleep 1000"], netns_name=place, heard=heard.append
            )
            for place, heard in lines.items()
        }
        await wait_until(lambda: all(lines.values()), Deadline.after(20), "the commands to run")

        async def run(place: str, command: str) -> str:
            done = await launcher.run(
                wiring.namespaces[place], ["sh", "-c", command], netns_name=place, deadline=Deadline.after(20)
            )
            return f"{done.status}:{done.stdout.decode().strip()}"

        found: dict[str, Any] = {"sees": await run("pod-1", "grep -lsx sleep /proc/[0-9]*/comm | wc -l")}
        found["said"] = await run("pod-1", KILLS_ALL)
        await wait_until(lambda: started["pod-1"].has_ended, Deadline.after(20), "the pod's command to end")
        found["ended"] = sorted(place for place, each in started.items() if each.has_ended)
        found["status"] = await started["pod-1"].status
        found["later"] = await run("pod-1", "echo alive")
        launcher.forget(["pod-2"])
        await wait_until(lambda: started["pod-2"].has_ended, Deadline.after(20), "the forgotten pod's command to end")
        found["elsewhere"] = started["node-a"].has_ended
        await started["node-a"].kill()
        return found


@BOTH
def test_a_command_that_kills_all_it_can_ends_the_commands_of_its_own_pod(ordinary: bool) -> None:
    found = sandboxed(ended_by_one, ordinary=ordinary)
    assert found == {
        "sees": "0:1",
        "said": "0:survived",
        "ended": ["pod-1"],
        "status": -signal.SIGKILL,
        "later": "0:alive",
        "elsewhere": False,
    }


@AS_ROOT
def test_a_lab_of_root_outlives_a_command_that_kills_all_it_can(confined: Lab) -> None:
    for place in ("pod-1", "node-a"):
        confined.run("kill -9 -1; kill -9 1", place)
        assert confined.says("echo alive", place) == "alive"


def test_processes_that_lose_their_parent_leave_no_zombie() -> None:
    with lab() as found:
        found.run("for i in 1 2 3 4 5; do (sleep 0.01 &); done; sleep 0.2")
        assert found.says("grep -ls '^State:.Z' /proc/[0-9]*/status | wc -l") == "0"
