"""``--lab-required``: fail a run that skipped every probe. The results of single probes do not change."""

import pytest

from proxylab.pytest_plugin.items import is_of_a_scenario

__all__ = ["Required"]


class Required:
    """The hooks; under xdist only the controller has them, since it receives all reports."""

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
