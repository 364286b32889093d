"""What kernel tests of the desk share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from desk import Desk


@pytest.fixture
def desk(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    found = Desk(tmp_path, capfd)
    yield found
    found.type("down", "--all")
    assert list(found.doors.folder.iterdir()) == [], "something is left where doors are"
