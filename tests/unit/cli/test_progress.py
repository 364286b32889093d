"""What a run says while it goes on: on a terminal, in a pipe, and beside a document."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from golden_words import Told
from scenario_text import scenario_text

ROOT = Path(__file__).resolve().parents[3]
RUN = """
import sys
from functools import partial
from pathlib import Path
from fake_lab import FakeSession
from proxylab.cli import main
main(sys.argv[1:], make_session=partial(FakeSession, Path("journal")))
"""


def run(folder: Path, *arguments: str, on: str = "", columns: int = 80, term: str = "xterm") -> tuple[str, str]:
    """Standard output and standard error; those named in ``on`` are a terminal each."""
    for name in ("a", "b"):
        (folder / f"{name}.lab.yaml").write_text(scenario_text(f"holds in {name}", name=name))
    path = os.pathsep.join([str(ROOT / "lab"), str(ROOT / "tests/support")])
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": path, "TERM": term, "COLUMNS": str(columns)}
    ends = {name: pty.openpty() if name in on.split() else os.pipe() for name in ("output", "errors")}
    # A pipe is read at its first end and written at its second, a terminal at both.
    done = subprocess.Popen(
        [sys.executable, "-c", RUN, "run", "a.lab.yaml", "b.lab.yaml", *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=ends["output"][1],
        stderr=ends["errors"][1],
    )
    for _, theirs in ends.values():
        os.close(theirs)
    texts = [read(ours) for ours, _ in ends.values()]
    assert done.wait(30) == 0, texts
    return texts[0], texts[1]


def read(descriptor: int) -> str:
    data = b""
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        while True:
            try:
                more = file.read(1 << 16)
            except OSError:  # EIO: the other end of the terminal is closed
                more = b""
            if not more:
                return data.decode().replace("\r\n", "\n")
            data += more


def timeless(text: str) -> str:
    return re.sub(r"\d+\.\d\d s", "0.00 s", text)


def test_in_a_pipe_there_is_a_line_for_each_scenario_and_no_progress(tmp_path: Path, told: Told) -> None:
    output, errors = run(tmp_path)
    assert errors == ""
    assert timeless(output).splitlines()[:2] == told()


def test_on_a_terminal_one_line_is_always_the_newest(tmp_path: Path) -> None:
    output, errors = run(tmp_path, on="output errors")
    assert [part for part in errors.split("\r\x1b[K") if part] == [
        "1/2 a.lab.yaml",
        "1/2 a.lab.yaml [embedded/iptables] holds in a",
        "2/2 b.lab.yaml",
        "2/2 b.lab.yaml [embedded/iptables] holds in b",
    ]
    assert errors.endswith("\r\x1b[K")
    assert "\x1b[32m\x1b[22mpass" in output


def test_the_newest_line_is_never_wider_than_the_terminal(tmp_path: Path) -> None:
    _, errors = run(tmp_path, on="errors", columns=24)
    newest = [part for part in errors.split("\r\x1b[K") if part and "\n" not in part]
    assert "1/2 a.lab.yaml [embedd…" in newest
    assert max(map(len, newest)) <= 23


def test_a_terminal_that_cannot_erase_shows_lines_only(tmp_path: Path) -> None:
    assert run(tmp_path, on="output errors", term="dumb")[1] == ""


@pytest.mark.parametrize(("arguments", "on"), [(("-o", "json"), ""), ((), "errors")])
def test_where_the_results_are_not_seen_progress_has_a_line_for_each(
    tmp_path: Path, arguments: tuple[str, ...], on: str, told: Told
) -> None:
    _, errors = run(tmp_path, *arguments, on=on, term="dumb")
    lines = timeless(re.sub(r"\x1b\[\d*m", "", errors)).splitlines()
    assert lines == told()


def test_quiet_is_quiet(tmp_path: Path) -> None:
    output, errors = run(tmp_path, "-q")
    assert (timeless(output), errors) == ("2 passed in 0.00 s\n", "")


def test_a_scenario_is_told_of_as_soon_as_it_is_over(tmp_path: Path) -> None:
    """The second scenario is interrupted; the first has been told."""
    for name in ("a", "interrupted"):
        (tmp_path / f"{name}.lab.yaml").write_text(scenario_text("holds", name=name))
    path = os.pathsep.join([str(ROOT / "lab"), str(ROOT / "tests/support")])
    done = subprocess.run(
        [sys.executable, "-c", RUN, "run", "a.lab.yaml", "interrupted.lab.yaml"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 130
    assert done.stdout.startswith("pass          a.lab.yaml [embedded/iptables] 1 probe in ")
