"""A YAML document as plain data, with the position of everything in it.

A ``Location`` is a path into a document, even one at which there is no value. A ``Spot`` is what a message points at.
``source`` parses the text.
"""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from msgspec import Struct

from proxylab.scenario.words import Position

__all__ = ["Document", "Location", "Marks", "Path", "Spot", "path_text"]

Path = tuple[str | int, ...]
"""Keys and indexes from a document's root."""


class Marks(NamedTuple):
    """Where an entry of a mapping or a list begins. For a list item both positions are the same."""

    key: Position
    value: Position


class Spot(NamedTuple):
    """The target of a message: a position for the editor, a path for the reader."""

    position: Position
    path: Path


class Document(Struct, frozen=True):
    """One document of a stream: ``dict``, ``list``, ``str``, ``int``, ``float``, ``bool`` and ``None`` only.

    ``marks`` holds the marks of each container's entries, by the ``id`` of the container. Containers live as long as
    the document. An aliased container appears in several places with the marks of its anchor. ``within`` is the path to
    this document, if it is a part of another one. ``read_again`` makes the same document with marks, if this one has
    none.
    """

    value: object
    start: Position
    marks: Mapping[int, Mapping[str | int, Marks]]
    within: Path = ()
    read_again: "Callable[[], Document] | None" = None

    @property
    def marked(self) -> "Document":
        """The document with its marks."""
        return self if self.read_again is None else self.read_again()

    @property
    def root(self) -> "Location":
        """The location of the whole document."""
        return Location(self)


class Location(Struct, frozen=True):
    """A path into a document. If it has no value there, its spots are those of the nearest enclosing entry."""

    document: Document
    path: Path = ()

    def __getitem__(self, part: str | int) -> "Location":
        return Location(self.document, (*self.path, part))

    @property
    def value(self) -> object:
        """The value here; ``None`` if there is none."""
        value = self.document.value
        for part in self.path:
            value = _entry(value, part)
        return value

    @property
    def exists(self) -> bool:
        """Whether the author wrote something here, even null."""
        if not self.path:
            return True
        container, part = Location(self.document, self.path[:-1]).value, self.path[-1]
        if isinstance(container, list):
            return part in range(len(container))
        return isinstance(container, dict) and part in container

    @property
    def keys(self) -> tuple[str | int, ...]:
        """The keys, or indexes, that the author wrote below this location."""
        value = self.value
        return tuple(range(len(value)) if isinstance(value, list) else value if isinstance(value, dict) else ())

    @property
    def key(self) -> Spot:
        """The spot of this entry's key (for a list item, of the item)."""
        return Spot(self._marks().key, (*self.document.within, *self.path))

    @property
    def spot(self) -> Spot:
        """The spot of this entry's value."""
        return Spot(self._marks().value, (*self.document.within, *self.path))

    def _marks(self) -> Marks:
        found = Marks(self.document.start, self.document.start)
        document = self.document.marked if self.path else self.document
        value = document.value
        for part in self.path:
            marks = document.marks.get(id(value), {}).get(part)
            if marks is None:
                return Marks(found.key, found.key)
            found, value = marks, _entry(value, part)
        return found


def _entry(container: object, part: str | int) -> object:
    if isinstance(container, dict):
        return container.get(part)
    if isinstance(container, list) and isinstance(part, int) and part < len(container):
        return container[part]
    return None


_BARE = re.compile(r"[A-Za-z0-9_-]{1,80}")


def path_text(path: Path) -> str:
    """A path as messages print it.

    Example:
        >>> path_text(("spec", "probes", 2, "to", "via"))
        'spec.probes[2].to.via'
        >>> path_text(("spec", "nodes", "node-a", "sysctls", "net.core.somaxconn"))
        "spec.nodes.node-a.sysctls.'net.core.somaxconn'"
    """
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            bare = _BARE.fullmatch(part)
            text += "." * bool(text) + (part if bare else repr(part if len(part) <= 80 else part[:79] + "…"))
    return text
