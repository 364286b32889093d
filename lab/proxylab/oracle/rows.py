"""The rows from which answers follow: the table ``rows.yaml``, and the rows that hold for one mode and version.

A row states one fact about Services in one sentence. It follows from a promise of ``promises.yaml``, or from a heading
of a document, or else it was observed and says on what. Rows of which one holds in each mode and version have the same
subject, the first part of their ids, and say in one word what they mean (``then``).
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from proxylab.cluster.configuration import Mode
from proxylab.encoding import Record
from proxylab.scenario.promises import promises, sources
from proxylab.scenario.versions import Version, VersionRange, read_range

_TABLE: Final = Path(__file__).with_name("rows.yaml")


class OracleRow(Record, frozen=True, kw_only=True):
    """One fact about Services.

    Attributes:
        id: its subject, and after a slash what tells it from other rows of the subject.
        text: the fact in one sentence.
        promises: the promises that the row states, by their ids.
        source: the URL of the heading that states it; empty for a row that was only observed.
        observed: on what it was observed, where no document states it.
        then: what a row of several with one subject decides, in one word.
        modes: of the proxy in which it holds; empty for all.
        versions: of the proxy in which it holds; ``None`` for all.
    """

    id: str
    text: str
    promises: tuple[str, ...] = ()
    source: str = ""
    observed: str = ""
    then: str = ""
    modes: tuple[Mode, ...] = ()
    versions: VersionRange | None = None

    @property
    def subject(self) -> str:
        """The part of its id that rows share of which one holds."""
        return self.id.partition("/")[0]

    @property
    def because(self) -> str:
        """The document that states it, or else what it was observed on."""
        return self.source or f"observed on {self.observed}"

    def holds(self, mode: Mode, version: Version) -> bool:
        """Whether it holds for a proxy of that mode and version."""
        return (not self.modes or mode in self.modes) and (self.versions is None or version in self.versions)


@cache
def rows() -> Mapping[str, OracleRow]:
    """All rows by their ids, in the order of the file."""
    import yaml  # noqa: PLC0415  # only who asks the oracle pays for it

    written = yaml.load(_TABLE.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    return {name: _row(name, row) for name, row in written.items()}


def _row(name: str, written: Mapping[str, Any]) -> OracleRow:
    named = written.get("promise", ())
    stated = (named,) if isinstance(named, str) else tuple(named)
    page, mark, heading = written.get("source", "").partition("#")
    source = sources()[page] + mark + heading if page else next((promises()[each].source for each in stated), "")
    modes = written.get("mode", ())
    return OracleRow(
        id=name,
        text=written["text"],
        promises=stated,
        source=source,
        observed=written.get("observed", ""),
        then=written.get("then", ""),
        modes=tuple(map(Mode, (modes,) if isinstance(modes, str) else modes)),
        versions=read_range(str(written["version"])) if "version" in written else None,
    )


@cache
def row_that_holds(subject: str, mode: Mode, version: Version) -> OracleRow | None:
    """The row of a subject that holds for a proxy of that mode and version; ``None`` if no row says anything."""
    return next((row for row in rows().values() if row.subject == subject and row.holds(mode, version)), None)
