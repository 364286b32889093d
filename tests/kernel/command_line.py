"""Runs commands of ``proxylab`` as a user types them, with a folder of its own for control sockets."""

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from interrupts import interruptible
from machine import descendants
from sandboxed import ROOT

from proxylab.cli import main
from proxylab.client.connection import ControlConnection
from proxylab.client.control_sockets import ControlSockets
from proxylab.protocol.standing_labs import Greet, Greeted
from proxylab.timing import Deadline

SCENARIO = "tests/kernel/killed.lab.yaml"
PATIENCE = 30.0


@dataclass
class Typed:
    """The output of a command, and its exit code."""

    status: int
    output: str
    errors: str


class CommandLine:
    """A user at a terminal. ``type`` runs a command in this process, ten times faster; ``start`` in one of its own."""

    def __init__(self, runtime: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.runtime = runtime
        self._capfd = capfd

    @property
    def control_sockets(self) -> ControlSockets:
        return ControlSockets(self.runtime / "proxylab")

    def type(self, *arguments: str) -> Typed:
        self._capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        output, errors = self._capfd.readouterr()
        assert isinstance(ended.value.code, int)
        return Typed(int(ended.value.code), output, errors)

    def start(self, *arguments: str, **options: object) -> "subprocess.Popen[bytes]":
        argv = [sys.executable, "-m", "proxylab", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "lab"), "PYTHONDONTWRITEBYTECODE": "1"}
        with interruptible():
            return subprocess.Popen(argv, cwd=ROOT, env=environment, **options)  # type: ignore[call-overload,no-any-return]

    def up(self, *arguments: str, scenario: str = SCENARIO) -> Typed:
        typed = self.type("up", str(ROOT / scenario), *arguments)
        assert typed.status == 0, typed.errors
        return typed

    def complete(self, words: str) -> list[str]:
        """The completions of a shell for the last word."""
        done = subprocess.run(
            [sys.executable, "-m", "proxylab"],
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT / "lab"),
                "_PROXYLAB_COMPLETE": "bash_complete",
                "COMP_WORDS": words,
                "COMP_CWORD": str(len(words.split()) - 1),
            },
            cwd=self.runtime,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return [line.partition(",")[2] for line in done.stdout.splitlines()]

    def greeting(self, name: str) -> Greeted:
        """What a lab reports about itself."""
        with ControlConnection(self.control_sockets, name) as line:
            return line.request(Greet(), Deadline.after(PATIENCE))

    def supervisor(self, name: str) -> int:
        return int(self.control_sockets.supervisor_file(name).read_text().split()[0])

    def processes(self, name: str) -> dict[str, int]:
        """The processes of a detached lab, from the supervisor down."""
        found = {"supervisor": self.supervisor(name)}
        tree = descendants(found["supervisor"])
        for role, parent in (("init", "supervisor"), ("lab process", "init"), ("launcher", "lab process")):
            found[role] = tree[found[parent]][0]
        return found


def lives(pid: int) -> bool:
    """Whether a process lives. A zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def wait_for(condition: Callable[[], bool], what: str, meanwhile: Callable[[], str] = lambda: "nothing more") -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited for {what}; there was {meanwhile()}"
        time.sleep(0.005)


class TerminalOutput:
    """The output of a terminal."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self._text = b""

    def so_far(self) -> str:
        try:
            self._text += os.read(self._terminal, 4096)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EIO):  # nothing more now, or ever
                raise
        return self._text.decode(errors="replace")
