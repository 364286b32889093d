"""A YAML document as plain data, with the position of everything in it.

A ``Location`` is a path into a document, even one at which there is no value. A ``Spot`` is what a message points at.
``source`` parses the text. ``with_probes`` and ``with_steps`` give data from a Python test the position of the Python
call; loading then checks it like the rest of the document, with the same messages.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from proxylab.scenario.words import Position

__all__ = ["Document", "Location", "Marks", "Path", "Spot", "path_text", "with_probes", "with_steps"]

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


def with_probes(location: Location, probes: Sequence[object], position: Position) -> Location:
    """The Scenario document with these probes instead of its own, and without streams and steps.

    Args:
        location: the document.
        probes: each as YAML would give it: mappings, lists, texts and numbers.
        position: the place of the probes and of everything in them.
    """
    document = location.document.marked
    here = Marks(position, position)
    marks = dict(document.marks)
    whole = dict(document.value) if isinstance(document.value, Mapping) else {}
    spec = dict(whole["spec"]) if isinstance(whole.get("spec"), Mapping) else {}
    of_spec = dict(marks.get(id(whole.get("spec")), {}))
    for moving in ("streams", "steps"):
        spec.pop(moving, None)
        of_spec.pop(moving, None)
    marks[id(whole_of := {**whole, "spec": spec})] = {"spec": here, **marks.get(id(document.value), {})}
    spec["probes"] = _marked(list(probes), here, marks)
    marks[id(spec)] = {**of_spec, "probes": here}
    return Location(Document(whole_of, document.start, marks, document.within))


def with_steps(location: Location, kept: int, steps: Sequence[tuple[object, Position]]) -> Location:
    """The Scenario document with these steps after its first ones.

    Args:
        location: the document.
        kept: how many of its own steps stay.
        steps: the new steps, each as YAML would give it, with its position.
    """
    document = location.document.marked
    marks = dict(document.marks)
    whole = dict(document.value) if isinstance(document.value, Mapping) else {}
    spec = dict(whole["spec"]) if isinstance(whole.get("spec"), Mapping) else {}
    own = spec.get("steps")
    before = own[:kept] if isinstance(own, list) else []
    locations = [Marks(position, position) for _, position in steps]
    made = [*before, *(_marked(step, here, marks) for (step, _), here in zip(steps, locations, strict=True))]
    known = dict(marks.get(id(own), {}))
    marks[id(made)] = {**known, **dict(enumerate(locations, len(before)))}
    of_spec = dict(marks.get(id(whole.get("spec")), {}))
    spec["steps"] = made
    marks[id(spec)] = {**of_spec, "steps": of_spec.get("steps", locations[0])}
    marks[id(whole_of := {**whole, "spec": spec})] = marks.get(id(document.value), {})
    return Location(Document(whole_of, document.start, marks, document.within))


def _marked(value: object, here: Marks, marks: dict[int, Mapping[str | int, Marks]]) -> object:
    """A copy of plain data in which every entry has the position ``here``."""
    made: dict[str, object] | list[object]
    match value:
        case Mapping():
            made = {str(key): _marked(each, here, marks) for key, each in value.items()}
            marks[id(made)] = dict.fromkeys(made, here)
        case list() | tuple():
            made = [_marked(each, here, marks) for each in value]
            marks[id(made)] = dict.fromkeys(range(len(made)), here)
        case _:
            return value
    return made
