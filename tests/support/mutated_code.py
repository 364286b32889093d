"""A copy of the package with some of its text replaced, and the unit tests that run against it.

The copy consists of links to the real files, but for the changed ones, and stands first on the path of a fresh
interpreter. So no test is patched, and nothing that a test imports comes from the unchanged module.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import proxylab

__all__ = ["LAB", "Mutant", "run_on_copy", "survives"]

_ROOT = Path(__file__).parents[2]
LAB = Path(proxylab.__file__).parent
_SECONDS = 300
_SECONDS_OF_A_TEST = 60


@dataclass(frozen=True)
class Mutant:
    """``old`` becomes ``new`` in a module of the package; ``old`` stands there once."""

    module: str
    old: str
    new: str

    @property
    def text(self) -> str:
        """The module with the replacement.

        Raises:
            ValueError: ``old`` does not stand in the module exactly once.
        """
        text = (LAB / self.module).read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise ValueError(f"{self.module}: {self.old!r} stands there {text.count(self.old)} times, not once")
        return text.replace(self.old, self.new)


def survives(mutant: Mutant, tests: tuple[str, ...], folder: Path) -> bool:
    """Whether all of these tests pass on the mutant.

    Raises:
        RuntimeError: pytest neither passed nor failed, such as for a module that does not import; with its output.
    """
    status, output = run_on_copy({mutant.module: mutant.text}, tests, folder)
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"{mutant}: pytest ends with {status}: {output}")
    return status == pytest.ExitCode.OK


def run_on_copy(texts: Mapping[str, str], tests: Sequence[str], folder: Path) -> tuple[int, str]:
    """Run tests, up to the first that fails, on a copy in ``folder`` whose modules have these texts.

    Returns:
        The status of pytest, and the end of its output.
    """
    shutil.copytree(LAB, folder / "lab" / "proxylab", copy_function=os.symlink)
    for module, text in texts.items():
        changed = folder / "lab" / "proxylab" / module
        changed.unlink()
        changed.write_text(text, encoding="utf-8")
    # Without plugins found by themselves, proxylab's own among them, pytest neither imports nor rewrites the package.
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider"]
    command += ["-p", "pytest_timeout", "-o", f"timeout={_SECONDS_OF_A_TEST}"]
    ran = subprocess.run(
        [*command, f"--basetemp={folder / 'tmp'}", *tests],
        cwd=_ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(folder / "lab"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    return ran.returncode, f"{ran.stdout[-2000:]}{ran.stderr[-2000:]}"
