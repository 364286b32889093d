"""Runs ``proxylab`` once for each line of code that it executes, with a signal to itself at that line.

As a program: ``python struck_lines.py SIGNAL EVERY PARTS -- WORDS``. ``PARTS`` are the beginnings of the modules whose
lines count, separated by commas. The first run imports all that it needs, and each further one is a fork. The second
run tells which lines there are. Then each of them has a run in which Python's tracing function sends the signal, just
before the line is executed for the first time; with ``EVERY`` above 1, only one of so many lines has it.

It prints a JSON list of ``[line, status, output]``; the first element is the second run, without a signal.
"""

import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import proxylab
from proxylab.cli import main

_ROOT = Path(proxylab.__file__).parent
_SECONDS = 60


class Ended(NamedTuple):
    """How a run ended. ``line`` was struck; ``status`` is that of subprocess."""

    line: str
    status: int
    output: str


class _Tracer:
    """Notes the lines of some modules as they are executed for the first time; strikes at one of them.

    With ``of_workers`` it does so in the children of its process, and not in that itself.
    """

    def __init__(self, parts: tuple[str, ...], told: int, at: str, number: int, *, of_workers: bool) -> None:
        self._lines: set[str] = set()
        self._folders = tuple(str(_ROOT / part.replace(".", "/")) for part in parts)
        self._told, self._at, self._number = told, at, number
        self._of_workers, self._process = of_workers, os.getpid()

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(self._folders) else None

    def _line(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "line":
            name = f"{Path(frame.f_code.co_filename).relative_to(_ROOT)}:{frame.f_lineno}"
            if name not in self._lines and (os.getpid() != self._process) == self._of_workers:
                self._lines.add(name)
                os.write(self._told, f"{name}\n".encode())
                if name == self._at:
                    os.kill(os.getpid(), self._number)
        return self._line


def struck(
    words: list[str],
    parts: tuple[str, ...],
    number: int,
    every: int = 1,
    *,
    make_session: Any = None,
    of_workers: bool = False,
) -> Iterator[Ended]:
    """Each run, the one without a signal first. With ``of_workers``, the client's workers are struck at their lines."""

    def run_once(at: str = "") -> tuple[int, str, list[str]]:
        """A run in a fork, which ends as ``python -m proxylab`` does."""
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile("ab+") as told:
            pid = os.fork()
            if pid == 0:
                signal.alarm(_SECONDS)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                for standard in (1, 2):
                    os.dup2(output.fileno(), standard)
                sys.argv[1:] = words
                sys.settrace(_Tracer(parts, told.fileno(), at, number, of_workers=of_workers))
                try:
                    main(make_session=make_session)
                finally:
                    sys.settrace(None)
            _, status = os.waitpid(pid, 0)
            for each in (output, told):
                each.seek(0)
            lines = [*dict.fromkeys(told.read().decode().split())]
            return os.waitstatus_to_exitcode(status), output.read().decode(errors="replace"), lines

    with (
        tempfile.TemporaryFile("w") as unseen,
        redirect_stdout(unseen),
        redirect_stderr(unseen),
        suppress(SystemExit),
    ):
        main(words, make_session)
    status, output, lines = run_once()
    yield Ended("", status, output)
    for line in lines[::every]:
        yield Ended(line, *run_once(line)[:2])


if __name__ == "__main__":
    given = sys.argv[1:]
    blow, spacing, modules = given[:3]
    found = [*struck(given[4:], tuple(modules.split(",")), signal.Signals[blow], int(spacing))]
    sys.stdout.write(json.dumps(found))
