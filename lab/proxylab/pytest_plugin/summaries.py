"""What the plugin adds to the end of pytest's output, from the reports that pytest gathers.

Under xdist only the controller has these hooks, since it receives all reports. ``Binaries`` prints a line for each
binary that ran as a proxy. ``Themes`` prints a line for each folder of scenarios. ``Required`` (``--lab-required``)
fails a run that skipped every probe; the results of single probes do not change. ``Annotations`` shows a failed
probe beside its line in the YAML file on GitHub: in GitHub Actions the run prints a workflow command for each probe
that failed or was not decided, unless the plugin pytest-github-actions-annotate-failures prints its own.

https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands#setting-an-error-message
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pytest

from proxylab.pytest_plugin.items import SUFFIX, is_of_a_scenario
from proxylab.pytest_plugin.outcome import BINARY
from proxylab.text import printable

_OUTCOMES: Final = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")
_ALWAYS: Final = ("passed", "failed", "skipped")

Stats = Mapping[str, Sequence[Any]]
"""Reports by category, as pytest's terminal reporter keeps them."""
_MOST_ANNOTATIONS: Final = 10
"""GitHub shows ten annotations of a step, and silently drops the others."""

_MISTAKE: Final = re.compile(r"^(\S+):(\d+):\d+: (.*)$", re.MULTILINE)
_IN_MESSAGES: Final = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_IN_PROPERTIES: Final = _IN_MESSAGES | str.maketrans({":": "%3A", ",": "%2C"})


class Binaries:
    """The hooks that print which binaries ran as proxies, even if pytest is quiet."""

    def __init__(self) -> None:
        self._engines: Final[dict[str, dict[str, None]]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the binary and the engine of an item."""
        properties = dict(report.user_properties)
        if BINARY in properties:
            self._engines.setdefault(str(properties[BINARY]), {})[str(properties["engine"])] = None

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print a line for each binary, with its engines."""
        for binary, engines in self._engines.items():
            terminalreporter.write_line(f"{', '.join(engines)}: {binary}")


class Themes:
    """The hook that prints the summary, unless pytest is quiet."""

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print a line for each folder of scenarios, if there are several."""
        lines = theme_lines(terminalreporter.stats)
        if not lines or terminalreporter.config.get_verbosity() < 0:
            return
        terminalreporter.section("scenarios by folder")
        for line in lines:
            terminalreporter.write_line(line)


def theme_lines(stats: Stats) -> list[str]:
    """A line for each folder that has scenarios: the outcomes and the time of its items, Python tests included."""
    folders = {_folder(each) for _, each in _reports(stats) if is_of_a_scenario(each.nodeid)}
    if len(folders) < 2:
        return []
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    seconds: dict[str, float] = defaultdict(float)
    for outcome, each in _reports(stats):
        counts[_folder(each)][outcome] += 1
        seconds[_folder(each)] += each.duration
    shown = [each for each in _OUTCOMES if each in _ALWAYS or any(counts[folder][each] for folder in folders)]
    longest = max(map(len, folders))
    head = "".join(f"{each:>9}" for each in shown)
    rows = (
        f"{folder:<{longest}}" + "".join(f"{counts[folder][each]:>9,}" for each in shown) + f"{seconds[folder]:>9.2f} s"
        for folder in sorted(folders)
    )
    return [f"{'folder':<{longest}}{head}{'time':>11}", *rows]


def _reports(stats: Stats) -> Iterator[tuple[str, pytest.TestReport]]:
    """Each phase of each item with pytest's category, which is "" for a setup or teardown that passed."""
    for outcome, reports in stats.items():
        yield from ((outcome, each) for each in reports if isinstance(each, pytest.TestReport))


def _folder(report: pytest.TestReport) -> str:
    return report.nodeid.partition("::")[0].rpartition("/")[0] or "."


class Required:
    """The hooks."""

    def __init__(self) -> None:
        self._probes = 0
        self._skipped = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a probe after its setup."""
        if report.when == "setup" and is_of_a_scenario(report.nodeid):
            self._probes += 1
            self._skipped += report.skipped and not hasattr(report, "wasxfail")

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Fail a run in which nothing ran and nothing else failed."""
        if 0 < self._probes == self._skipped and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print why the run failed although no probe did."""
        if 0 < self._probes == self._skipped:
            lacking = f"--lab-required: this machine could run none of {self._probes} probes"
            terminalreporter.write_line(lacking, red=True)


class Annotations:
    """The hooks."""

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
        file, title, text = printable(file, keep=""), printable(title, keep=""), printable(text)
        where = f"file={file.translate(_IN_PROPERTIES)},line={line},title={title.translate(_IN_PROPERTIES)}"
        self._lines.append(f"::error {where}::{text.translate(_IN_MESSAGES)}")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the annotations, each at the start of a line, where GitHub looks for them."""
        terminalreporter.ensure_newline()
        for line in self._lines:
            terminalreporter.write_line(line)
        if self._more:
            terminalreporter.write_line(f"::notice::{self._more} more probes failed; the log has them all")
