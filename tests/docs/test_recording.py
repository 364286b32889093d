"""The recording of ``proxylab watch`` at a terminal, on its page. ``LAB_DOCS=write`` records it anew."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from documents import ROOT, File, matches, steps

PAGE = ROOT / "docs/how-to/watch-a-scenario.md"
BLOCK = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ENDS = re.compile(r" ran in \d+\.\d\d s$|^error  ", re.MULTILINE)
MORE = """\
  - name: NodePort at a node without endpoints drops under policy Local
    from: outside
    to: {service: echo, via: nodePort, node: node-b}
    expect: {outcome: dropped}
  - name: ClusterIP"""
SAVES = {
    "externalTrafficPolicy: Locl": ("type: NodePort,", "type: NodePort, externalTrafficPolicy: Locl,"),
    "externalTrafficPolicy: Local": ("Locl", "Local"),
    "one more probe": (
        "  - name: ClusterIP",
        MORE,
    ),
}
PATIENCE = 30.0


class Watching:
    """``proxylab watch`` on a terminal of 80 columns."""

    def __init__(self, file: Path) -> None:
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "proxylab", "watch", file.name, "--color", "never"],
            cwd=file.parent,
            env={**os.environ, "COLUMNS": "80", "XDG_RUNTIME_DIR": str(file.parent), "TERM": "xterm"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        self.text = ""

    def read_until(self, pattern: "re.Pattern[str]") -> None:
        """Read until the pattern is in what was not there before."""
        begin, deadline = len(self.text), time.monotonic() + PATIENCE
        while not pattern.search(self.text, begin):
            assert time.monotonic() < deadline, self.text
            if select.select([self._ours], [], [], 1)[0]:
                try:
                    data = os.read(self._ours, 1 << 16)
                except OSError:  # EIO: it has ended
                    data = b""
                if not data:
                    pytest.skip(self.text) if "this machine lacks" in self.text else pytest.fail(self.text)
                self.text += data.decode().replace("\r\n", "\n")

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)
        self.read_until(re.compile("the lab is gone"))
        assert self._process.wait(PATIENCE) == 0

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._ours)


def recorded(file: Path) -> tuple[str, list[float]]:
    """The session, and the seconds from each save to its verdicts."""
    watching = Watching(file)
    took = []
    try:
        watching.read_until(ENDS)
        for words, (old, new) in SAVES.items():
            watching.text += f"\n<saved: {words}>\n"
            # An editor writes another file and renames it.
            beside = file.with_suffix(".new")
            beside.write_text(file.read_text().replace(old, new, 1))
            began = time.monotonic()
            beside.replace(file)
            watching.read_until(ENDS)
            took.append(time.monotonic() - began)
        watching.interrupt()
    finally:
        watching.close()
    return watching.text, took


# tests/unit/client/test_edit.py shows which probes run.
@pytest.mark.thorough
def test_the_page_shows_a_session(tmp_path: Path) -> None:
    text = PAGE.read_text()
    (written,) = (each for each in steps(text) if isinstance(each, File))
    file = tmp_path / written.name
    file.write_text(written.text)
    session, _ = recorded(file)
    block = BLOCK.search(text)
    assert block is not None
    head, *shown = block[1].splitlines()
    if os.environ.get("LAB_DOCS") == "write":
        again = f"{head}\n{session.strip()}\n"
        PAGE.write_text(text[: block.start(1)] + again + text[block.end(1) :])
    assert matches(tuple(shown), session.strip().splitlines()), session


@pytest.mark.benchmark
@pytest.mark.budget
def test_a_verdict_comes_within_a_second_of_a_save(tmp_path: Path) -> None:
    (written,) = (each for each in steps(PAGE.read_text()) if isinstance(each, File))
    (tmp_path / written.name).write_text(written.text)
    _, took = recorded(tmp_path / written.name)
    assert max(took) < 1, took
