"""What a desk offers when an item fails: its lab stays, or waits, or is entered.

Owns: the hook that comes between a failure and the item's teardown, and what it does there.
Must not: change what became of the item.
"""

import sys
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from proxylab.errors import LabError
from proxylab.pytest_plugin.interactive_options import is_kept, is_paused, shell_netns_name
from proxylab.pytest_plugin.items import ProbeItem
from proxylab.pytest_plugin.stash import OPEN
from proxylab.scenario.model import Probe

if TYPE_CHECKING:
    from proxylab.client.open_lab import OpenLab

__all__ = ["OnFailure"]


class OnFailure:
    """The hooks; where somebody wants to look at what failed."""

    def __init__(self, config: pytest.Config) -> None:
        from proxylab.client.kept_labs import KeptLabs  # noqa: PLC0415 - a run's own room

        self._config = config
        self.kept_labs = KeptLabs()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """After a failure, while the item's lab still stands."""
        report = yield
        lab = item.stash.get(OPEN, None)
        if report.failed and report.when in {"setup", "call"} and lab is not None and lab.stands:
            try:
                self._look(item, lab, report)
            except LabError as error:
                report.sections.append(("the lab", f"it cannot be looked at: {error}"))
        return report

    def _look(self, item: pytest.Item, lab: "OpenLab", report: pytest.TestReport) -> None:
        judged = item.judged if isinstance(item, ProbeItem) else None
        probe = judged if isinstance(judged, Probe) else None
        netns_name = shell_netns_name(self._config)
        if netns_name:
            self._enter(lab, netns_name, report)
        if is_paused(self._config):
            self._pause(self.kept_labs.hold(lab, probe), report)
        if is_kept(self._config):
            report.sections.append(("the lab", "\n".join(self.kept_labs.keep(lab, probe))))
        else:
            lab.connection.close()  # nobody knows what was done in it

    def _enter(self, lab: "OpenLab", netns_name: str, report: pytest.TestReport) -> None:
        from proxylab.client.attach import run_shell  # noqa: PLC0415

        self._say(["", f"{report.nodeid} failed; a shell in {netns_name}, until it ends", ""])
        with self._terminal():
            run_shell(lab.connection, netns_name)

    def _pause(self, words: list[str], report: pytest.TestReport) -> None:
        self._say(["", f"{report.nodeid} failed", *words, "", "Enter goes on, and ends the lab"])
        with self._terminal():
            sys.stdin.readline()

    def _say(self, lines: list[str]) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.ensure_newline()
            for connection in lines:
                reporter.write_line(connection)
            reporter.flush()

    def _terminal(self) -> "_Terminal":
        return _Terminal(self._config)


class _Terminal:
    """The user's own standard streams for a while; pytest keeps the input to itself between two phases, too."""

    def __init__(self, config: pytest.Config) -> None:
        self._capture = config.pluginmanager.get_plugin("capturemanager")

    def __enter__(self) -> None:
        if self._capture is not None:
            self._capture.suspend(in_=True)

    def __exit__(self, *_: object) -> None:
        if self._capture is not None:
            self._capture.resume()
            self._capture.suspend()  # as it is between two phases: what the reporter says next must be seen
