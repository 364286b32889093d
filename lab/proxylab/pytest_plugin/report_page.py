"""``--lab-report FILE``: the page of a run, also under xdist.

Each process that runs items adds an item's page entries to its report, as text in a field that xdist carries. The
process that receives all reports gathers the entries and writes the page.
"""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final

import pytest
from msgspec.structs import replace

from proxylab.client.report_page import RunStart, write_page
from proxylab.encoding import decode, encode
from proxylab.errors import OutputError
from proxylab.pytest_plugin.items import ProbeItem
from proxylab.pytest_plugin.options import report, seed, shard
from proxylab.pytest_plugin.page_entries import NO_ENGINE, heading_in_file, heading_of_test, is_explained, taken
from proxylab.report.html import Heading, PageEntry, message
from proxylab.verdict.model import Judgement

_TURN: Final = pytest.StashKey[int]()
_FIELD: Final = "lab_entries"
_LAST: Final = 1 << 30
_MOST_CHARACTERS: Final = 1 << 16
_NAMES: Final = {"setup": "error at setup", "call": "the test failed", "teardown": "error at teardown"}
"""The title of an item that failed without a verdict, by phase."""


class Attaching:
    """The hooks of a process that runs items: they add page entries to the items' reports."""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Number the items in the page's order: reports from several workers come in any order."""
        for turn, item in enumerate(session.items):
            item.stash[_TURN] = turn

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[Any]) -> Any:
        """Add an item's verdicts to its report, or the reason for none, and any other failure."""
        made: pytest.TestReport = yield
        entries = taken(item)
        if not entries and isinstance(item, ProbeItem) and call.when == "setup" and not made.passed:
            entries = [_unjudged(item, made)]
        elif made.failed and not is_explained(item, made.longreprtext):
            heading = heading_of_test(item)
            if isinstance(item, ProbeItem):
                heading = heading_in_file(item.run)
            entries = [*entries, _failure(heading, _NAMES[call.when], made)]
        if entries or made.failed:
            setattr(made, _FIELD, [item.stash.get(_TURN, 0), _text(entries)])
        return made


def _text(entries: Sequence["PageEntry"]) -> str:
    return encode(entries).decode()


def _failure(heading: "Heading", name: str, made: pytest.TestReport | pytest.CollectReport) -> "PageEntry":
    """An entry for a failure without a verdict, such as an assertion or a broken fixture, with pytest's output."""
    whole = made.longreprtext[-_MOST_CHARACTERS:]
    entry = message(heading, name, Judgement.FAIL, whole, getattr(made, "duration", 0.0))
    crash = getattr(made.longrepr, "reprcrash", None)
    return replace(entry, summary=crash.message.partition("\n")[0]) if crash is not None else entry


def _unjudged(item: ProbeItem, made: pytest.TestReport) -> "PageEntry":
    """An entry for a probe without a verdict: a missing capability, or an error, which may be expected."""
    heading = heading_in_file(item.run)
    if hasattr(made, "wasxfail"):
        words = made.wasxfail.removeprefix("reason: ")
        return message(heading, item.judged.name, Judgement.PASS, words, made.duration)
    words = made.longrepr[2].removeprefix("Skipped: ") if isinstance(made.longrepr, tuple) else made.longreprtext
    judgement = Judgement.SKIP if made.skipped else Judgement.FAIL
    return message(heading, item.judged.name, judgement, words, made.duration)


def _heading_of(report: pytest.TestReport | pytest.CollectReport) -> "Heading":
    return Heading(file=report.nodeid.partition("::")[0], engine=NO_ENGINE)


class Gathering:
    """The hooks of the process that receives all reports and writes the page."""

    def __init__(self, config: pytest.Config) -> None:
        self._begun: Final = RunStart.now(seed(config), str(shard(config) or ""))
        self._found: Final[dict[str, dict[str, tuple[int, str]]]] = {}
        self._message = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the entries of a report. If an item ran again, the last run counts."""
        if report.when == "setup":
            self._found.pop(report.nodeid, None)
        field = getattr(report, _FIELD, None)
        if field is None and report.failed:  # the item's worker crashed, and xdist made this report
            field = [_LAST, _text([_failure(_heading_of(report), report.nodeid, report)])]
        if field is not None:
            self._found.setdefault(report.nodeid, {})[str(report.when)] = field[0], field[1]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Add an entry for a file that could not be collected: its items have no reports."""
        if report.failed:
            text = _text([_failure(_heading_of(report), "error at collection", report)])
            self._found[report.nodeid] = {"collect": (-1, text)}

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the page."""
        file = report(session.config)
        if file is None:
            return
        found = sorted((each for phases in self._found.values() for each in phases.values()), key=itemgetter(0))
        entries = [each for _, text in found for each in decode(text.encode(), tuple[PageEntry, ...])]
        try:
            write_page(file, entries, self._begun)
        except OutputError as error:
            self._message = str(error)
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
        else:
            self._message = f"report: {file}"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print where the page is."""
        terminalreporter.write_line(self._message)
