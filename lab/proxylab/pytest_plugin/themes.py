"""The summary of a large run: a line for each folder of scenarios.

The lines come from the reports that pytest gathers for its own summary; under xdist the controller has all of them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pytest

from proxylab.pytest_plugin.items import is_of_a_scenario

__all__ = ["Themes", "theme_lines"]

_OUTCOMES: Final = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")
_ALWAYS: Final = ("passed", "failed", "skipped")

Stats = Mapping[str, Sequence[Any]]
"""Reports by category, as pytest's terminal reporter keeps them."""


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
