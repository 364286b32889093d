"""Fixtures of kernel tests."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from command_line import CommandLine
from mutated_labs import MutatedLabs


@pytest.fixture
def cli(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLine]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    found = CommandLine(tmp_path, capfd)
    yield found
    found.type("down", "--all")
    assert list(found.control_sockets.folder.iterdir()) == [], "a control socket is left"


@pytest.fixture(scope="session")
def mutated_labs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MutatedLabs]:
    """Scenarios on a mutated engine; one lab process for all mutations of this worker."""
    with closing(MutatedLabs(tmp_path_factory.mktemp("mutated"))) as labs:
        yield labs
