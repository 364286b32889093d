"""Runs a coroutine of a test file inside a sandbox, as root or as an ordinary user.

As a program (``python sandboxed.py FILE NAME``) it enters the sandbox, forks a launcher, runs ``await NAME(launcher)``
of FILE, and prints the result as JSON. As a module it starts that program and returns the printed result.
"""

import asyncio
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
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from proxylab.errors import CapabilityError
from proxylab.kernel.sandbox.launcher_child import fork_launcher
from proxylab.kernel.sandbox.limits import raise_descriptor_limit
from proxylab.kernel.sandbox.memory import GC_THRESHOLD
from proxylab.kernel.sandbox.sandbox import enter

ROOT = Path(__file__).resolve().parents[2]
ORDINARY = 54321  # an unused user id

# The users of a test: root may become an ordinary user, and an ordinary user is one already.
USERS = {"as root": False, "as an ordinary user": True} if os.geteuid() == 0 else {"as an ordinary user": True}


def sandboxed(function: Callable[..., Awaitable[Any]], *, ordinary: bool = False, seconds: float = 100) -> Any:
    """Run ``function`` in a sandbox and return its result. Its failure is the caller's failure."""
    file = function.__code__.co_filename
    with checkout_for(ordinary=ordinary) as (root, become):
        there = root / Path(file).relative_to(ROOT)
        argv = [*become, python_of(root), str(root / "tests/kernel/sandboxed.py"), str(there), function.__name__]
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            cwd="/",
            env={
                **os.environ,
                "PYTHONPATH": f"{root}/lab:{root}/tests/support:{root}/tests/benchmarks",
                "PYTHONDONTWRITEBYTECODE": "1",
            },
        )
    if done.returncode == 77:
        import pytest

        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, f"{function.__name__} in a sandbox:\n{done.stdout}{done.stderr}"
    return json.loads(done.stdout) if done.stdout else None


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
    """Enter the sandbox and run the coroutine."""
    file, name = sys.argv[1:]
    raise_descriptor_limit()  # as a lab process does: a shell's limit is 1,024 on most machines
    # The client's lifeline: the sandbox may live as long as this process's parent keeps stdout open.
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
        os._exit(77)
    channel = fork_launcher(theirs)
    spec = importlib.util.spec_from_file_location("sandboxed_test", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    from proxylab.kernel.sandbox.launcher import Launcher

    async def run() -> Any:
        launcher = Launcher(channel)
        launcher.attach()
        return await getattr(module, name)(launcher)

    try:
        result = asyncio.run(run())
    except CapabilityError as error:
        sys.stderr.write(f"{error}\n")
        sys.stderr.flush()
        os._exit(77)
    if result is not None:
        sys.stdout.write(json.dumps(result))
        sys.stdout.flush()


if __name__ == "__main__":
    gc.set_threshold(GC_THRESHOLD)  # as in a lab process
    main()
