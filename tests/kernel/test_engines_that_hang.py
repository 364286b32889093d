"""A proxy that idles, floods or is stopped: the client says what it waits for, until a deadline that is an option."""

import os
import pty
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from command_line import CommandLine, wait_for

from proxylab.errors import ExitCode

SECONDS = 4
MOST_KIBIBYTES = 200_000
"""Of a lab process, whose modules take a third of it. A flood of a minute would be gigabytes."""

BEHAVIOURS = {
    "idles": "exec sleep 1000",
    "is stopped": "kill -STOP $$",
    "floods": "while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done",
    "floods without an end of line": "exec tr '\\0' y </dev/zero",
}


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter, such as a lab's proxies; only root may enter those of pytest."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_the_client_says_what_it_waits_for_and_how_the_log_ends(
    behaviour: str, cli: CommandLine, open_folder: Path
) -> None:
    program = open_folder / "kube-proxy"
    asked = 'case "$1" in --version*) echo Kubernetes v1.34.2; exit;; esac'
    program.write_text(f"#!/bin/sh\n{asked}\necho it begins\n{BEHAVIOURS[behaviour]}\n")
    program.chmod(0o755)
    words = ("--engine", "kube-proxy/iptables", "--kube-proxy", str(program), "--sync-seconds", str(SECONDS))
    terminal, theirs = pty.openpty()
    os.set_blocking(terminal, False)
    began = time.monotonic()
    client = cli.start("run", "tests/kernel/killed.lab.yaml", "-q", "--no-bundles", *words, stdout=-1, stderr=theirs)
    os.close(theirs)
    shown = ""

    def is_told() -> bool:
        nonlocal shown
        try:
            shown += os.read(terminal, 65536).decode()
        except OSError:
            pass
        return "waits since" in shown

    try:
        wait_for(is_told, "a line about the wait", lambda: shown)
        assert client.stdout is not None
        with client.stdout as printed:
            output = printed.read().decode()
        _, status, usage = os.wait4(client.pid, 0)  # of the client and of the lab process, for which it waited
        client.returncode = os.waitstatus_to_exitcode(status)
    finally:
        client.kill()
        client.wait()
        os.close(terminal)
    assert "kube-proxy on node-a has rules that reflect all changes" in shown
    assert client.returncode == ExitCode.FAILED, output
    assert time.monotonic() - began < 40
    assert "kube-proxy did not catch up in time: its rules do not reflect all changes" in output
    assert ("yyy" if "floods" in behaviour else "it begins") in output
    assert max(map(len, output.splitlines())) < 10_000
    assert usage.ru_maxrss < MOST_KIBIBYTES
