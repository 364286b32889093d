"""A copy of the package with one piece of its text replaced, and the unit tests that run against it.

The copy consists of links to the real files, but for the changed one, and stands first on the path of a fresh
interpreter. So no test is patched, and nothing that a test imports comes from the unchanged module.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import proxylab

__all__ = ["LAB", "Mutant", "survives"]

_ROOT = Path(__file__).parents[2]
LAB = Path(proxylab.__file__).parent
_SECONDS = 120


@dataclass(frozen=True)
class Mutant:
    """``old`` becomes ``new`` in a module of the package; ``old`` stands there once."""

    module: str
    old: str
    new: str

    def copy_to(self, folder: Path) -> None:
        """Make the package in ``folder`` with the replacement.

        Raises:
            ValueError: ``old`` does not stand in the module exactly once.
        """
        text = (LAB / self.module).read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise ValueError(f"{self.module}: {self.old!r} stands there {text.count(self.old)} times, not once")
        shutil.copytree(LAB, folder / "proxylab", copy_function=os.symlink)
        changed = folder / "proxylab" / self.module
        changed.unlink()
        changed.write_text(text.replace(self.old, self.new), encoding="utf-8")


def survives(mutant: Mutant, tests: tuple[str, ...], folder: Path) -> bool:
    """Whether all of these tests pass on the mutant.

    Raises:
        RuntimeError: pytest neither passed nor failed, such as for a module that does not import; with its output.
    """
    mutant.copy_to(folder / "lab")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        [*command, f"--basetemp={folder / 'tmp'}", *tests],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": str(folder / "lab"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if ran.returncode not in (0, 1):
        raise RuntimeError(f"{mutant}: pytest ends with {ran.returncode}: {ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    return ran.returncode == 0
