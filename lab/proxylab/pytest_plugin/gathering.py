"""``--lab-report FILE``: the page of a run, whoever of pytest's processes ran its probes.

Owns: what of an item goes into the page, the way of that to the process that writes it, and when it is written.
Must not: know what the page looks like, or import a run's own rooms before an item runs.

Under xdist every worker has the hook that tells of its items, and the controller those that gather and write. What goes
from one to the other is text in a field of the item's report, as xdist carries it.
"""

from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import pytest

from proxylab.pytest_plugin.items import ProbeItem
from proxylab.pytest_plugin.options import report, seed
from proxylab.pytest_plugin.showing import NO_ENGINE, heading_in_file, heading_of_test, is_told, taken

if TYPE_CHECKING:
    from proxylab.report.html import Entry, Heading

__all__ = ["Gathering", "Telling"]

_TURN: Final = pytest.StashKey[int]()
_FIELD: Final = "lab_entries"
_LAST: Final = 1 << 30
_MOST_CHARACTERS: Final = 1 << 16
_NAMES: Final = {"setup": "error at setup", "call": "the test failed", "teardown": "error at teardown"}
"""What an item that failed otherwise than by a verdict is called, by the phase."""


class Telling:
    """What a process that runs items puts into their reports."""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note the order of the items, which is the page's: from several workers their reports come as they please."""
        for turn, item in enumerate(session.items):
            item.stash[_TURN] = turn

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[Any]) -> Any:
        """Give the report of an item what was judged in it, what kept it from that, and how else it failed."""
        made: pytest.TestReport = yield
        entries = taken(item)
        if not entries and isinstance(item, ProbeItem) and call.when == "setup" and not made.passed:
            entries = [_unjudged(item, made)]
        elif made.failed and not is_told(item, made.longreprtext):
            heading = heading_of_test(item)
            if isinstance(item, ProbeItem):
                heading = heading_in_file(item.scenario, item.run.engine)
            entries = [*entries, _failure(heading, _NAMES[call.when], made)]
        if entries or made.failed:
            setattr(made, _FIELD, [item.stash.get(_TURN, 0), _text(entries)])
        return made


def _text(entries: Sequence["Entry"]) -> str:
    from proxylab.codec import dumps  # noqa: PLC0415 - a run's own rooms
    from proxylab.report.html import Entry  # noqa: PLC0415

    return dumps(tuple(entries), tuple[Entry, ...]).decode()


def _failure(heading: "Heading", name: str, made: pytest.TestReport | pytest.CollectReport) -> "Entry":
    """A failure without a verdict, such as an assertion or a broken fixture: its message, and all that pytest says."""
    from proxylab.report.html import message  # noqa: PLC0415 - a run's own rooms
    from proxylab.verdict.model import Judgement  # noqa: PLC0415

    whole = made.longreprtext[-_MOST_CHARACTERS:]
    entry = message(heading, name, Judgement.FAIL, whole, getattr(made, "duration", 0.0))
    crash = getattr(made.longrepr, "reprcrash", None)
    return replace(entry, summary=crash.message.partition("\n")[0]) if crash is not None else entry


def _unjudged(item: ProbeItem, made: pytest.TestReport) -> "Entry":
    """What there is to say of a probe without a verdict: what the machine lacks, or an error, which may be foreseen."""
    from proxylab.report.html import message  # noqa: PLC0415 - a run's own rooms
    from proxylab.verdict.model import Judgement  # noqa: PLC0415

    heading = heading_in_file(item.scenario, item.run.engine)
    if hasattr(made, "wasxfail"):
        words = made.wasxfail.removeprefix("reason: ")
        return message(heading, item.judged.name, Judgement.PASS, words, made.duration)
    words = made.longrepr[2].removeprefix("Skipped: ") if isinstance(made.longrepr, tuple) else made.longreprtext
    judgement = Judgement.SKIP if made.skipped else Judgement.FAIL
    return message(heading, item.judged.name, judgement, words, made.duration)


def _heading_of(report: pytest.TestReport | pytest.CollectReport) -> "Heading":
    from proxylab.report.html import Heading  # noqa: PLC0415 - a run's own room

    return Heading(file=report.nodeid.partition("::")[0], engine=NO_ENGINE)


class Gathering:
    """What the process does that hears of all items, and writes the page."""

    def __init__(self, config: pytest.Config) -> None:
        from proxylab.client.pages import Begun  # noqa: PLC0415 - for who wants a page

        self._begun: Final = Begun.now(seed(config))
        self._found: Final[dict[str, dict[str, tuple[int, str]]]] = {}
        self._said = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take what is in a report. Of an item that ran again, the last run counts."""
        if report.when == "setup":
            self._found.pop(report.nodeid, None)
        told = getattr(report, _FIELD, None)
        if told is None and report.failed:  # the worker that ran it has crashed, and xdist tells of that
            told = [_LAST, _text([_failure(_heading_of(report), report.nodeid, report)])]
        if told is not None:
            self._found.setdefault(report.nodeid, {})[str(report.when)] = told[0], told[1]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Take what could not be collected: of its items no report tells."""
        if report.failed:
            text = _text([_failure(_heading_of(report), "error at collection", report)])
            self._found[report.nodeid] = {"collect": (-1, text)}

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the page."""
        from proxylab.client.pages import write_page  # noqa: PLC0415
        from proxylab.codec import loads  # noqa: PLC0415 - a run's own rooms
        from proxylab.report.html import Entry  # noqa: PLC0415

        file = report(session.config)
        if file is None:
            return
        told = sorted((each for phases in self._found.values() for each in phases.values()), key=itemgetter(0))
        entries = [each for _, text in told for each in loads(text.encode(), tuple[Entry, ...])]
        self._said = write_page(file, entries, self._begun) or f"report: {file}"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say where it is."""
        terminalreporter.write_line(self._said)
