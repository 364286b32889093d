"""A wheel of this checkout and an environment that has it (the fixtures of tests/packaging make both)."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from proxylab.errors import ExitCode

__all__ = ["Distribution", "Environment"]

_OF_THIS_RUN = re.compile(r"PYTHON|PYTEST|LAB_|VIRTUAL_ENV|PROXYLAB")


@dataclass(frozen=True)
class Distribution:
    """What is published of this checkout."""

    sdist: Path
    wheel: Path


@dataclass(frozen=True)
class Environment:
    """A virtual environment with the wheel in it."""

    folder: Path

    @property
    def packages(self) -> Path:
        (found,) = self.folder.glob("lib/python3*/site-packages")
        return found

    def type(self, folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Type a command in a folder, without what this run of pytest has set."""
        scripts = self.folder / "bin"
        inherited = {name: value for name, value in os.environ.items() if not _OF_THIS_RUN.match(name)}
        return subprocess.run(
            [scripts / words[0], *words[1:]],
            cwd=folder,
            env={**inherited, "PATH": f"{scripts}:{os.environ['PATH']}", "COLUMNS": "200", **environment},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    def lab(self, folder: Path, *words: str, **environment: str) -> str:
        """What a command printed that had to succeed; where the machine can make no lab, the test is skipped."""
        done = self.type(folder, *words, **environment)
        said = done.stdout + done.stderr
        if done.returncode == ExitCode.CAPABILITY or " skipped" in (said.splitlines() or [""])[-1]:
            pytest.skip(said)
        assert done.returncode == ExitCode.OK, said
        return done.stdout
