"""Whatever is killed, and whenever, nothing of a lab is left on the machine.

Every role of process is killed in every stage of a run, at a moment drawn at random within the stage. Afterwards no
process of the run lives, no namespace that any of them was in or held is held by anybody, and the machine's links,
addresses, routes, rules, mounts and sysctls are what they were.
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

import pytest
from machine import Machine, descendants
from sandboxed import USERS, checkout_for, python_of

MYSELF = os.geteuid() != 0  # whether whoever runs the tests is an ordinary user
SCENARIO = "tests/kernel/killed.lab.yaml"
PATIENCE = 30.0
PAUSE = 0.01  # between two looks; each reads all of /proc, and without it the watcher would starve the watched

# Every user may be struck by SIGKILL; who catches or ignores SIGTERM does so whoever runs it.
BLOWS = {f"SIGKILL {who}": (signal.SIGKILL, ordinary) for who, ordinary in USERS.items()}
BLOWS |= dict([(f"SIGTERM {who}", (signal.SIGTERM, ordinary)) for who, ordinary in USERS.items()][:1])

STAGES = ("build", "load", "traffic", "close")
ROLES = ("client", "keeper", "init", "lab process", "launcher", "command")
# How long after the stage's first sign the blow may fall, in seconds; about the length of the stage.
SPAN = {"build": 0.5, "load": 0.0, "traffic": 0.5, "close": 0.05}


@dataclass
class Run:
    """A client at work, and all that was ever seen of its processes and their namespaces."""

    client: subprocess.Popen[bytes]
    pids: set[int] = field(default_factory=set)
    spaces: set[str] = field(default_factory=set)
    said: str = ""

    def look(self) -> dict[str, int]:
        """Who is who at this moment. Each role is the child of the one before."""
        tree = descendants(self.client.pid)
        self.pids |= set(tree)
        for pid in tree:
            self.spaces |= spaces_of(pid)
        roles: dict[str, int] = {"client": self.client.pid}
        for role, parent in zip(ROLES[1:], ROLES[:-1], strict=True):
            children = tree.get(roles[parent], [])
            if not children:
                break
            roles[role] = children[0]
        return roles

    def wait_for(self, condition: Callable[[], bool], what: str, pause: float = PAUSE) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"waited for {what}; the client said {self.said!r}"
            time.sleep(pause)

    def has_said(self, word: str) -> bool:
        assert self.client.stdout is not None
        while select.select([self.client.stdout], [], [], 0)[0]:
            data = os.read(self.client.stdout.fileno(), 4096)
            if not data:
                break
            self.said += data.decode()
        return word in self.said

    def alive(self) -> list[int]:
        """Processes of the run that still live; a zombie waiting for somebody else's wait() does not."""
        return [pid for pid in self.pids if state_of(pid) not in {"", "Z", "X"}]


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


def all_spaces() -> set[str]:
    return set().union(*(spaces_of(int(name)) for name in os.listdir("/proc") if name.isdigit()))


@contextmanager
def running(*, ordinary: bool) -> Iterator[Run]:
    """A client on its way through the scenario; killed at the latest when the block ends."""
    with checkout_for(ordinary=ordinary) as (root, become):
        argv = [*become, python_of(root), str(root / "tests/kernel/driver.py"), str(root / SCENARIO)]
        client = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            env={**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"},
        )
        try:
            yield Run(client)
        finally:
            client.kill()
            client.communicate()


def strike(run: Run, role: str, stage: str, blow: signal.Signals, dice: random.Random) -> bool:
    """Wait for the stage, then for a random moment in it, then for the role to exist; and strike. Whether it hit."""
    sign = {"build": "building", "load": "building", "traffic": "probing", "close": "closing"}[stage]
    run.wait_for(lambda: bool(run.look()) and run.has_said(sign), f"the client to say {sign!r}")
    if stage == "load":
        run.wait_for(lambda: "command" in run.look(), "a command to run", pause=0)  # commands live a few milliseconds
    moment = time.monotonic() + dice.uniform(0, SPAN[stage])
    victims: dict[str, int] = {}

    def due() -> bool:
        victims.update(run.look())
        return time.monotonic() >= moment and (role in victims or run.client.poll() is not None)

    run.wait_for(due, f"a {role} to strike at", pause=0)
    try:
        os.kill(victims[role], blow)
    except (KeyError, ProcessLookupError):
        return False  # it ended by itself in the same moment: what is left behind is looked at all the same
    return True


def expect_nothing_left(run: Run, before: Machine, ours: set[str]) -> None:
    run.wait_for(lambda: run.client.poll() is not None, "the client to end")
    run.wait_for(lambda: not run.alive(), f"processes to end: {run.alive()}")
    left = (run.spaces - ours) & all_spaces()
    run.wait_for(lambda: not ((run.spaces - ours) & all_spaces()), f"namespaces to be let go of: {left}")
    assert before.differences(Machine.now()) == []


@pytest.mark.parametrize(
    ("role", "stage"),
    # No command runs while a lab closes.
    [(role, stage) for role in ROLES for stage in STAGES if (role, stage) != ("command", "close")],
)
@pytest.mark.parametrize(("blow", "ordinary"), BLOWS.values(), ids=BLOWS)
def test_nothing_is_left(role: str, stage: str, blow: signal.Signals, ordinary: bool) -> None:
    dice = random.Random(f"{role} {stage} {blow} {ordinary}")
    ours = spaces_of(os.getpid())
    before = Machine.now()
    with running(ordinary=ordinary) as run:
        hit = strike(run, role, stage, blow, dice)
        expect_nothing_left(run, before, ours)
    assert hit or stage == "close" or role == "command", "a blow that falls on nobody proves nothing"


def test_a_run_that_is_left_alone_leaves_nothing() -> None:
    ours = spaces_of(os.getpid())
    before = Machine.now()
    with running(ordinary=MYSELF) as run:
        run.wait_for(lambda: bool(run.look()) and run.has_said("closed"), "the client to be through")
        expect_nothing_left(run, before, ours)
    assert run.said.count(": pass\n") == run.said.count(": "), run.said
    assert len(run.spaces - ours) > 10, "the run had namespaces, and this test saw them"


def test_two_runs_at_once_do_not_meet() -> None:
    with running(ordinary=MYSELF) as one, running(ordinary=MYSELF) as other:
        for run in (one, other):
            run.wait_for(lambda run=run: bool(run.look()) and run.has_said("closed"), "the client to be through")
            assert run.said.count(": pass\n") == run.said.count(": "), run.said
    assert not (one.spaces & other.spaces) - spaces_of(os.getpid())


@pytest.mark.skipif(os.geteuid() != 0, reason="compares root with an ordinary user; run it as root")
def test_root_and_an_ordinary_user_see_the_same() -> None:
    said = []
    for ordinary in (False, True):
        with running(ordinary=ordinary) as run:
            run.wait_for(lambda run=run: run.has_said("closed"), "the client to be through")
            said.append(run.said)
    assert said[0] == said[1]
