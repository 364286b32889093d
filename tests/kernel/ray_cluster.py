"""A Ray cluster of a head and nodes on this machine's loopback, and callers of it.

As a program (``python ray_cluster.py STORY FOLDER SHORT …``) it expects namespaces of its own, starts the cluster,
plays a story of ``test_ray.py`` in ``FOLDER``, and prints what it saw as JSON. Ray's sockets are in ``SHORT``: their
names have at most 107 characters. The end of its pid namespace is the end of all.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from interrupts import interruptible
from killing import spaces_of
from machine import command_of, descendants

HEAD, CLIENTS = "127.0.0.1:6379", "ray://127.0.0.1:10001"
_PATIENCE = 150.0
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0"}


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + _PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.02)
    return found


class Node:
    """A node, and every process that it has started."""

    def __init__(self, folder: Path, name: str, *options: str) -> None:
        log = folder / f"{name}.log"
        away = folder / "away"  # where no scenario is
        away.mkdir(exist_ok=True)
        common = ("--block", "--disable-usage-stats", "--node-ip-address=127.0.0.1", f"--node-name={name}")
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "ray.scripts.scripts",
                    "start",
                    *common,
                    "--object-store-memory=200000000",
                    *options,
                ],
                cwd=away,
                env={**os.environ, **_QUIET, "XDG_CACHE_HOME": str(folder / "cache")},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        wait_for(lambda: "Ray runtime started" in log.read_text() or self._process.poll() is not None, f"node {name}")
        assert self._process.poll() is None, log.read_text()

    def works(self) -> bool:
        """Whether a worker of it has a lab of several namespaces. The process by which it tries the node has one."""
        return any(
            sum(each.startswith("net:") for each in spaces_of(pid)) >= 4
            for pid in _labs(descendants(self._process.pid))
        )

    def signal(self, number: int) -> None:
        """Send a signal to all its processes; SIGKILL ends the node as a power cut does."""
        for pid in descendants(self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, number)


class Caller:
    """A run of ``proxylab`` that may go on for a while."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._output, self._errors = folder / "output", folder / "errors"
        with self._output.open("wb") as output, self._errors.open("wb") as errors, interruptible():
            self.process = subprocess.Popen(
                [sys.executable, "-m", "proxylab", "run", *arguments, "--ray", CLIENTS, "--jobs", "1"],
                cwd=folder,
                stdout=output,
                stderr=errors,
            )

    def interrupt(self) -> dict[str, Any]:
        """What came of it after Ctrl-C, and how many seconds later."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        return {**self.end(), "seconds": time.monotonic() - began}

    def end(self) -> dict[str, Any]:
        """What came of it."""
        code = self.process.wait(_PATIENCE)
        return {"code": code, "output": self._output.read_text(), "errors": self._errors.read_text(errors="replace")}


def _labs(pids: Iterable[int]) -> list[int]:
    """Those among these processes that run a lab."""
    return [pid for pid in pids if b"proxylab.server.main" in command_of(pid)]


def _has_labs() -> bool:
    """Whether any process of this pid namespace runs a lab."""
    return bool(_labs(int(each) for each in os.listdir("/proc") if each.isdecimal()))


def _at_work(node: Node, folder: Path) -> Caller:
    """A run of which a node has a scenario in hand, which takes some seconds longer."""
    caller = Caller(folder, "several", "-o", "json")
    wait_for(lambda: node.works() or caller.process.poll() is not None, "a lab on the node")
    return caller


def _cluster(folder: Path, short: Path, *names: str) -> list[Node]:
    """The head, on which no scenario runs, and the nodes with these names. They share a cache, empty at first."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    more = ("--port=6379", "--num-cpus=0", "--include-dashboard=false", f"--temp-dir={short}")
    head = Node(folder, "head", "--head", *more)
    return [head, *(Node(folder, name, f"--address={HEAD}", "--num-cpus=1") for name in names)]


def run(folder: Path, short: Path, *arguments: str) -> dict[str, Any]:
    """One run on a cluster of one node."""
    _cluster(folder, short, "one")
    return Caller(folder, *arguments).end()


def die_and_interrupt(folder: Path, short: Path) -> dict[str, Any]:
    """A node dies in the middle of a run. Ctrl-C ends two more runs, the second one while the head does not answer."""
    found: dict[str, Any] = {}
    head, one, two = _cluster(folder, short, "one", "two")

    caller = _at_work(two, folder)
    two.signal(signal.SIGKILL)
    found["killed"] = caller.end()

    found["interrupted"] = _at_work(one, folder).interrupt()
    wait_for(lambda: not _has_labs(), "the end of the labs after an interrupt")

    caller = _at_work(one, folder)
    head.signal(signal.SIGSTOP)
    found["interrupted without an answer"] = caller.interrupt()
    head.signal(signal.SIGCONT)
    wait_for(lambda: not _has_labs(), "the end of the labs whose caller is gone")
    return found


if __name__ == "__main__":
    story, folder, short, *further = sys.argv[1:]
    json.dump(
        {"run": run, "die_and_interrupt": die_and_interrupt}[story](Path(folder), Path(short), *further), sys.stdout
    )
