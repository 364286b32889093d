"""Read YAML and JSON text as documents of plain data, with the position of every key and value.

The module owns the YAML that a scenario may use and the bounds of a file. PyYAML gives the syntax as events, from
libyaml where its wheel has it; the meaning of plain scalars is that of YAML 1.2's core schema, so that ``on`` is text
and ``0777`` is 777. PyYAML's own constructors read YAML 1.1, stop at the first duplicate key and keep no positions. So
one pass over the events makes the data, and finds every mistake. An alias shares the data of its anchor, which keeps a
"billion laughs" file small; the pass refuses such a file before other code walks over it.

msgspec reads JSON, which is YAML too, in a hundredth of the time, but without positions. Only a message needs those:
then the module reads the object at fault once more, as YAML.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec
import yaml
from msgspec.structs import replace

from proxylab.scenario.document import Document, Marks, Path, Problems, Spot, shown
from proxylab.scenario.words import Position

MOST_BYTES = 64 * 1024 * 1024
"""The largest file that the lab reads. The YAML of 10,000 Services as kubectl prints them has a fifth of that."""

_MOST_DEPTH = 40
_MOST_VALUES = 20_000
"""The least bound on the number of values in a document with all aliases expanded."""

_LOADER: Final = getattr(yaml, "CLoader", yaml.Loader)
"""PyYAML without libyaml has no ``CLoader``. Its parser in Python takes some twenty times as long."""

_TAG = "tag:yaml.org,2002:"
_MERGE = "<<"

_CORE: Final = re.compile(
    r"""
    (?P<null> ~ | null | Null | NULL | )
    | (?P<bool> true | True | TRUE | false | False | FALSE)
    | (?P<int> [-+]?[0-9]+ | 0o[0-7]+ | 0x[0-9a-fA-F]+)
    | (?P<float> [-+]? (?: \.[0-9]+ | [0-9]+(?:\.[0-9]*)? ) (?: [eE][-+]?[0-9]+ )?
      | [-+]?\.(?:inf|Inf|INF) | \.(?:nan|NaN|NAN))
    """,
    re.VERBOSE,
)
"""The plain scalars that are no text (YAML 1.2, 10.3.2)."""

_FIRST: Final = frozenset("~nNtTfF+-.0123456789") | {""}
"""How those begin."""

_JSON_KEY: Final = re.compile(rb'(?<!\\)"\s*:')
"""The end of a JSON object's key; a string value has no colon behind it."""

_WORD: Final = re.compile(r"\w+|.", re.DOTALL)

_FORBIDDEN: Final = re.compile("[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_TOO_DEEP = "nested too deeply"

_HINTS = {
    "mapping values are not allowed": "a text that holds ': ' needs quotes",
    "character '\\t'": "indent with spaces",
    "found undefined alias": "an anchor (&name) must stand before its alias (*name), in the same document",
    "expected node content, found ':'": "inside { } and [ ], a text that begins with ':' needs quotes",
    "found unexpected ':'": "inside { } and [ ], a text that ends with ':' needs quotes",
    "character escape code": "write the character itself",
    _TOO_DEEP: f"allowed: {_MOST_DEPTH} levels",
    "maximum nesting depth": f"allowed: {_MOST_DEPTH} levels",  # libyaml's own limit, of PyYAML 6.0.4 and newer
}


class _MergedEntry(NamedTuple):
    """A key and its value that a merge key adds to a mapping, with the places of both."""

    key: str
    value: object
    marks: Marks


def decode(data: bytes, file: str, problems: Problems) -> str | None:
    """The text of a file, or ``None`` after noting why it is not text."""
    if len(data) > MOST_BYTES:
        problems.add(_spot(file, 1, 1), f"the file has more than {MOST_BYTES >> 20} MiB", allowed="split the scenario")
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        before = data[data.rfind(b"\n", 0, error.start) + 1 : error.start]
        column = len(before.decode("utf-8", errors="replace")) + 1
        problems.add(_spot(file, line, column), "the file is not UTF-8 text", allowed="save it as UTF-8")
        return None


def read_documents(text: str, file: str, problems: Problems) -> tuple[list[Document], bool]:
    """The documents of a YAML stream, without empty ones, and whether the stream is readable to its end.

    The items of a List in JSON are documents of their own.
    """
    text = text.removeprefix("\ufeff")
    start = Position(file, 1, 1)
    if text.lstrip().startswith("{"):
        try:
            return list(_json_documents(text.encode(), start, problems)), True
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            pass  # not JSON, but maybe YAML
    return _yaml_documents(text, start, problems)


def _yaml_documents(text: str, start: Position, problems: Problems, within: Path = ()) -> tuple[list[Document], bool]:
    """As ``read_documents``, of a text that begins at ``start`` in its file, and at ``within`` in its document."""
    documents: list[Document] = []
    try:
        events = iter(_LOADER(text).get_event, None)
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents.extend(_DocumentReader(events, start, problems).document(next(events), within))
    except (yaml.YAMLError, ValueError) as error:
        position, what = _fault(error, text, start)
        hint = next((hint for words, hint in _HINTS.items() if words in what), "")
        problems.add(Spot(position, ()), f"not valid YAML: {what}", allowed=hint)
        return documents, False
    return documents, True


def _json_documents(text: bytes, start: Position, problems: Problems) -> Iterator[Document]:
    """The JSON object in a text, or the items of a List. Raises ``msgspec.DecodeError``."""
    whole = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    kind, version = (bytes(whole.get(key, b"")) for key in ("kind", "apiVersion"))
    if (kind, version) != (b'"List"', b'"v1"') or "items" not in whole:
        yield from _json_document(text, start, (), problems)
        return
    items = msgspec.json.decode(whole["items"], type=list[msgspec.Raw])
    end = text.index(bytes(whole["items"]))
    position = _after(start, text[:end])
    for index, item in enumerate(map(bytes, items)):
        begin = text.index(item, end)
        position = _after(position, text[end:begin])
        yield from _json_document(item, position, ("items", index), problems)
        position, end = _after(position, item), begin + len(item)


def _json_document(text: bytes, start: Position, within: Path, problems: Problems) -> Iterator[Document]:
    """One JSON object as a document. Raises ``msgspec.DecodeError``."""
    value = msgspec.json.decode(text)

    def read_as_yaml(problems: Problems) -> Iterator[Document]:
        yield from _yaml_documents(text.decode(), start, problems, within)[0]

    if len(_JSON_KEY.findall(text)) != _number_of_keys(value):
        yield from read_as_yaml(problems)  # a key appears twice, or has an unusual name
    elif value is not None:
        bare = Document(value, start, {}, within)
        yield replace(bare, read_again=cache(lambda: next(read_as_yaml(Problems()), bare)))


def _number_of_keys(value: object) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(_number_of_keys, value.values()))
    return sum(map(_number_of_keys, value)) if isinstance(value, list) else 0


def _after(start: Position, text: bytes) -> Position:
    """The position behind a text that begins at ``start``."""
    lines = text.count(b"\n")
    column = len(text[text.rfind(b"\n") + 1 :].decode()) + (1 if lines else start.column)
    return Position(start.file, start.line + lines, column)


def _fault(error: Exception, text: str, start: Position) -> tuple[Position, str]:
    """The place of a parser's error, and its message on one line."""
    if isinstance(error, yaml.reader.ReaderError) and (found := _FORBIDDEN.search(text)):
        return _after(start, text[: found.start()].encode()), f"character U+{ord(found[0]):04X} is not allowed in YAML"
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return start, _one_line(str(error))
    mark, around, context = error.problem_mark, error.context_mark, error.context or ""
    if around is not None and around.line != mark.line:
        context += f" that begins in line {_position(around, start).line}"
    what = ": ".join(filter(None, (context, error.problem)))
    written = text.rstrip()
    if mark.index >= len(written):
        return _after(start, written.encode()), _one_line(f"{what}; the text ends too early")
    what = what.replace("character that", f"character {text[mark.index]!r} that")
    if "did not find expected" in what:  # libyaml does not say what it found
        found = _WORD.match(text, mark.index)
        what = what.replace("did not find ", "") + (f", found {found[0]!r}" if found else "")
    return _position(mark, start), _one_line(what)


def _position(mark: Any, start: Position) -> Position:
    """PyYAML's mark in a text that begins at ``start``."""
    return Position(start.file, mark.line + start.line, mark.column + (1 if mark.line else start.column))


def _one_line(words: str) -> str:
    return " ".join("".join(each if each.isprintable() else " " for each in words).split())


def _spot(file: str, line: int, column: int) -> Spot:
    return Spot(Position(file, line, column), ())


class _Anchored(NamedTuple):
    """The data of an anchor, and its place. The data of an anchor whose mapping or list is not complete is itself."""

    value: object
    position: Position
    is_complete: bool


class _DocumentReader:
    """Makes the plain data of one document from its events."""

    def __init__(self, events: Iterator[Any], start: Position, problems: Problems) -> None:
        self._events = events
        self._start = start
        self._problems = problems
        self._anchors: dict[str, _Anchored] = {}
        self._sizes: dict[int, int] = {}
        self._marks: dict[int, dict[str | int, Marks]] = {}

    def document(self, event: Any, within: Path) -> Iterator[Document]:
        """The document that begins with ``event``; none if it is empty, or not usable."""
        start = self._position(event)
        value = self._value(event, within)
        if value is None:
            return
        size = self._sizes.get(id(value), 1)
        if size > max(_MOST_VALUES, 2 * sum(map(len, self._marks.values()))):
            what = "the document has too many values once its aliases are expanded"
            self._problems.add(Spot(start, within), what, allowed=f"allowed: {_MOST_VALUES}")
            return
        yield Document(value, start, self._marks, within)

    def _position(self, event: Any) -> Position:
        """Where a value begins; for an alias, where its anchor's value begins."""
        if type(event) is yaml.AliasEvent and event.anchor in self._anchors:
            return self._anchors[event.anchor].position
        return _position(event.start_mark, self._start)

    def _spot(self, event: Any, path: Path) -> Spot:
        return Spot(self._position(event), path)

    def _value(self, event: Any, path: Path) -> object:
        """The data that begins with ``event``; ``None`` after noting a problem that makes it unusable."""
        if type(event) is yaml.AliasEvent:
            return self._aliased(event, path)
        if type(event) is yaml.ScalarEvent:
            value = self._scalar(event, path)
        else:
            if len(path) > _MOST_DEPTH:
                raise yaml.composer.ComposerError(None, None, _TOO_DEEP, event.start_mark)
            if event.anchor:
                self._anchors[event.anchor] = _Anchored(None, self._position(event), is_complete=False)
            value = self._container(event, path)
        if event.anchor:
            self._anchors[event.anchor] = _Anchored(value, self._position(event), is_complete=True)
        return value

    def _aliased(self, event: Any, path: Path) -> object:
        anchored = self._anchors.get(event.anchor)
        if anchored is None:
            what = f"found undefined alias {event.anchor!r}"
            raise yaml.composer.ComposerError(None, None, what, event.start_mark)
        if not anchored.is_complete:
            what = "the anchor holds an alias of itself"
            self._problems.add(Spot(anchored.position, path), what, allowed="remove the alias")
        return anchored.value

    def _container(self, event: Any, path: Path) -> object:
        is_mapping = type(event) is yaml.MappingStartEvent
        container = self._mapping(path) if is_mapping else self._list(path)
        if event.tag in (None, _TAG + ("map" if is_mapping else "seq")):
            return container
        self._refuse_tag(event, path)
        return None

    def _list(self, path: Path) -> Any:
        items: list[object] = []
        marks: dict[str | int, Marks] = {}
        for event in self._events:
            if type(event) is yaml.SequenceEndEvent:
                break
            position = self._position(event)
            marks[len(items)] = Marks(position, position)
            items.append(self._value(event, (*path, len(items))))
        return self._finished(items, items, marks)

    def _mapping(self, path: Path) -> Any:
        data: dict[str, object] = {}
        marks: dict[str | int, Marks] = {}
        merged: list[tuple[object, Spot]] = []
        for event in self._events:
            if type(event) is yaml.MappingEndEvent:
                break
            at = self._position(event)
            key = self._key(event, path)
            value_event = next(self._events)
            # The mark of an empty scalar is wherever the parser was by then.
            entry = Marks(at, at if _is_empty(value_event) else self._position(value_event))
            value = self._value(value_event, (*path, "?" if key is None else key))
            if key is None:
                continue
            if key == _MERGE and _is_plain(event):
                merged.append((value, Spot(entry.value, (*path, key))))
            elif key in data:
                what = f"the key appears twice, first in line {marks[key].key.line}"
                self._problems.add(Spot(at, (*path, key)), what, allowed="remove one of the two")
            else:
                marks[key], data[key] = entry, value
        for source, spot in merged:
            for key, value, entry in self._merged(source, spot):
                if key not in data:
                    data[key], marks[key] = value, entry
        return self._finished(data, data.values(), marks)

    def _finished(self, container: Any, values: Iterable[object], marks: dict[str | int, Marks]) -> Any:
        """The container, after noting its marks and the number of its values with aliases expanded; bounded."""
        self._marks[id(container)] = marks
        size = 1 + sum([self._sizes.get(id(value), 1) for value in values])
        self._sizes[id(container)] = min(size, 1 << 62)
        return container

    def _merged(self, value: object, spot: Spot) -> Iterator[_MergedEntry]:
        """The entries of a merge key, in order of precedence (https://yaml.org/type/merge.html)."""
        for source in value if isinstance(value, list) else [value]:
            if not isinstance(source, dict):
                self._problems.add(spot, "must be an alias of a mapping, or a list of such aliases")
                return
            for key, entry in source.items():
                yield _MergedEntry(key, entry, self._marks[id(source)][key])

    def _key(self, event: Any, path: Path) -> str | None:
        if type(event) is yaml.ScalarEvent and _kind(event) != "str":
            where = self._spot(event, (*path, event.value))
            self._problems.add(where, f"the key {shown(event.value)} must be text", allowed="put it in quotes")
            return str(event.value)
        key = self._value(event, (*path, "?"))
        if isinstance(key, str):
            return key
        self._problems.add(self._spot(event, path), "a key must be text")
        return None

    def _scalar(self, event: Any, path: Path) -> object:
        text: str = event.value
        match _kind(event):
            case "str":
                return text
            case "int":
                return self._integer(event, path)
            case "float":
                return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
            case "bool":
                return text[0] in "tT"
            case "":
                self._refuse_tag(event, path)
        return None

    def _integer(self, event: Any, path: Path) -> int | None:
        text: str = event.value
        digits = text.lstrip("+-0")
        if len(digits) <= 20:
            number = int(text, 0) if text[1:2] in ("o", "x") else int(text)
            if number.bit_length() < 64:
                return number
        what = f"the number {shown(text)} has more than 64 bits"
        self._problems.add(self._spot(event, path), what, allowed="put text in quotes")
        return None

    def _refuse_tag(self, event: Any, path: Path) -> None:
        name = "!!" + event.tag.removeprefix(_TAG) if event.tag.startswith(_TAG) else event.tag
        self._problems.add(self._spot(event, path), f"the tag {shown(name)} has no meaning here", allowed="remove it")


def _kind(event: Any) -> str:
    """The type of a scalar; empty if its tag does not fit."""
    if event.tag is None and (event.value[:1] not in _FIRST or not _is_plain(event)):
        return "str"
    if event.tag == _TAG + "str":
        return "str"
    match = _CORE.fullmatch(event.value)
    kind = (match.lastgroup if match else None) or "str"
    return kind if event.tag in (None, _TAG + kind) else ""


def _is_plain(event: Any) -> bool:
    """Whether the scalar has no quotes, so that its text decides its type."""
    return bool(event.implicit[0])


def _is_empty(event: Any) -> bool:
    return type(event) is yaml.ScalarEvent and not event.value and _is_plain(event)
