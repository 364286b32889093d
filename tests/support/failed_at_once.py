"""A run says at once which test failed, and why in one line: pytest itself says it at the end, minutes later.

A maintainer who waits for a long run can begin to look meanwhile. The whole report stays where pytest writes it.
"""

from typing import Final

import pytest

__all__ = ["FailedAtOnce"]

_MOST: Final = 200
"""Letters of a line: enough to tell failures apart."""


class FailedAtOnce:
    """The hook, for the process that writes to the terminal; workers of pytest-xdist have no reporter."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if not report.failed or terminal is None:
            return
        why = next((line[1:].strip() for line in report.longreprtext.splitlines() if line.startswith("E ")), "")
        # pytest has written the letter of this test, and does not know itself that the line has one.
        terminal.write_line("\n" + f"failed: {report.nodeid}: {why}"[:_MOST])
