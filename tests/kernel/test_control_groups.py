"""The commands of root's labs are in a control group, which bounds them, and which goes with the last lab."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bounded import BOUNDS, enter_own, groups_here, own_groups
from guests import EACH, readable
from sandboxed import ROOT
from test_what_a_lab_may_do import lab

from proxylab.guest.kernels import Kernel
from proxylab.resource_limits import MOST_PROCESSES

PATH = f"{ROOT}/lab:{ROOT}/tests/kernel:{ROOT}/tests/support"

LAB = """
import json, os, signal, sys
from pathlib import Path
from test_what_a_lab_may_do import lab
with lab(privileged="--privileged" in sys.argv) as found:
    said = found.says("cat /proc/self/cgroup")
    limits = {}
    for folder in sys.argv[1].split(":"):
        for name in ("pids.max", "memory.limit_in_bytes", "memory.max"):
            if (file := Path(folder, "proxylab", name)).exists():
                limits[name] = int(file.read_text())
    print(json.dumps({"bounds": found.process.ready().bounds, "cgroup": said, "limits": limits}), flush=True)
    if "--killed" in sys.argv:
        os.kill(found.process.pid, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
"""


@contextmanager
def groups() -> Iterator[tuple[Path, ...]]:
    """Groups of the test's own, or a skip where this machine gives it none."""
    if os.geteuid() != 0:
        pytest.skip("needs root, whose labs are bounded; run it as root")
    if {name for group in groups_here() for name in group.controllers} != {"pids", "memory"}:
        pytest.skip("needs control groups that hand pids and memory on; run it below systemd, or on cgroups v1")
    try:
        with own_groups() as folders:
            yield folders
    except PermissionError as error:
        pytest.skip(f"needs control groups that root can write ({error}); run it outside of a container")


def run(folders: tuple[Path, ...], *words: str) -> dict[str, Any]:
    """What the program about a lab says that runs in these groups."""
    done = subprocess.run(
        [sys.executable, "-c", LAB, ":".join(map(str, folders)), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        preexec_fn=lambda: enter_own(folders),
        env={**os.environ, "PYTHONPATH": PATH},
    )
    assert done.returncode == (-signal.SIGKILL if "--killed" in words else 0), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def left(folders: tuple[Path, ...]) -> list[str]:
    return [str(each) for folder in folders if (each := folder / "proxylab").exists()]


def test_commands_are_in_the_group_which_goes_with_the_lab() -> None:
    with groups() as folders:
        found = run(folders)
        for folder in folders:
            assert f"{folder.name}/proxylab" in found["cgroup"], found
        memory = {name: value for name, value in found["limits"].items() if name.startswith("memory")}
        assert found["limits"].pop("pids.max") == MOST_PROCESSES
        (bytes_,) = memory.values()
        assert 0.7 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < bytes_
        assert bytes_ < 0.8 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        assert found["bounds"].count("control group v") == 2, found
        assert left(folders) == []


def test_a_privileged_lab_has_no_group() -> None:
    with groups() as folders:
        found = run(folders, "--privileged")
        assert "proxylab" not in found["cgroup"].replace("proxylab-test-", "")
        assert (found["limits"], found["bounds"]) == ({}, "")


def test_an_empty_group_that_a_killed_supervisor_leaves_is_the_next_lab_s() -> None:
    with groups() as folders:
        run(folders, "--killed")
        run(folders)
        assert left(folders) == []


def test_labs_that_end_while_others_begin_do_not_hinder_them() -> None:
    """Each enters the one group, and removes it when it ends if no other is in it."""
    program = """
import os, sys
from bounded import groups_here
from proxylab.kernel.sandbox.control_groups import Bounds, enter, remove
for _ in range(40):
    child = os.fork()
    if child == 0:
        enter(groups_here(), Bounds(1000, 1 << 30))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    remove(groups_here())
"""
    with groups() as folders:
        racing = [
            subprocess.Popen(
                [sys.executable, "-c", program],
                stderr=subprocess.PIPE,
                preexec_fn=lambda: enter_own(folders),  # noqa: PLW1509 - this process has one thread
                env={**os.environ, "PYTHONPATH": PATH},
            )
            for _ in range(4)
        ]
        said = [each.communicate(timeout=120)[1].decode() for each in racing]
        assert [each.returncode for each in racing] == [0] * len(racing), said
        assert left(folders) == []


def exceeded(said: str) -> None:
    found = json.loads(said)
    assert found["refused"] == "BlockingIOError", found
    assert found["had"] == BOUNDS.processes - 1, found
    assert found["eater"] == -signal.SIGKILL, found


def test_no_command_exceeds_the_bounds_of_its_group() -> None:
    with groups():
        program = [sys.executable, str(ROOT / "tests/kernel/bounded.py")]
        done = subprocess.run(
            program,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={**os.environ, "PYTHONPATH": PATH},
        )
        assert done.returncode == 0, done.stderr
        exceeded(done.stdout)


TURNED_ON = "mount -t cgroup2 none /sys/fs/cgroup && echo '+pids +memory' >/sys/fs/cgroup/cgroup.subtree_control"


@EACH
@pytest.mark.timeout(300)
def test_so_it_is_with_the_groups_of_version_2(kernel: Kernel) -> None:
    """A guest's kernel has them, whatever this machine has."""
    with readable(kernel) as binary, lab(kernel=binary) as found:
        said = found.says(f"{TURNED_ON} && PYTHONPATH={PATH} {sys.executable} {ROOT}/tests/kernel/bounded.py")
        assert json.loads(said)["versions"] == [2], said
        exceeded(said)
