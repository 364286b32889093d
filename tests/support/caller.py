"""A user at a shell, for tests of the command line."""

import functools
import shlex
from pathlib import Path

import pytest
from fake_lab import FakeSession
from scenario_text import scenario_text

from proxylab.cli import main

__all__ = ["Caller"]


class Caller:
    """A user at a shell, in a folder of their own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.journal = folder / "journal"
        self._capsys = capsys

    def scenario(self, file: str, *probes: str, name: str = "fine") -> None:
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(scenario_text(*probes, name=name))

    def type(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        with pytest.raises(SystemExit) as ended:
            main(arguments, make_session=functools.partial(FakeSession, self.journal))
        output, errors = self._capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return int(ended.value.code), output, errors

    def complete(self, words: str) -> list[str]:
        """The completions of bash for the last word of a line."""
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            patch.setenv("_PROXYLAB_COMPLETE", "bash_complete")
            patch.setenv("COMP_WORDS", words)
            patch.setenv("COMP_CWORD", str(len(shlex.split(words)) - 1))
            code, output, errors = self.type()
        assert code == 0, errors
        return [line.partition(",")[2] for line in output.splitlines()]

    def events(self) -> list[str]:
        return self.journal.read_text().splitlines() if self.journal.exists() else []
