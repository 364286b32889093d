"""A project of somebody else's with scenarios in it, for tests of the pytest plugin."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from scenario_text import scenario_text

__all__ = ["CONFTEST", "Project"]

CONFTEST = """
from pathlib import Path

import pytest
from fake_lab import FakeSession
from lab.engines.protocol import EngineChoice

@pytest.fixture(scope="session")
def lab_session(pytestconfig):
    with FakeSession(Path({journal!r}), EngineChoice(pytestconfig.getoption("lab_engine"))) as session:
        yield session
"""


@dataclass
class Project:
    """Somebody's project with scenarios in it."""

    pytester: pytest.Pytester
    journal: Path

    def scenario(self, file: str, *probes: str, name: str = "fine") -> Path:
        path = self.pytester.path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(scenario_text(*probes, name=name))
        return path

    def run(self, *arguments: str) -> pytest.RunResult:
        return self.pytester.runpytest(*arguments)

    def events(self) -> list[str]:
        """What the session was asked, in order."""
        return self.journal.read_text().splitlines() if self.journal.exists() else []
