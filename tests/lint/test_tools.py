"""The linters are tests too, so that one summary line speaks for the whole project."""

import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(sysconfig.get_path("scripts"))


@pytest.mark.timeout(300)  # the types of a fresh clone, with no cache yet
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["ruff", "check", "--no-cache", "--quiet", "."], id="style"),
        pytest.param(["ruff", "format", "--check", "--diff", "--quiet", "."], id="format"),
        pytest.param(["mypy", "--no-error-summary"], id="types"),
        pytest.param(["lint-imports", "--no-logo", "--no-cache"], id="arrows"),
    ],
)
def test_nothing_to_mend(command: list[str]) -> None:
    tool, *arguments = command
    done = subprocess.run([SCRIPTS / tool, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(command)}\n{done.stdout}{done.stderr}", pytrace=False)
