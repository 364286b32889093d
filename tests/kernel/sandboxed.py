"""Runs a coroutine of a test file inside a sandbox, as root or as an ordinary user.

As a program (``python sandboxed.py FD``) it waits for requests on a socket. For each it loads the test file and forks.
The fork enters a sandbox of its own, forks a launcher, runs ``await NAME(launcher)`` of the file, and prints the result
as JSON. As a module it starts that program, once in each worker for each user, and returns what a fork prints: an
interpreter with its imports takes longer than most of these coroutines.
"""

import asyncio
import atexit
import gc
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from proxylab.errors import CapabilityError
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.launcher_child import fork_launcher
from proxylab.kernel.sandbox.limits import raise_descriptor_limit
from proxylab.kernel.sandbox.linux import die_with_parent
from proxylab.kernel.sandbox.memory import GC_THRESHOLD
from proxylab.kernel.sandbox.sandbox import enter

ROOT = Path(__file__).resolve().parents[2]
ORDINARY = 54321  # an unused user id
LACKS_A_CAPABILITY = 77

# The users of a test: root may become an ordinary user, and an ordinary user is one already.
USERS = {"as root": False, "as an ordinary user": True} if os.geteuid() == 0 else {"as an ordinary user": True}


def sandboxed(function: Callable[..., Awaitable[Any]], *, ordinary: bool = False, seconds: float = 100) -> Any:
    """Run ``function`` in a sandbox and return its result. Its failure is the caller's failure."""
    file = Path(function.__code__.co_filename).relative_to(ROOT)
    status, output, errors = _forks_of(ordinary=ordinary).run(file, function.__name__, seconds)
    if status == LACKS_A_CAPABILITY:
        import pytest

        pytest.skip(errors.strip())
    assert status == 0, f"{function.__name__} in a sandbox:\n{output}{errors}"
    return json.loads(output) if output else None


class Forks:
    """A user's program, which forks for each request. It ends with the worker, and its forks with it."""

    def __init__(self, *, ordinary: bool) -> None:
        self._stack = ExitStack()
        root, become = self._stack.enter_context(checkout_for(ordinary=ordinary))
        paths = ":".join(f"{root}/{each}" for each in ("lab", "tests/support", "tests/benchmarks"))
        self._settings = {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
        ours, theirs = socket.socketpair()
        self._socket = self._stack.enter_context(ours)
        with theirs:
            child = subprocess.Popen(
                [*become, python_of(root), str(root / "tests/kernel/sandboxed.py"), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                cwd="/",
                env={**os.environ, **self._settings},
            )
        self._stack.callback(child.wait)
        self._stack.callback(child.kill)
        atexit.register(self.close)

    def run(self, file: Path, name: str, seconds: float) -> tuple[int, str, str]:
        """The status of the fork that runs a coroutine, and what it prints. It may take so many seconds."""
        with tempfile.TemporaryFile("w+", encoding="utf-8") as output, tempfile.TemporaryFile("w+") as errors:
            request = json.dumps([str(file), name, {**os.environ, **self._settings}]).encode() + b"\n"
            self._socket.settimeout(seconds)
            try:
                socket.send_fds(self._socket, [request], [output.fileno(), errors.fileno()])
                status = self._socket.recv(8)
                assert status, f"{name} in a sandbox: {self} has ended"
            except BaseException:
                self.close()
                _forks_of.cache_clear()
                raise
            output.seek(0)
            errors.seek(0)
            return int(status), output.read(), errors.read()

    def close(self) -> None:
        """End the program, and what it runs."""
        self._stack.close()


@cache
def _forks_of(*, ordinary: bool) -> Forks:
    return Forks(ordinary=ordinary)


@contextmanager
def checkout_for(*, ordinary: bool) -> Iterator[tuple[Path, Sequence[str]]]:
    """The path of the checkout for another user, and the command prefix that becomes that user.

    A checkout may lie in a directory of root only (/root). So for an ordinary user the prefix bind-mounts it elsewhere,
    in a mount namespace that ends with the command.
    """
    if not ordinary or os.geteuid() != 0:
        yield ROOT, ()
        return
    top = Path(tempfile.mkdtemp(prefix="checkout-", dir="/tmp"))
    top.chmod(0o755)
    try:
        user = f"setpriv --reuid {ORDINARY} --regid {ORDINARY} --clear-groups"
        become = f'mount --bind "$1" "$2" && shift 2 && exec {user} "$@"'
        yield top, ("unshare", "--mount", "sh", "-c", become, "sh", str(ROOT), str(top))
    finally:
        shutil.rmtree(top, ignore_errors=True)


def python_of(root: Path) -> str:
    """The path of this interpreter, below ``root`` if it lies in the checkout."""
    executable = Path(sys.executable)
    return str(root / executable.relative_to(ROOT)) if executable.is_relative_to(ROOT) else str(executable)


def main() -> None:
    """Serve requests; in each fork, enter the sandbox and run the coroutine."""
    file, name = awaited(socket.socket(fileno=int(sys.argv[1])))
    raise_descriptor_limit()  # as a lab process does: a shell's limit is 1,024 on most machines
    # The client's lifeline: the sandbox lives as long as this process keeps its end open.
    ours, theirs = socket.socketpair()
    try:
        if os.fork():
            theirs.close()
            _, status = os.wait()
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
        ours.close()
        enter(theirs)
    except CapabilityError as error:
        sys.stderr.write(f"{error}\n")
        sys.stderr.flush()
        os._exit(LACKS_A_CAPABILITY)
    channel = fork_launcher(theirs)

    async def run() -> Any:
        launcher = Launcher(channel)
        launcher.attach()
        return await getattr(module_of(file), name)(launcher)

    try:
        result = asyncio.run(run())
    except CapabilityError as error:
        sys.stderr.write(f"{error}\n")
        sys.stderr.flush()
        os._exit(LACKS_A_CAPABILITY)
    if result is not None:
        sys.stdout.write(json.dumps(result))
        sys.stdout.flush()


def awaited(requests: socket.socket) -> tuple[Path, str]:
    """Fork for each request, and answer with the status of the fork. Return in the forks alone, the file and the name.

    The file is loaded before: a second coroutine of it needs no import any more.
    """
    while True:
        request, descriptors = received(requests)
        file, name, environment = json.loads(request)
        with suppress(Exception):  # the fork loads it again, and its traceback is the failure of the test
            module_of(ROOT / file)
        gc.freeze()  # a fork that collected garbage would copy every page with an object
        pid = os.fork()
        if pid == 0:
            die_with_parent()
            requests.close()
            for descriptor, standard in zip(descriptors, (1, 2), strict=True):
                os.dup2(descriptor, standard)
                os.close(descriptor)
            os.environ.clear()
            os.environ.update(environment)
            return ROOT / file, name
        for each in descriptors:
            os.close(each)
        _, status = os.waitpid(pid, 0)
        requests.send(b"%d" % (os.waitstatus_to_exitcode(status) & 0xFF))


def received(requests: socket.socket) -> tuple[bytes, Sequence[int]]:
    """A request, which ends with its line, and the descriptors for what it prints. Exits at end-of-file."""
    request, descriptors, _, _ = socket.recv_fds(requests, 65536, 2)
    while not request.endswith(b"\n"):
        more = requests.recv(65536)
        if not more:
            sys.exit()
        request += more
    return request, descriptors


@cache
def module_of(file: Path) -> ModuleType:
    """The module of a test file."""
    spec = importlib.util.spec_from_file_location("sandboxed_test", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    gc.set_threshold(GC_THRESHOLD)  # as in a lab process
    main()
