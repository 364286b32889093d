"""Bundles of evidence on disk.

Owns: where below a directory a probe's bundle lies, and writing it.
Must not: know what is in it (``lab.report.bundle`` does).
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lab.scenario.model import Scenario
from lab.verdict.model import ProbeVerdict

__all__ = ["folder_of", "keep"]

_LONGEST_NAME: Final = 80


def folder_of(scenario: Scenario, verdict: ProbeVerdict) -> Path:
    """A bundle's place: scenario, then number and name of the probe, in characters that every file system takes."""
    name = re.sub(r"[^a-z0-9]+", "-", verdict.probe.name.lower()).strip("-")
    return Path(scenario.name) / f"{verdict.errand.number + 1:03d}-{name[:_LONGEST_NAME]}"


def keep(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a bundle's files; what stood there before by the same names is replaced."""
    for path, data in files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
