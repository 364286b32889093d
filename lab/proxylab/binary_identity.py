"""Which binary ran: what a result says of it, so that two results can be told apart.

``proxylab.binaries`` finds all this out where it obtains a binary. Messages, bundles and reports carry it.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from proxylab.encoding import Record, decode, encode

_DIGITS: Final = 12
"""So many digits of a commit or a digest stand in a line. Documents have all of them."""


class BinaryIdentity(Record, frozen=True, kw_only=True):
    """A binary of a program.

    Attributes:
        program: its name.
        version: as it prints it, such as ``v1.34.2``.
        origin: where it came from, in a few words.
        digest: the SHA-256 of its file, in hexadecimals.
        commit: that its sources were at, in hexadecimals; empty if that is unknown.
        dirty: whether the sources had uncommitted changes; ``None`` if that is unknown.
    """

    program: str = "kube-proxy"
    version: str
    origin: str
    digest: str
    commit: str = ""
    dirty: bool | None = None

    @property
    def state(self) -> str:
        """Whether its sources were changed since the commit: ``dirty`` or ``clean``; empty if that is not known."""
        if self.dirty is None:
            return ""
        return "dirty" if self.dirty else "clean"

    def __str__(self) -> str:
        commit = f"commit {self.commit[:_DIGITS]}" if self.commit else ""
        sources = f"{commit}, {self.state}" if commit and self.state else commit or self.state
        parts = (self.origin, sources, f"SHA-256 {self.digest[:_DIGITS]}")
        return f"{self.program} {self.version}: {'; '.join(filter(None, parts))}"

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "BinaryIdentity":
        """The binary of ``to_document``. Raises ``MisfitError``."""
        known = {"digest" if key == "sha256" else key: each for key, each in document.items() if each is not None}
        return decode(encode(known), cls)

    def to_document(self) -> dict[str, object]:
        """Its part of a JSON document: every key, with ``null`` for what is unknown."""
        return {
            "program": self.program,
            "version": self.version,
            "commit": self.commit or None,
            "dirty": self.dirty,
            "origin": self.origin,
            "sha256": self.digest,
        }


def identity_lines(ran: Iterable[tuple[str, BinaryIdentity | None]]) -> list[str]:
    """A line for each binary that ran, with the names of its engines. An embedded engine has none."""
    found: dict[BinaryIdentity, dict[str, None]] = {}
    for engine, binary in ran:
        if binary is not None:
            found.setdefault(binary, {})[engine] = None
    return [f"{', '.join(names)}: {binary}" for binary, names in found.items()]
