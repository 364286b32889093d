"""Scenarios in a guest, as a user runs them: by ``proxylab run --kernel uml``, several files in one guest."""

import os
import subprocess
import sys
from pathlib import Path

from sandboxed import ROOT

from proxylab.scenario.cases import cases
from proxylab.scenario.load import load_scenario

__all__ = ["files", "lacking_mode_ipvs", "of_mode_ipvs", "run"]


def files(names: str) -> list[Path]:
    return [ROOT / "scenarios" / f"{name}.lab.yaml" for name in names.split()]


def of_mode_ipvs() -> list[Path]:
    """Every scenario that has a case in mode ipvs."""
    every = sorted((ROOT / "scenarios").rglob("*.lab.yaml"))
    return [path for path in every if cases(load_scenario(path), "ipvs")]


def lacking_mode_ipvs(paths: list[Path]) -> list[Path]:
    """Those without a case in mode ipvs."""
    return [path for path in paths if not cases(load_scenario(path), "ipvs")]


def run(engine: str, paths: list[Path], *options: str, seconds: float = 1100, status: int = 0) -> str:
    """What the run prints. By default all must hold; some may be skipped, which the last line counts."""
    command = [sys.executable, "-m", "proxylab", "run", *map(str, paths), "--engine", engine, "--kernel", "uml"]
    done = subprocess.run(
        [*command, "--no-bundles", "--quiet", *options],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "lab")},
    )
    assert done.returncode == status, done.stdout[-5000:] + done.stderr
    return done.stdout
