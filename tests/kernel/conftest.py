"""Fixtures of kernel tests."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from desk import RequestHandler
from mutated_labs import MutatedLabs


@pytest.fixture
def handler(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[RequestHandler]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    found = RequestHandler(tmp_path, capfd)
    yield found
    found.type("down", "--all")
    assert list(found.control_sockets.folder.iterdir()) == [], "something is left where doors are"


@pytest.fixture(scope="session")
def mutated_labs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MutatedLabs]:
    """Scenarios on a mutated engine; one lab process for all mutations of this worker."""
    with closing(MutatedLabs(tmp_path_factory.mktemp("mutated"))) as labs:
        yield labs
