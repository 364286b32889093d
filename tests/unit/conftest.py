"""Fixtures of the command line."""

from pathlib import Path

import pytest
from caller import Caller


@pytest.fixture
def caller(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Caller:
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return Caller(tmp_path, capsys)
