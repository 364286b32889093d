"""A Docker engine in net, mount and pid namespaces of its own, which leaves nothing behind.

This module starts and ends it; ``docker_init`` runs inside the namespaces. A Docker engine of the machine's own is left
alone.
"""

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from docker_packages import unpacked
from killing import state_of
from machine import descendants

from proxylab.timing import Deadline, wait_until

__all__ = ["DockerEngine", "docker_engine"]

_ROOT = Path(__file__).parents[2]
_OWN = ("--net", "--mount", "--pid", "--cgroup", "--ipc", "--uts")
_SECONDS = 60


@dataclass(frozen=True)
class DockerEngine:
    """One that answers.

    Attributes:
        host: what DOCKER_HOST must say.
        registry: the address, in the engine's own namespace, of a registry that it can pull from.
        shelf: the folder that this registry serves.
        process: its end is the end of everything of this engine.
    """

    host: str
    registry: str
    bundle_store: Path
    process: subprocess.Popen[str]


@contextmanager
def docker_engine() -> Iterator[DockerEngine]:
    """One that ends with the block; or with this process, however that ends. Needs root.

    Raises:
        UnobtainableError: its programs cannot be had.
    """
    programs = unpacked()
    folder = Path(tempfile.mkdtemp(prefix="docker-", dir="/tmp"))  # short: a socket's path has 107 characters
    try:
        bundle_store = folder / "registry"
        bundle_store.mkdir()
        init = [sys.executable, str(Path(__file__).with_name("docker_init.py")), str(programs), str(folder)]
        with subprocess.Popen(
            ["unshare", *_OWN, "--fork", "--kill-child", *init],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": str(_ROOT / "lab"), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        ) as process:
            assert process.stdout is not None
            said = process.stdout.readline()
            try:
                if not said:
                    log = folder / "log"
                    raise AssertionError(f"no Docker engine: {log.read_text() if log.exists() else 'not even started'}")
                (init_pid,) = descendants(process.pid)[process.pid]
                yield DockerEngine(f"unix://{folder}/socket", json.loads(said)["registry"], bundle_store, process)
                process.communicate(timeout=_SECONDS)  # which closes its standard input
                # The command that killed unshare did not wait for its child. The first process of a pid namespace ends
                # after all the others.
                gone = wait_until(lambda: state_of(init_pid) in {"", "Z", "X"}, Deadline.after(_SECONDS), "its end")
                asyncio.run(gone)
            finally:
                process.kill()
    finally:
        shutil.rmtree(folder)
