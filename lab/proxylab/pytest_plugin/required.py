"""``--lab-required``: fail a run that skipped every probe. The results of single probes do not change."""

from dataclasses import dataclass
from typing import Final

import pytest

from proxylab.pytest_plugin.items import is_of_a_scenario

__all__ = ["Required", "Tally"]


@dataclass(slots=True)
class Tally:
    """How many probes pytest set up, and how many of them were skipped."""

    probes: int = 0
    skipped: int = 0

    @property
    def nothing_ran(self) -> bool:
        """Whether there were probes, and every one of them was skipped."""
        return 0 < self.probes == self.skipped


class Required:
    """The hooks; under xdist only the controller has them, since it receives all reports."""

    def __init__(self) -> None:
        self._tally: Final = Tally()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a probe after its setup."""
        if report.when == "setup" and is_of_a_scenario(report.nodeid):
            self._tally.probes += 1
            self._tally.skipped += report.skipped and not hasattr(report, "wasxfail")

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Fail a run in which nothing ran and nothing else failed."""
        if self._tally.nothing_ran and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print why the run failed although no probe did."""
        if self._tally.nothing_ran:
            count = self._tally.probes
            terminalreporter.write_line(f"--lab-required: this machine could run none of {count} probes", red=True)
