"""The progress of a run: what goes to which stream, and when.

Results go to standard output, each scenario's as soon as it ends. Progress goes to standard error. On a terminal it is
one line that is rewritten again and again, with remarks above it, plus a line for each scenario if standard output does
not show one there: because it is a JSON document, or because it is redirected.
"""

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import click

from proxylab.cli.standard_streams import echo
from proxylab.cli.terminal import terminal_width, wants_color
from proxylab.client.report_page import RunStart
from proxylab.client.warning_lines import warnings_to
from proxylab.report.document import to_json
from proxylab.report.matrix import Painter
from proxylab.report.run_text import closing_lines, scenario_lines
from proxylab.text import printable
from proxylab.verdict.model import ScenarioResult

_ERASE: Final = "\r\x1b[K"
"""Return to the start of the line and clear it (ECMA-48, CR and EL)."""


class RunProgress:
    """Shows how far a run has come."""

    def __init__(self, total: int, *, document: bool, verbosity: int, color: str, paint: Painter) -> None:
        """Start with no scenario done.

        With ``document``, standard output gets one document at the end.
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
        self._shown = ""  # on the terminal's last line
        self._width = terminal_width()

    @contextmanager
    def shown(self) -> Iterator[None]:
        """In the block, warnings are remarks too; after it the terminal's last line is free for an error."""
        with warnings_to(self.note):
            try:
                yield
            finally:
                self._erase()

    def at(self, what: str) -> None:
        """Show what the run does now, on a terminal only."""
        if self._live:
            self._show(printable(f"{self._done + 1}/{self._total} {what}", keep=""))

    def _show(self, line: str) -> None:
        room = shutil.get_terminal_size().columns - 1
        _aside(line if len(line) <= room else f"{line[: room - 1]}…", nl=False, erasing=True)
        self._shown = line

    def note(self, line: str) -> None:
        """Print a remark on standard error, and what the run does now below it again."""
        doing = self._shown
        self._erase()
        _aside(line)
        if doing:
            self._show(doing)

    def over(self, result: ScenarioResult) -> ScenarioResult:
        """Print the result of a scenario that has ended, and return it."""
        self._done += 1
        self._erase()
        if self._echoes:
            count = f"{self._done:{len(str(self._total))}}/{self._total} "
            lines = scenario_lines(result, paint=self._paint, width=self._width - len(count))
            lines = [(" " * len(count) if number else count) + line for number, line in enumerate(lines)]
            _aside("\n".join(lines), color=wants_color(sys.stderr, self._color))
        if not self._document:
            self._tell(scenario_lines(result, verbosity=self._verbosity, paint=self._paint, width=self._width))
        return result

    def end(self, results: Sequence[ScenarioResult], begun: RunStart, *, traces: bool) -> None:
        """Print the document, or the end of the text."""
        if self._document:
            lines = [to_json(results, begun.shard or None)]
        else:
            lines = closing_lines(
                results,
                verbosity=self._verbosity,
                traces=traces,
                paint=self._paint,
                width=self._width,
                seconds=begun.seconds,
            )
        self._tell(lines)

    def _tell(self, lines: Sequence[str]) -> None:
        """Print results on standard output."""
        self._erase()
        if lines:
            echo("\n".join(lines), color=wants_color(sys.stdout, self._color))

    def _erase(self) -> None:
        if self._shown:
            _aside("", nl=False, erasing=True)
            self._shown = ""


def _aside(text: str, *, nl: bool = True, color: bool | None = None, erasing: bool = False) -> None:
    """Print on standard error. If that fails, the run goes on: the results go elsewhere."""
    with suppress(OSError):
        if erasing:
            click.echo(_ERASE, nl=False, err=True, color=True)  # noqa: TID251 - the one control sequence of ours but colours
        echo(text, nl=nl, err=True, color=color)
