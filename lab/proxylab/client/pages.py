"""A run's page on disk.

Owns: writing it, and what its head tells of the run.
Must not: know what is on it (``proxylab.report.html`` does).
"""

import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import proxylab
from proxylab.frozen import dataclass
from proxylab.report.html import Entry, page

__all__ = ["Begun", "write_page"]


@dataclass(frozen=True, slots=True)
class Begun:
    """A run that has begun: when, and with which seed."""

    at: datetime
    seed: int = 0

    @classmethod
    def now(cls, seed: int = 0) -> "Begun":
        """A run that begins."""
        return cls(datetime.now(UTC), seed)


def write_page(file: Path, entries: Sequence[Entry], begun: Begun) -> str:
    """Write the page of a run that is over.

    Returns:
        Why it could not be written; nothing if it was. A disk that is full must not end a run.
    """
    took = (datetime.now(UTC) - begun.at).total_seconds()
    about = {
        "begun": f"{begun.at:%Y-%m-%d %H:%M} UTC",
        "took": f"{took:,.1f} s",
        "kernel": f"{platform.release()} {platform.machine()}",
        "proxylab": proxylab.__version__,
    }
    if begun.seed:
        about["seed"] = str(begun.seed)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page(entries, about, f"proxylab, {about['begun']}"), encoding="utf-8")
    except OSError as error:
        return f"the report could not be written: {error}"
    return ""
