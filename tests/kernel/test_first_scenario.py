"""The scenario that ``proxylab init`` writes passes on a machine that can run it at all."""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from sandboxed import checkout_for, python_of
from users import EITHER

from proxylab.errors import ExitCode


# All scenarios run as root in every run of the tests.
@EITHER
def test_the_first_scenario_passes_check_and_run(ordinary: bool) -> None:
    # Not tmp_path, whose parent only its owner may enter.
    with checkout_for(ordinary=ordinary) as (root, become), tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o777)

        def type_(*argv: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [*become, python_of(root), "-m", "proxylab", *argv],
                capture_output=True,
                text=True,
                timeout=100,
                check=False,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(root / "lab"), "PYTHONDONTWRITEBYTECODE": "1"},
            )

        file = f"{folder}/first.lab.yaml"
        assert type_("init", file).returncode == ExitCode.OK
        assert type_("check", file).returncode == ExitCode.OK
        done = type_("run", file)
    if done.returncode == ExitCode.CAPABILITY:
        pytest.skip(done.stderr.strip())
    assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    assert "3 passed" in done.stdout.splitlines()[-1]
