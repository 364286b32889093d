"""Annotations on GitHub: a failed probe appears beside its line in the YAML file.

In GitHub Actions the run prints a workflow command for each probe that failed or was not decided, unless the plugin
pytest-github-actions-annotate-failures prints its own.

https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands#setting-an-error-message
"""

import re
from typing import Final

import pytest

from proxylab.pytest_plugin.items import SUFFIX, is_of_a_scenario

__all__ = ["Annotations"]

_MOST_ANNOTATIONS: Final = 10
"""GitHub shows ten annotations of a step, and silently drops the others."""

_MISTAKE: Final = re.compile(r"^(\S+):(\d+):\d+: (.*)$", re.MULTILINE)
_IN_MESSAGES: Final = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_IN_PROPERTIES: Final = _IN_MESSAGES | str.maketrans({":": "%3A", ",": "%2C"})


class Annotations:
    """The hooks; under xdist only the controller has them, since it receives all reports."""

    def __init__(self) -> None:
        self._lines: Final[list[str]] = []
        self._more = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect a probe that failed or was not decided."""
        if report.failed and is_of_a_scenario(report.nodeid):
            file, line, name = report.location
            self._note(file, (line or 0) + 1, name, str(report.longrepr))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Collect every mistake in a scenario file; each message begins with file, line and column."""
        if report.failed and report.nodeid.endswith(SUFFIX):
            for file, line, mistake in _MISTAKE.findall(str(report.longrepr)):
                self._note(file, int(line), "a mistake in the scenario", mistake)

    def _note(self, file: str, line: int, title: str, text: str) -> None:
        if len(self._lines) == _MOST_ANNOTATIONS:
            self._more += 1
            return
        where = f"file={file.translate(_IN_PROPERTIES)},line={line},title={title.translate(_IN_PROPERTIES)}"
        self._lines.append(f"::error {where}::{text.translate(_IN_MESSAGES)}")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the annotations, each at the start of a line, where GitHub looks for them."""
        terminalreporter.ensure_newline()
        for line in self._lines:
            terminalreporter.write_line(line)
        if self._more:
            terminalreporter.write_line(f"::notice::{self._more} more probes failed; the log has them all")
