"""Fixtures of kernel tests."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from command_line import CommandLine
from orphaned_labs import ended_with_us
from shared_sessions import shared_session

from proxylab.engines.protocol import EngineChoice
from proxylab.scenario.cases import cases
from proxylab.scenario.load import load_scenario
from proxylab.verdict.model import ProbeVerdict


@pytest.fixture(scope="session")
def orphans_ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The standing labs of this worker end with it, even if it is killed."""
    with ended_with_us(tmp_path_factory.getbasetemp()):
        yield


@pytest.fixture
def cli(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, orphans_ended: None
) -> Iterator[CommandLine]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    found = CommandLine(tmp_path, capfd)
    yield found
    found.type("down", "--all")
    assert list(found.control_sockets.folder.iterdir()) == [], "a control socket is left"


@pytest.fixture(scope="module")
def verdict_in() -> Iterator[Callable[[Path], ProbeVerdict]]:
    """The verdict on the one probe of a file, in a lab of its own; one lab process for all files of a module."""
    with shared_session(EngineChoice()) as session:

        def verdict(file: Path) -> ProbeVerdict:
            (scenario,) = cases(load_scenario(file), "iptables")
            with closing(session.open(scenario)) as lab:
                return lab.probe(scenario.probes[0])

        yield verdict
