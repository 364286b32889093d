"""Which tests reach which lines of the package; and the plugin of pytest that writes it down when a run ends.

``REACHED_LINES`` names the file. It has all tests, how long each took, and by the path of each module in the package
the numbers of those that reach a line. ``REACHED_IN`` names the modules, separated by commas; by default it is all.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import coverage
import pytest

__all__ = ["Reached", "pytest_configure"]

_PACKAGE = Path(__file__).parents[2] / "lab" / "proxylab"


class Reached:
    """The tests that reach each line, as the plugin wrote it."""

    def __init__(self, file: Path) -> None:
        written = json.loads(file.read_bytes())
        self._tests: list[str] = written["tests"]
        self._lines: dict[str, dict[str, list[int]]] = written["lines"]
        self._seconds: dict[str, float] = written["seconds"]

    def by(self, module: str, lines: Iterable[int]) -> list[str]:
        """The tests that reach one of these lines: those of the module's own name first, then the fast ones.

        No test reaches a line that is read when the module is imported: then it is all tests that reach the module.
        """
        there = self._lines.get(module, {})
        numbers = {number for line in lines for number in there.get(str(line), ())}
        numbers = numbers or {number for tests in there.values() for number in tests}
        own = f"test_{Path(module).stem}.py"
        tests = [self._tests[number] for number in numbers]
        return sorted(tests, key=lambda test: (own not in test, self._seconds[test], test))


class _Recorder:
    def __init__(self, file: Path) -> None:
        self._file = file
        modules = os.environ.get("REACHED_IN", "*").split(",")
        include = [f"{_PACKAGE}/{each}" for each in modules]
        self._recorded = coverage.Coverage(data_file=None, include=include, config_file=False)
        self._recorded.start()
        self._seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._recorded.switch_context(item.nodeid)
        began = time.monotonic()
        result = yield
        self._seconds[item.nodeid] = time.monotonic() - began
        self._recorded.switch_context("")
        return result

    def pytest_sessionfinish(self) -> None:
        self._recorded.stop()
        data = self._recorded.get_data()
        all_tests: dict[str, int] = {}
        lines = {
            str(Path(module).relative_to(_PACKAGE)): {
                line: [all_tests.setdefault(test, len(all_tests)) for test in filter(None, tests)]
                for line, tests in data.contexts_by_lineno(module).items()
            }
            for module in data.measured_files()
        }
        self._file.write_text(
            json.dumps({"tests": list(all_tests), "lines": lines, "seconds": self._seconds}), encoding="utf-8"
        )


def pytest_configure(config: pytest.Config) -> None:
    if file := os.environ.get("REACHED_LINES"):
        config.pluginmanager.register(_Recorder(Path(file)))
