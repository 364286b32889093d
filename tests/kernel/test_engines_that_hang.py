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
    peaks: list[int] = []

    def is_told() -> bool:
        nonlocal shown
        try:
            shown += os.read(terminal, 65536).decode()
        except OSError:
            pass
        if "waits since" in shown:
            peaks.append(peak_of_descendants(client.pid))
        return bool(peaks)

    try:
        wait_for(is_told, "a line about the wait", lambda: shown)
        assert client.stdout is not None
        with client.stdout as printed:
            output = printed.read().decode()
        client.wait(timeout=60)
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
    assert 0 < peaks[0] < MOST_KIBIBYTES
