"""Whether a process has nothing to do: one that waits for the answer to its SYN sleeps, and will act again."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from proxylab.kernel.sandbox.stillness import are_still
from proxylab.timing import Deadline, wait_until

SLEEPS = "import socket, sys; print(flush=True); sys.stdin.read()"
CONNECTS = "import socket, sys; print(flush=True); socket.create_connection(('127.0.0.1', int(sys.argv[1])))"


@contextmanager
def running(code: str, port: int) -> Iterator[int]:
    """A program in Python; yields its process."""
    argv = (sys.executable, "-c", code, str(port))
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


@pytest.mark.parametrize(("code", "awaits"), [(SLEEPS, False), (CONNECTS, True)])
def test_a_process_that_waits_for_the_answer_to_its_syn_is_not_done(code: str, awaits: bool) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        address = full.getsockname()
        # Its queue takes one connection, and the kernel drops each further SYN.
        with socket.create_connection(address), running(code, address[1]) as pid:
            asyncio.run(wait_until(lambda: are_still([pid]), Deadline.after(20), "the process sleeps"))
            assert are_still([pid], awaits_nothing=True) is not awaits
