"""A proxy that idles, floods or is stopped: the client says what it waits for, until a deadline that is an option."""

import os
import pty
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from command_line import CommandLine, TerminalOutput, wait_for
from machine import command_of, descendants

from proxylab.errors import ExitCode

SECONDS = 4
MOST_KIBIBYTES = 200_000
"""Of a process of the client, whose modules take a third of it, two seconds after a flood began."""

BEHAVIOURS = {
    "idles": "exec sleep 1000",
    "is stopped": "kill -STOP $$",
    "floods": "while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done",
    "floods without an end of line": "exec tr '\\0' y </dev/zero",
}


def peak_of_descendants(pid: int) -> int:
    """The most memory that one of a process's descendants has had, in KiB, since its ``exec``."""
    parents, peaks = {}, {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        except OSError:
            continue  # it has ended
        parents[int(status.parent.name)] = int(fields["PPid"])
        peaks[int(status.parent.name)] = int(fields.get("VmHWM", "0 kB").split()[0])
    found = {pid}
    while more := {each for each, parent in parents.items() if parent in found} - found:
        found |= more
    return max(peaks.get(each, 0) for each in found)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter, such as a lab's proxies; only root may enter those of pytest."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def proxy(folder: Path, behaviour: str) -> tuple[str, ...]:
    """The options that choose a kube-proxy of that behaviour."""
    program = folder / "kube-proxy"
    asked = 'case "$1" in --version*) echo Kubernetes v1.34.2; exit;; esac'
    program.write_text(f"#!/bin/sh\n{asked}\necho it begins\n{BEHAVIOURS[behaviour]}\n")
    program.chmod(0o755)
    return "--engine", "kube-proxy/iptables", "--kube-proxy", str(program), "--sync-seconds", str(SECONDS)


@contextmanager
def at_a_terminal(cli: CommandLine, *words: str) -> Iterator[tuple["subprocess.Popen[bytes]", TerminalOutput]]:
    """A run whose standard error is a terminal."""
    terminal, theirs = pty.openpty()
    os.set_blocking(terminal, False)
    client = cli.start("run", "tests/kernel/killed.lab.yaml", "-q", "--no-bundles", *words, stdout=-1, stderr=theirs)
    os.close(theirs)
    with client:
        try:
            yield client, TerminalOutput(terminal)
        finally:
            client.kill()
            os.close(terminal)


def lines_of(terminal: TerminalOutput) -> list[str]:
    """What a user sees: of a line that was rewritten, what was written last."""
    return [line.rsplit("\r\x1b[K", 1)[-1] for line in terminal.so_far().replace("\r\n", "\n").split("\n")]


def supervisors(client: int) -> list[int]:
    """The children of a client that run their own program: before ``exec`` a client waits for its child (Popen)."""
    children = descendants(client).get(client, [])
    return [each for each in children if b"proxylab.server.main" in command_of(each)]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_line_about_a_wait_stands_above_the_progress_of_the_run(
    jobs: int, cli: CommandLine, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    words = *proxy(open_folder, "idles"), "--engine", "kube-proxy/nftables", "--jobs", str(jobs)
    with at_a_terminal(cli, *words) as (_client, terminal):
        wait_for(lambda: "waits since" in terminal.so_far(), "a line about the wait", terminal.so_far)
        wait_for(lambda: "killed.lab.yaml" in lines_of(terminal)[-1], "progress below it", terminal.so_far)
        told = [line for line in lines_of(terminal) if "waits since" in line]
    assert told
    assert all(line.startswith("the lab process waits since ") for line in told)
    assert all(line.endswith("Ctrl-C ends the wait, and the lab") for line in told)


def test_a_line_about_a_stopped_process_stands_above_the_progress_of_the_run(
    cli: CommandLine, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    with at_a_terminal(cli, *proxy(open_folder, "idles")) as (client, terminal):
        wait_for(lambda: "killed.lab.yaml" in terminal.so_far(), "a lab", terminal.so_far)
        wait_for(lambda: bool(supervisors(client.pid)), "a supervisor that runs its own program")
        [supervisor] = supervisors(client.pid)
        os.kill(supervisor, signal.SIGSTOP)
        try:
            wait_for(lambda: "is stopped" in terminal.so_far(), "a line about it", terminal.so_far)
        finally:
            os.kill(supervisor, signal.SIGCONT)  # what is stopped before it asks to end with its parent would stay
        [told] = [line for line in lines_of(terminal) if "is stopped" in line]
    assert told.startswith("the lab process has not answered since ")


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_the_client_says_what_it_waits_for_and_how_the_log_ends(
    behaviour: str, cli: CommandLine, open_folder: Path
) -> None:
    began = time.monotonic()
    peaks: list[int] = []
    with at_a_terminal(cli, *proxy(open_folder, behaviour)) as (client, terminal):

        def is_told() -> bool:
            if "waits since" in terminal.so_far():
                peaks.append(peak_of_descendants(client.pid))
            return bool(peaks)

        wait_for(is_told, "a line about the wait", terminal.so_far)
        assert client.stdout is not None
        with client.stdout as printed:
            output = printed.read().decode()
        client.wait(timeout=60)
        shown = terminal.so_far()
    assert "kube-proxy on node-a has rules that reflect all changes" in shown
    assert client.returncode == ExitCode.FAILED, output
    assert time.monotonic() - began < 40
    assert "kube-proxy did not catch up in time: its rules do not reflect all changes" in output
    assert ("yyy" if "floods" in behaviour else "it begins") in output
    assert max(map(len, output.splitlines())) < 10_000
    assert 0 < peaks[0] < MOST_KIBIBYTES
