"""``--lab-report FILE``: the page of a run, whoever of pytest's processes ran its probes.

Owns: what of an item goes into the page, the way of that to the process that writes it, and when it is written.
Must not: know what the page looks like, or import a run's own rooms before an item runs.

Under xdist every worker has the hook that tells of its items, and the controller those that gather and write. What goes
from one to the other is text in a field of the item's report, as xdist carries it.
"""

from typing import TYPE_CHECKING, Any, Final

import pytest

from lab.pytest_plugin.items import ProbeItem
from lab.pytest_plugin.options import report, seed
from lab.pytest_plugin.showing import heading_in_file, taken

if TYPE_CHECKING:
    from lab.report.html import Entry

__all__ = ["Gathering", "Telling"]

_TURN: Final = pytest.StashKey[int]()
_FIELD: Final = "lab_entries"
_PHASES: Final = ("setup", "call")


class Telling:
    """What a process that runs items puts into their reports."""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note the order of the items, which is the page's: from several workers their reports come as they please."""
        for turn, item in enumerate(session.items):
            item.stash[_TURN] = turn

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[Any]) -> Any:
        """Give the report of an item what was judged in it, or what kept it from that."""
        made: pytest.TestReport = yield
        if call.when not in _PHASES:
            return made
        entries = taken(item)
        if not entries and isinstance(item, ProbeItem) and call.when == "setup" and not made.passed:
            entries = [_unjudged(item, made)]
        if entries:
            from lab.codec import dumps  # noqa: PLC0415 - a run's own rooms
            from lab.report.html import Entry  # noqa: PLC0415

            text = dumps(tuple(entries), tuple[Entry, ...]).decode()
            setattr(made, _FIELD, [item.stash.get(_TURN, 0), text])
        return made


def _unjudged(item: ProbeItem, made: pytest.TestReport) -> "Entry":
    """What there is to say of a probe without a verdict: what the machine lacks, or an error, which may be foreseen."""
    from lab.report.html import message  # noqa: PLC0415 - a run's own rooms
    from lab.verdict.model import Judgement  # noqa: PLC0415

    heading = heading_in_file(item.scenario, item.run.engine)
    if hasattr(made, "wasxfail"):
        words = made.wasxfail.removeprefix("reason: ")
        return message(heading, item.judged.name, Judgement.PASS, words, made.duration)
    words = made.longrepr[2].removeprefix("Skipped: ") if isinstance(made.longrepr, tuple) else made.longreprtext
    judgement = Judgement.SKIP if made.skipped else Judgement.FAIL
    return message(heading, item.judged.name, judgement, words, made.duration)


class Gathering:
    """What the process does that hears of all items, and writes the page."""

    def __init__(self, config: pytest.Config) -> None:
        from lab.pages import Begun  # noqa: PLC0415 - for who wants a page

        self._begun: Final = Begun.now(seed(config))
        self._found: Final[dict[str, dict[str, tuple[int, str]]]] = {}
        self._said = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take what is in a report. Of an item that ran again, the last run counts."""
        if report.when == "setup":
            self._found.pop(report.nodeid, None)
        told = getattr(report, _FIELD, None)
        if told is not None:
            self._found.setdefault(report.nodeid, {})[str(report.when)] = told[0], told[1]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the page."""
        from lab.codec import loads  # noqa: PLC0415 - a run's own rooms
        from lab.pages import write_page  # noqa: PLC0415
        from lab.report.html import Entry  # noqa: PLC0415

        file = report(session.config)
        if file is None:
            return
        told = sorted(turn_and_text for phases in self._found.values() for turn_and_text in phases.values())
        entries = [each for _, text in told for each in loads(text.encode(), tuple[Entry, ...])]
        self._said = write_page(file, entries, self._begun) or f"report: {file}"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say where it is."""
        terminalreporter.write_line(self._said)
