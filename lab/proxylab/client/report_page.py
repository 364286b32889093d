"""Writes a run's HTML page to disk. ``proxylab.report.html`` makes its content."""

import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

import proxylab
from proxylab.client.output_files import write_whole
from proxylab.report.html import PageEntry, page


class RunStart(Struct, frozen=True):
    """When a run began, with which seed, and which shard it is."""

    at: datetime
    seed: int = 0
    shard: str = ""

    @classmethod
    def now(cls, seed: int = 0, shard: str = "") -> "RunStart":
        """A run that begins now."""
        return cls(datetime.now(UTC), seed, shard)

    @property
    def seconds(self) -> float:
        """The time since then."""
        return (datetime.now(UTC) - self.at).total_seconds()


def write_page(file: Path, entries: Sequence[PageEntry], begun: RunStart) -> None:
    """Write the page of a run that is over. Raises ``OutputError``."""
    about = {
        "begun": f"{begun.at:%Y-%m-%d %H:%M} UTC",
        "took": f"{begun.seconds:,.1f} s",
        "kernel": f"{platform.release()} {platform.machine()}",
        "proxylab": proxylab.__version__,
    }
    if begun.seed:
        about["seed"] = str(begun.seed)
    if begun.shard:
        about["shard"] = begun.shard
    write_whole(file, page(entries, about, f"proxylab, {about['begun']}"))
