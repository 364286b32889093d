"""What happens after a failed item, before its teardown: keep its lab, pause, or open a shell in it."""

import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest

from proxylab.client.exec_and_shell import run_shell
from proxylab.client.kept_labs import KeptLabs
from proxylab.client.open_lab import OpenLab
from proxylab.errors import LabError
from proxylab.pytest_plugin.items import OPEN, ProbeItem
from proxylab.pytest_plugin.options import flag, is_paused, shell_netns_name
from proxylab.scenario.probes import Probe


class OnFailure:
    """The hooks, registered if an interactive option is given."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.kept_labs = KeptLabs()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Act after a failure, while the item's lab still runs."""
        report = yield
        lab = item.stash.get(OPEN, None)
        if report.failed and report.when in {"setup", "call"} and lab is not None and lab.is_open:
            try:
                self._look(item, lab, report)
            except LabError as error:
                report.sections.append(("the lab", f"the lab does not respond: {error}"))
        return report

    def _look(self, item: pytest.Item, lab: OpenLab, report: pytest.TestReport) -> None:
        judged = item.judged if isinstance(item, ProbeItem) else None
        probe = judged if isinstance(judged, Probe) else None
        netns_name = shell_netns_name(self._config)
        if netns_name:
            self._enter(lab, netns_name, report)
        if is_paused(self._config):
            self._pause(self.kept_labs.hold(lab, probe), report)
        if flag(self._config, "keep"):
            report.sections.append(("the lab", "\n".join(self.kept_labs.keep(lab, probe))))
        else:
            lab.connection.close()  # the user may have changed anything in it

    def _enter(self, lab: OpenLab, netns_name: str, report: pytest.TestReport) -> None:
        self._say(["", f"{report.nodeid} failed; opening a shell in {netns_name}; exit it to go on", ""])
        with self._terminal():
            run_shell(lab.connection, netns_name)

    def _pause(self, words: list[str], report: pytest.TestReport) -> None:
        self._say(["", f"{report.nodeid} failed", *words, "", "press Enter to go on; this stops the lab"])
        with self._terminal():
            sys.stdin.readline()

    def _say(self, lines: list[str]) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.ensure_newline()
            for line in lines:
                reporter.write_line(line)
            reporter.flush()

    @contextmanager
    def _terminal(self) -> Iterator[None]:
        """The user's own standard streams: pytest captures the input even between two phases."""
        capture = self._config.pluginmanager.get_plugin("capturemanager")
        if capture is None:
            yield
            return
        capture.suspend(in_=True)
        try:
            yield
        finally:
            capture.resume()
            capture.suspend()  # the state between two phases, in which the reporter's next output is visible
