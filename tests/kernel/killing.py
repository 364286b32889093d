"""A run, a signal to one of its processes, and a check of what is left.

Each test kills one role of process in one stage of a run, at a random moment within the stage. Afterwards no process of
the run lives, no process holds a namespace of the run, and the machine's links, addresses, routes, rules, mounts and
sysctls are unchanged.
"""

import os
import random
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from machine import Machine, command_of, descendants
from sandboxed import checkout_for, python_of

from proxylab.kernel.sandbox.commands import MARK

SCENARIO = "tests/kernel/killed.lab.yaml"
PATIENCE = 30.0
PAUSE = 0.01  # between two looks: without a pause the watcher would starve the run
MOMENT = 0.0005  # between two looks for a command, which may be over in milliseconds

STAGES = ("build", "load", "traffic", "close")
ROLES = ("client", "supervisor", "init", "lab process", "launcher", "command")
# The client's output that begins a stage, and the seconds from there within which the test sends the signal.
SIGN = {"build": "building", "load": "building", "traffic": "probing", "close": "closing"}
SPAN = {"build": 0.3, "load": 0.02, "traffic": 0.3, "close": 0.01}
ATTEMPTS = 10  # a stage or a command may end before the signal: then the test tries again


@dataclass
class Run:
    """A running client, and every process and namespace of it that the test has seen."""

    client: subprocess.Popen[bytes]
    pids: set[int] = field(default_factory=set)
    spaces: set[str] = field(default_factory=set)
    said: str = ""

    def look(self) -> dict[str, int]:
        """The pid of each role at this moment. Each role is the child of the one before."""
        tree = descendants(self.client.pid)
        self.pids |= set(tree)
        for pid in tree:
            self.spaces |= spaces_of(pid)
        roles: dict[str, int] = {"client": self.client.pid}
        for role, parent in zip(ROLES[1:], ROLES[:-1], strict=True):
            children = tree.get(roles[parent], [])
            if role == "launcher":  # before it, children of root prepare its confinement; a later one feeds commands
                children = [pid for pid in children if not belongs_to_root(pid)]
            if role == "command":  # the launcher's other children are process 1 of a node, pod or host
                children = [pid for pid in children if is_a_command(pid)]
            if not children:
                break
            roles[role] = children[0]
        return roles

    def holds(self) -> set[str]:
        """The namespaces of its processes and of their descriptors at this moment."""
        return {space for pid in descendants(self.client.pid) for space in spaces_of(pid)}

    def wait_for(self, condition: Callable[[], bool], what: str, rest: Callable[[], object] | None = None) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"waited for {what}; the client said {self.said!r}"
            rest() if rest else time.sleep(PAUSE)

    def listen(self) -> None:
        """Wait for output of the client, at most for the interval between two looks."""
        assert self.client.stdout is not None
        select.select([self.client.stdout], [], [], PAUSE)

    def has_said(self, word: str) -> bool:
        assert self.client.stdout is not None
        while select.select([self.client.stdout], [], [], 0)[0]:
            data = os.read(self.client.stdout.fileno(), 4096)
            if not data:
                break
            self.said += data.decode()
        return word in self.said

    def go_on(self) -> None:
        assert self.client.stdin is not None
        self.client.stdin.write(b"\n")
        self.client.stdin.flush()

    def alive(self) -> list[int]:
        """Processes of the run that still live. A zombie does not."""
        return [pid for pid in self.pids if state_of(pid) not in {"", "Z", "X"}]


def belongs_to_root(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}").stat().st_uid == 0
    except OSError:
        return True


def is_a_command(pid: int) -> bool:
    """Whether the process is a command of a lab, by the mark in its environment."""
    try:
        return f"\0{MARK}=".encode() in b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()[0]
    except OSError:
        return ""


def spaces_of(pid: int) -> set[str]:
    found = set()
    for folder in ("ns", "fd"):
        try:
            for name in os.listdir(f"/proc/{pid}/{folder}"):
                target = os.readlink(f"/proc/{pid}/{folder}/{name}")
                if target.split(":")[0] in {"net", "mnt", "pid", "uts", "user"}:
                    found.add(target)
        except OSError:
            continue
    return found


def held_by_us(spaces: set[str]) -> set[str]:
    """The namespaces among these that a process holds, other workers' processes excepted.

    The kernel reuses the number of a removed namespace, also for other processes.
    """
    return {space for name in os.listdir("/proc") if name.isdigit() for space in _held(int(name), spaces)}


def _held(pid: int, spaces: set[str]) -> set[str]:
    held = spaces_of(pid) & spaces
    return set() if held and is_another_workers(pid) else held


def is_another_workers(pid: int) -> bool:
    """Whether another pytest process than this one started the process or an ancestor of it."""
    while pid > 1:
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            parent = int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()[1])
        except OSError:
            return False
        for entry in environment:
            if entry.startswith(b"PROXYLAB_TESTS_OF="):
                return entry != f"PROXYLAB_TESTS_OF={os.getpid()}".encode()
        pid = parent
    return False


@contextmanager
def running(*, ordinary: bool, held: bool = False, kernel: str = "host") -> Iterator[Run]:
    """A client that runs the scenario on that kernel, killed at the latest when the block ends.

    With ``held``, the client pauses once its lab exists, until ``Run.go_on``.
    """
    with checkout_for(ordinary=ordinary) as (root, become):
        argv = [*become, python_of(root), str(root / "tests/kernel/driver.py"), str(root / SCENARIO), kernel]
        client = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE if held else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            env={**os.environ, "PYTHONPATH": str(root / "lab"), "PYTHONDONTWRITEBYTECODE": "1"},
        )
        try:
            yield Run(client)
        finally:
            client.kill()
            client.communicate()


def strike(run: Run, role: str, stage: str, blow: signal.Signals, dice: random.Random) -> bool:
    """Wait for the stage, a random moment in it, and the role; send the signal, and return whether it hit."""
    run.wait_for(lambda: bool(run.look()) and run.has_said(SIGN[stage]), f"word of {SIGN[stage]!r}", run.listen)
    if stage == "load":
        launcher = run.look().get("launcher")
        while launcher is None and run.client.poll() is None:
            launcher = run.look().get("launcher")
        load = 0

        def seen() -> bool:
            nonlocal load
            load = loading(launcher)
            return load > 0 or run.client.poll() is not None

        run.wait_for(seen, "a node's rules to be loaded", lambda: time.sleep(MOMENT))
        if role == "command":
            return hit(load, blow)
    moment = time.monotonic() + (0 if role == "command" else dice.uniform(0, SPAN[stage]))
    victims: dict[str, int] = {}

    def due() -> bool:
        victims.update(run.look())
        return time.monotonic() >= moment and (role in victims or run.client.poll() is not None)

    run.wait_for(due, f"a {role} to strike at", lambda: time.sleep(min(max(moment - time.monotonic(), MOMENT), PAUSE)))
    return hit(victims.get(role, 0), blow)


def hit(pid: int, blow: signal.Signals) -> bool:
    """Send the signal, and return whether the process still lived. A zombie does not count."""
    if state_of(pid) in {"", "Z", "X"}:
        return False
    try:
        os.kill(pid, blow)
    except ProcessLookupError:
        return False
    return True


def loading(launcher: int | None) -> int:
    """The pid of an iptables-restore in a node, or 0. The trial before the first lab does not count."""
    try:
        for child in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
            command = command_of(int(child))
            if b"-restore" in command and b"--counters" in command:
                return int(child)
    except OSError:
        return 0
    return 0


def expect_nothing_left(run: Run, before: Machine, ours: set[str]) -> None:
    run.wait_for(lambda: run.client.poll() is not None, "the client to end")
    run.wait_for(lambda: not run.alive(), f"processes to end: {run.alive()}")
    run.wait_for(lambda: not held_by_us(run.spaces - ours), "namespaces to be let go of")
    assert before.differences(Machine.now()) == []


# Every stage for SIGKILL, which nothing can catch; what SIGTERM does depends on the role only.
BLOWS = {
    f"{blow.name} at the {role} in the stage {stage}": (blow, role, stage)
    for blow in (signal.SIGKILL, signal.SIGTERM)
    for role in ROLES
    for stage in STAGES
    if (blow is signal.SIGKILL or stage == "traffic") and (role, stage) != ("command", "close")  # none runs then
}


def blows(*, ordinary: bool) -> Iterator[Any]:
    """The kills for one user: half of them where root runs the tests and can be both users, otherwise all.

    The halves are like the colours of a chess board. So the tests kill each user's processes in every role and in every
    stage, and each role in every stage for one of the two users. Every second kill of a role is thorough: the role dies
    in other stages too, and other roles die in that stage.
    """
    for name, (blow, role, stage) in BLOWS.items():
        field = ROLES.index(role) + STAGES.index(stage)
        if os.geteuid() != 0 or field % 2 == ordinary:
            thorough = blow is signal.SIGKILL and field % 4 >= 2
            yield pytest.param(blow, role, stage, id=name, marks=[pytest.mark.thorough] if thorough else [])


def strike_and_look(blow: signal.Signals, role: str, stage: str, *, ordinary: bool, kernel: str = "host") -> None:
    """Run, kill, and expect no leftovers. Run again if the signal hit no process."""
    dice = random.Random(f"{role} {stage} {blow} {ordinary}")
    ours = spaces_of(os.getpid())
    before = Machine.now()
    for _ in range(ATTEMPTS):
        with running(ordinary=ordinary, kernel=kernel) as run:
            hit = strike(run, role, stage, blow, dice)
            expect_nothing_left(run, before, ours)
        if hit:
            return
    pytest.fail(f"no {role} was hit in {ATTEMPTS} runs: nothing is proven")
