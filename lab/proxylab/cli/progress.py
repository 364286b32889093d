"""What a run says while it goes on.

Owns: which of its lines go where as soon as they are known, and the one line of a terminal that is always the newest.
Must not: know what the lines of a result say (``proxylab.report`` does).

Results go to standard output, a scenario's as soon as it is over. Progress goes to standard error: on a terminal, one
line that is written over again and again; and a line for each scenario where standard output does not tell them yet,
since it holds a JSON document, or somewhere else than on that terminal.
"""

import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import click

from proxylab.cli.color import wants_color
from proxylab.cli.width import terminal_width
from proxylab.report.matrix import Painter
from proxylab.report.terminal import scenario_lines
from proxylab.verdict.model import ScenarioResult

__all__ = ["Progress"]

_ERASE: Final = "\r\x1b[K"
"""Back to the beginning of the line, and clear it (ECMA-48, CR and EL)."""


class Progress:
    """Tells whoever waits how far a run has come."""

    def __init__(self, total: int, *, document: bool, verbosity: int, color: str, paint: Painter) -> None:
        """Progress of a run.

        Args:
            total: how many scenarios and cases will run.
            document: whether standard output is to hold one document, which is known when all is over.
            verbosity: of the lines (see ``proxylab.report.run_lines``).
            color: the user's word on colours.
            paint: colours words that say how something came out.
        """
        terminal = sys.stderr.isatty()
        self._total = total
        self._done = 0
        self._live = terminal and os.environ.get("TERM") != "dumb"
        self._document = document
        self._echoes = verbosity >= 0 and (document or (terminal and not sys.stdout.isatty()))
        self._verbosity = verbosity
        self._color = color
        self._paint = paint
        self._shown = False
        self.width: Final = terminal_width()

    def at(self, what: str) -> None:
        """What is being done now; told on a terminal only."""
        if self._live:
            room = shutil.get_terminal_size().columns - 1
            line = f"{self._done + 1}/{self._total} {what}"
            _aside(_ERASE + (line if len(line) <= room else f"{line[: room - 1]}…"), nl=False, color=True)
            self._shown = True

    def note(self, line: str) -> None:
        """Something that is to be known beside the results."""
        self._erase()
        _aside(line)

    def over(self, result: ScenarioResult) -> None:
        """A scenario has come to its end."""
        self._done += 1
        self._erase()
        if self._echoes:
            count = f"{self._done:{len(str(self._total))}}/{self._total} "
            lines = scenario_lines(result, paint=self._paint, width=self.width - len(count))
            lines = [(" " * len(count) if number else count) + line for number, line in enumerate(lines)]
            _aside("\n".join(lines), color=wants_color(sys.stderr, self._color))
        if not self._document:
            self.tell(scenario_lines(result, verbosity=self._verbosity, paint=self._paint, width=self.width))

    def tell(self, lines: Sequence[str]) -> None:
        """Results."""
        self._erase()
        if lines:
            click.echo("\n".join(lines), color=wants_color(sys.stdout, self._color))

    def _erase(self) -> None:
        if self._shown:
            _aside(_ERASE, nl=False, color=True)
            self._shown = False


def _aside(text: str, *, nl: bool = True, color: bool | None = None) -> None:
    """Say something on standard error. Where that takes nothing, the run goes on: its results do not stand there."""
    with suppress(OSError):
        click.echo(text, nl=nl, err=True, color=color)
