"""A user's project with scenarios in it, for tests of the pytest plugin."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from scenario_text import scenario_text

__all__ = ["CONFTEST", "Project"]

CONFTEST = """
from contextlib import ExitStack
from pathlib import Path

import pytest
from fake_lab import FakeSession
from kube_proxies import identity
from proxylab.engines.protocol import EngineChoice, Upstream

@pytest.fixture(scope="session")
def lab_sessions():
    with ExitStack() as stack:
        sessions = {{}}

        def on(engine):
            if engine not in sessions:
                upstream = Upstream("/bin/kube-proxy", identity("v1.37.2")) if engine.startswith("kube-proxy") else None
                choice = EngineChoice(engine, upstream=upstream)
                sessions[engine] = stack.enter_context(FakeSession(Path({journal!r}), choice))
            return sessions[engine]

        yield on
"""


@dataclass
class Project:
    """A user's project with scenarios in it."""

    pytester: pytest.Pytester
    journal: Path

    def scenario(self, file: str, *probes: str, name: str = "fine", metadata: str = "") -> Path:
        path = self.pytester.path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(scenario_text(*probes, name=name, metadata=metadata))
        return path

    def run(self, *arguments: str) -> pytest.RunResult:
        """Run pytest in the project, in the order of its files unless another order is asked for."""
        orderly = () if "randomly" in arguments else ("-p", "no:randomly")
        return self.pytester.runpytest(*orderly, *arguments)

    def events(self) -> list[str]:
        """What the session was asked, in order."""
        return self.journal.read_text().splitlines() if self.journal.exists() else []
