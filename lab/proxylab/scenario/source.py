"""Read YAML text as documents of plain data, with the position of every key and value.

The module owns the YAML that a scenario may use (YAML 1.2; anchors, aliases and merge keys; text keys, no tags) and the
bounds of a file. ruamel.yaml composes each document to a graph of nodes; this module makes the plain data. ruamel's own
constructors stop at the first duplicate key and keep no position for scalars in lists. Every node has its mark, so one
pass finds every mistake. An alias is its anchor's node again: the module builds its data once and shares it, which
keeps a "billion laughs" file small, and ``is_bearable`` refuses such a file before other code walks over it.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from proxylab.scenario.document import Document, Marks, Path, Spot
from proxylab.scenario.events import read_events
from proxylab.scenario.model import Position
from proxylab.scenario.problems import Problems, shown

__all__ = ["MOST_BYTES", "decode", "read_documents"]

MOST_BYTES = 16 * 1024 * 1024
"""The largest file that the lab reads. A cluster of 10,000 Services has about this size."""

_MOST_DEPTH = 40
_MOST_VALUES = 20_000
"""The least bound on the number of values in a document with all aliases expanded."""

_TAG = "tag:yaml.org,2002:"

_TOO_DEEP = "nested too deeply"

_HINTS = {
    "mapping values are not allowed": "a text that holds ': ' needs quotes",
    "'\\t'": "indent with spaces",
    "found undefined alias": "an anchor (&name) must stand before its alias (*name), in the same document",
    _TOO_DEEP: f"allowed: {_MOST_DEPTH} levels",
}


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
    """The documents of a YAML stream, without empty ones, and whether the stream is readable to its end."""
    text = text.removeprefix("\ufeff")
    documents: list[Document] = []
    yaml = YAML(typ="safe", pure=True)
    yaml.max_depth = _MOST_DEPTH
    events = read_events(text)
    if events is not None:
        yaml.Parser = lambda loader: events
    yaml.composer.warn_double_anchors = False  # YAML 1.2, 7.1: an alias is the most recent node of that anchor
    try:
        for node in yaml.compose_all(text):
            if node is not None:
                maker = _Maker(yaml, file, problems)
                value = maker.value(node, ())
                if value is not None and maker.is_bearable(node, value):
                    documents.append(Document(value, maker.position(node), maker.marks))
    except (YAMLError, RecursionError, ValueError) as error:
        spot, what = _fault(error, text, file)
        hint = next((hint for words, hint in _HINTS.items() if words in what), "")
        problems.add(spot, f"not valid YAML: {what}", allowed=hint)
        return documents, False
    return documents, True


def _fault(error: Exception, text: str, file: str) -> tuple[Spot, str]:
    """The place of a parser's error, and its message on one line."""
    if isinstance(error, MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        words = _one_line(": ".join(part for part in (error.context, error.problem) if part))
        what = _TOO_DEEP if "maximum depth" in words else words
        return _spot(file, mark.line + 1, mark.column + 1) if mark else _spot(file, 1, 1), what
    if isinstance(error, ReaderError):
        before = text[: error.position]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        return _spot(file, line, column), f"character U+{ord(text[error.position]):04X} is not allowed in YAML"
    if isinstance(error, RecursionError):
        return _spot(file, 1, 1), _TOO_DEEP
    return _spot(file, 1, 1), _one_line(str(error))


def _one_line(words: str) -> str:
    return " ".join("".join(each if each.isprintable() else " " for each in words).split())


def _spot(file: str, line: int, column: int) -> Spot:
    return Spot(Position(file, line, column), ())


def _is_nothing(node: Node) -> bool:
    """Whether the value is empty. The mark of an empty node is wherever the reader was by then."""
    return isinstance(node, ScalarNode) and not node.value and not node.style


class _Maker:
    """Makes the plain data of one document from its nodes."""

    def __init__(self, yaml: YAML, file: str, problems: Problems) -> None:
        self._numbers: Any = yaml.constructor
        self._file = file
        self._problems = problems
        self._made: dict[int, object] = {}
        self._open: set[int] = set()
        self._sizes: dict[int, int] = {}
        self.marks: dict[int, dict[str | int, Marks]] = {}

    def position(self, node: Node) -> Position:
        return Position(self._file, node.start_mark.line + 1, node.start_mark.column + 1)

    def spot(self, node: Node, path: Path) -> Spot:
        return Spot(self.position(node), path)

    def value(self, node: Node, path: Path) -> object:
        """The data of a node; ``None`` after noting a problem that makes it unusable."""
        if isinstance(node, ScalarNode):
            return self._scalar(node, path)
        if id(node) in self._open:
            self._problems.add(self.spot(node, path), "the anchor holds an alias of itself", allowed="remove the alias")
            return None
        if id(node) not in self._made:
            self._open.add(id(node))
            self._made[id(node)] = self._container(node, path)
            self._open.discard(id(node))
        return self._made[id(node)]

    def is_bearable(self, root: Node, value: object) -> bool:
        """Whether the document with every alias expanded is small enough; notes a problem if not."""
        size = self._sizes.get(id(value), 1)
        if size <= max(_MOST_VALUES, 2 * sum(map(len, self.marks.values()))):
            return True
        what = "the document has too many values once its aliases are expanded"
        self._problems.add(self.spot(root, ()), what, allowed=f"allowed: {_MOST_VALUES}")
        return False

    def _size(self, values: Iterable[object]) -> int:
        """The number of values in a container, itself included, with aliases expanded; bounded."""
        return min(1 + sum(self._sizes.get(id(value), 1) for value in values), 1 << 62)

    def _container(self, node: Node, path: Path) -> object:
        tag = str(node.tag).removeprefix(_TAG)
        if isinstance(node, MappingNode) and tag == "map":
            return self._mapping(node, path)
        if isinstance(node, SequenceNode) and tag == "seq":
            items = [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
            locations = map(self.position, node.value)
            self.marks[id(items)] = {index: Marks(location, location) for index, location in enumerate(locations)}
            self._sizes[id(items)] = self._size(items)
            return items
        self._refuse_tag(node, path)
        return None

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, object]:
        data: dict[str, object] = {}
        marks: dict[str | int, Marks] = {}
        merged: list[tuple[Node, Spot]] = []
        for key_node, value_node in node.value:
            at = self.position(key_node)
            location = Marks(at, at if _is_nothing(value_node) else self.position(value_node))
            if str(key_node.tag) == _TAG + "merge":
                merged.append((value_node, Spot(location.value, (*path, "<<"))))
                continue
            key = self._key(key_node, path)
            if key is None:
                continue
            if key in data:
                first = marks[key].key
                what = f"the key appears twice, first in line {first.line}"
                self._problems.add(Spot(location.key, (*path, key)), what, allowed="remove one of the two")
                continue
            marks[key] = location
            data[key] = self.value(value_node, (*path, key))
        for value_node, spot in merged:
            for key, value, location in self._merged(value_node, spot):
                if key not in data:
                    data[key], marks[key] = value, location
        self.marks[id(data)] = marks
        self._sizes[id(data)] = self._size(data.values())
        return data

    def _merged(self, node: Node, spot: Spot) -> Iterator[tuple[str, object, Marks]]:
        """The entries of a merge key, in order of precedence (https://yaml.org/type/merge.html)."""
        value = self.value(node, spot.path)
        for source in value if isinstance(value, list) else [value]:
            if not isinstance(source, dict):
                self._problems.add(spot, "must be an alias of a mapping, or a list of such aliases")
                return
            for key, entry in source.items():
                yield key, entry, self.marks[id(source)][key]

    def _key(self, node: Node, path: Path) -> str | None:
        if not isinstance(node, ScalarNode):
            self._problems.add(self.spot(node, path), "a key must be text")
            return None
        if str(node.tag) != _TAG + "str":
            where = self.spot(node, (*path, node.value))
            self._problems.add(where, f"the key {shown(node.value)} must be text", allowed="put it in quotes")
        text = node.value
        return text if self._is_text(node, path) else None

    def _scalar(self, node: ScalarNode, path: Path) -> object:
        text: str = node.value
        match str(node.tag).removeprefix(_TAG):
            case "str" | "timestamp":
                return text if self._is_text(node, path) else None
            case "null":
                return None
            case "bool" if text.lower() in ("true", "false"):
                return text.lower() == "true"
            case "int" | "float" as kind:
                return self._number(node, kind, path)
            case _:
                self._refuse_tag(node, path)
                return None

    def _number(self, node: ScalarNode, kind: str, path: Path) -> int | float | None:
        read = self._numbers.construct_yaml_int if kind == "int" else self._numbers.construct_yaml_float
        try:
            number: int | float = read(node)
        except (ValueError, IndexError, OverflowError):
            what = f"{shown(node.value)} is not a number"
            self._problems.add(self.spot(node, path), what, allowed="write digits, or put text in quotes")
            return None
        if isinstance(number, int) and number.bit_length() > 63:
            what = f"the number {shown(node.value)} has more than 64 bits"
            self._problems.add(self.spot(node, path), what, allowed="put text in quotes")
            return None
        return number

    def _is_text(self, node: ScalarNode, path: Path) -> bool:
        try:
            node.value.encode("utf-8")
        except UnicodeEncodeError:
            what = "the text holds half a surrogate pair, which is not a character"
            self._problems.add(self.spot(node, path), what, allowed="remove it, or write the other half too")
            return False
        return True

    def _refuse_tag(self, node: Node, path: Path) -> None:
        tag = str(node.tag)
        name = "!!" + tag.removeprefix(_TAG) if tag.startswith(_TAG) else tag
        self._problems.add(self.spot(node, path), f"the tag {shown(name)} has no meaning here", allowed="remove it")
