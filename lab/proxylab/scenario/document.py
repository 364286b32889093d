"""A YAML document as plain data, with the position of everything in it, and the mistakes found there.

A ``Location`` is a path into a document, even one at which there is no value. A ``Spot`` is what a message points at.
``source`` parses the text. ``with_probes`` and ``with_steps`` give data from a Python test the position of the Python
call; loading then checks it like the rest of the document, with the same messages. ``Problems`` collects the mistakes
of one file and raises them together, in one form of message, with did-you-mean.
"""

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from msgspec import Struct

from proxylab.errors import ScenarioError
from proxylab.scenario.words import Position
from proxylab.text import printable

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

    The probes are as YAML would give them: mappings, lists, texts and numbers. ``position`` is the place of everything
    in them.
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

    ``kept`` says how many of its own steps stay. The new ones are as YAML would give them, each with its position.
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


_MOST_TOLD = 200
"""A file with more problems than this has one cause, which the first problems show."""

_LONGEST_LINE = 1000
_MOST_SHOWN = 60
_MOST_LISTED = 12
_MOST_COMPARED = 2000


class _Problem(Struct, frozen=True, kw_only=True):
    """One mistake. ``word`` is what the author wrote; ``known`` are the words that the author may have meant."""

    spot: Spot
    what: str
    allowed: str = ""
    word: str = ""
    known: tuple[str, ...] = ()

    def __str__(self) -> str:
        position = self.spot.position
        parts = [str(position) if position.file else "", path_text(self.spot.path), self.what]
        return _one_line(told_with(": ".join(filter(None, parts)), self.allowed, self.word, self.known))


class Problems:
    """The mistakes of one file so far, and warnings of what the lab takes and may not prove."""

    def __init__(self) -> None:
        self._found: dict[Spot, _Problem] = {}
        self._warnings: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._found)

    def add(self, spot: Spot, what: str, *, allowed: str = "", word: str = "", known: Iterable[str] = ()) -> None:
        """Note one problem, unless this spot has one already.

        The earliest reader wins: a value that is not valid YAML is not reported as missing too.

        Args:
            spot: the key or value at fault.
            what: the mistake.
            allowed: the allowed values, or what to do.
            word: what the author wrote, for a suggestion from ``known``.
            known: the names or words that this place allows.
        """
        problem = _Problem(spot=spot, what=what, allowed=allowed, word=word, known=tuple(known))
        self._found.setdefault(spot, problem)

    def warn(self, spot: Spot, what: str, *, allowed: str) -> None:
        """Note a doubt that refuses nothing, once, with its line and what to do."""
        line = f"warning: line {spot.position.line}: {path_text(spot.path)}: {what}; {allowed}"
        self._warnings.setdefault(_one_line(line))

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings, in the order of the checks."""
        return tuple(self._warnings)

    def raise_any(self) -> None:
        """Raise the problems, in the order of the file, and file by file if there are manifest files.

        Raises:
            ScenarioError: with a line for each problem.
        """
        if not self._found:
            return
        ordered = sorted(
            self._found.values(),
            key=lambda problem: (
                problem.spot.position.file,
                problem.spot.position.line,
                problem.spot.position.column,
            ),
        )
        lines = [str(problem) for problem in ordered[:_MOST_TOLD]]
        if untold := ordered[_MOST_TOLD:]:
            lines.append(f"{untold[0].spot.position}: and {len(untold)} more problems from here on")
        raise ScenarioError(lines)


def told_with(what: str, allowed: str, word: str, known: Iterable[str]) -> str:
    """A mistake with what is allowed in its place, and the word that the author probably meant."""
    text = f"{what}; {allowed}" if allowed else what
    meant = nearest(word, known)
    return f"{text}; did you mean {meant!r}?" if meant else text


def _one_line(text: str) -> str:
    """A message on one line, bounded."""
    if len(text) > _LONGEST_LINE:
        text = text[: _LONGEST_LINE - 1] + "…"
    return printable(text, keep="")


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that the author probably meant, or an empty string.

    Example:
        >>> nearest("servce", ["service", "pod"])
        'service'
    """
    if not word or len(word) > _MOST_SHOWN:
        return ""

    by_lower = {candidate.lower(): candidate for candidate in islice(known, _MOST_COMPARED)}
    if word in by_lower.values():
        return ""
    close = difflib.get_close_matches(word.lower(), by_lower, n=1)
    return by_lower[close[0]] if close else ""


def shown(value: object) -> str:
    """A value of the file for a message: on one line, printable, bounded."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        return repr(str(value) if len(value) <= _MOST_SHOWN else value[: _MOST_SHOWN - 1] + "…")
    return str(value)


def describe(value: object) -> str:
    """The kind of value that the author wrote, in a few words."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "empty"
    if isinstance(value, str):
        return f"the text {shown(value)}"
    return shown(value) if isinstance(value, bool) else f"the number {shown(value)}"


def listed(names: Iterable[str]) -> str:
    """Names for a message: all of them, or the first few and how many more there are."""
    every = list(names)
    if len(every) <= _MOST_LISTED:
        return ", ".join(every) or "none"
    return ", ".join(every[:_MOST_LISTED]) + f" and {len(every) - _MOST_LISTED} more"


def in_yaml(value: object) -> str:
    """A value in YAML's flow style, quoted only where YAML needs quotes."""
    match value:
        case dict():
            return "{" + ", ".join(f"{key}: {in_yaml(inner)}" for key, inner in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(in_yaml, value)) + "]"
        case str() if any(mark in value for mark in ":#{}[],&*!|>'\"%@`") and not value.startswith("http"):
            return json.dumps(value)
        case str():
            return value
        case _:
            return json.dumps(value)
