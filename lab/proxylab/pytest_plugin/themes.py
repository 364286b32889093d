"""The summary of a large run: a line for each folder of scenarios, and the slowest files.

The lines come from the reports that pytest gathers for its own summary; under xdist the controller has all of them.
"""

import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pytest

from proxylab.pytest_plugin.items import is_of_a_scenario

__all__ = ["Themes", "slowest_lines", "theme_lines"]

_OUTCOMES: Final = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")
_ALWAYS: Final = ("passed", "failed", "skipped")
_MOST_SLOWEST: Final = 10

Stats = Mapping[str, Sequence[Any]]
"""Reports by category, as pytest's terminal reporter keeps them."""


class Themes:
    """The hook that prints the summary, unless pytest is quiet."""

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print a line for each folder of scenarios, if there are several, then the slowest files."""
        if terminalreporter.config.get_verbosity() < 0:
            return
        width = shutil.get_terminal_size().columns
        for title, lines in (
            ("scenarios by folder", theme_lines(terminalreporter.stats)),
            ("slowest scenario files", slowest_lines(terminalreporter.stats, width)),
        ):
            if lines:
                terminalreporter.section(title)
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


def slowest_lines(stats: Stats, width: int) -> list[str]:
    """The ten slowest scenario files, if there are more than ten; the time to build labs counts."""
    from proxylab.text import wrapped  # noqa: PLC0415 - only a run needs it

    seconds: dict[str, float] = defaultdict(float)
    for _, each in _reports(stats):
        if is_of_a_scenario(each.nodeid):
            seconds[each.nodeid.partition("::")[0]] += each.duration
    if len(seconds) <= _MOST_SLOWEST:
        return []
    rows = sorted(seconds.items(), key=lambda each: -each[1])[:_MOST_SLOWEST]
    return [line for file, took in rows for line in wrapped(file, f"{took:8.2f} s  ", width=width)]


def _reports(stats: Stats) -> Iterator[tuple[str, pytest.TestReport]]:
    """Each phase of each item with pytest's category, which is "" for a setup or teardown that passed."""
    for outcome, reports in stats.items():
        yield from ((outcome, each) for each in reports if isinstance(each, pytest.TestReport))


def _folder(report: pytest.TestReport) -> str:
    return report.nodeid.partition("::")[0].rpartition("/")[0] or "."
