"""What ``nft list`` prints: tables, their chains, sets and maps, and the rules and elements in those."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, takewhile
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

_HANDLE: Final = " # handle "
_HEADS: Final = ("type ", "policy ", "devices ", "flags ", 'comment "')
"""How lines of a chain begin that are no rules."""
_ELEMENTS: Final = "elements = {"
_BETWEEN: Final = ",\n\t\t\t     "
_OF_TABLE: Final = ("\tcomment ", "\tflags ")
"""How lines of a table begin that are no objects."""
_ELEMENT: Final = re.compile(r'(?:"[^"]*"|[^,"])+')
_WORD: Final = re.compile(r'"[^"]*"|[^\s"]+')
_SEPARATORS: Final = str.maketrans(dict.fromkeys(',{}@";', " "))

_OF_ELEMENT: Final = frozenset({"comment", "counter", "timeout", "expires"})
"""What an element has besides its key and value. A counter has four words, the others two."""


class ListedRule(NamedTuple):
    """One rule of a listing. ``handle`` is 0 where the listing has none."""

    chain: str
    handle: int
    text: str


class Base(NamedTuple):
    """Where a base chain stands. ``priority`` is ``None`` where nft printed a name for it."""

    hook: str
    priority: int | None
    policy: str


class Element(NamedTuple):
    """An element of a set or map: the parts of its key, and its value, which is empty in a set."""

    key: tuple[str, ...]
    value: str


class NftObject(Struct, frozen=True):
    """A chain, set, map or another object of a table.

    Attributes:
        lines: those between its braces.
        opening: the line before them.
    """

    kind: str
    name: str
    lines: tuple[str, ...]
    opening: str = ""

    @property
    def base(self) -> Base | None:
        """Where a base chain stands; ``None`` for any other object."""
        head = next((line for line in self.lines if line.startswith("\t\ttype ") and " hook " in line), "")
        if not head:
            return None
        words = head.replace(";", " ").split()
        after = dict(pairwise(words))
        number = after["priority"]
        priority = int(number) if number.lstrip("-").isdigit() else None
        return Base(after["hook"], priority, after.get("policy", ""))

    @property
    def rules(self) -> list[ListedRule]:
        """The rules of a chain. One with a long set takes several lines; its handle is in the last."""
        rules: list[ListedRule] = []
        begun = ""
        for line in self.lines:
            begun = f"{begun} {line.strip()}" if begun else line.strip()
            text, _, handle = begun.rpartition(_HANDLE)
            if handle.isdigit():
                rules.append(ListedRule(self.name, int(handle), text.rstrip()))
                begun = ""
            elif begun.count("{") == begun.count("}"):
                if begun and not begun.startswith(_HEADS):
                    rules.append(ListedRule(self.name, 0, begun))
                begun = ""
        return rules

    @property
    def elements(self) -> list[str]:
        """The elements of a set or map, as written but for line feeds."""
        _, found, rest = "\n".join(self.lines).partition(_ELEMENTS)
        return elements_of(rest) if found else []

    @property
    def properties(self) -> list[str]:
        """The lines that are no rules and no elements: its type, flags, size and comment."""
        before = takewhile(lambda line: _ELEMENTS not in line, self.lines)
        return [line for line in before if self.kind != "chain" or line.strip().startswith(_HEADS)]

    @property
    def words(self) -> frozenset[str]:
        """All words of its lines, and so the names of all other objects that it refers to."""
        return frozenset(" ".join(self.lines).translate(_SEPARATORS).split())

    def with_rules(self, texts: Iterable[str]) -> "NftObject":
        """The same chain with these rules."""
        return replace(self, lines=(*self.properties, *(f"\t\t{each}" for each in texts)))

    def with_elements(self, elements: Sequence[str]) -> "NftObject":
        """The same set or map with these elements, each on a line as nft prints them."""
        lines = f"\t\t{_ELEMENTS} {_BETWEEN.join(elements)} }}".split("\n") if elements else ()
        return replace(self, lines=(*self.properties, *lines))


class NftTable(Struct, frozen=True):
    """One table, by its family and name: ``ip kube-proxy``. ``head`` has its first line, flags and comment."""

    name: str
    objects: tuple[NftObject, ...]
    head: tuple[str, ...] = ()

    def of_kind(self, kind: str) -> dict[str, NftObject]:
        """The chains, sets or maps, by name."""
        return {each.name: each for each in self.objects if each.kind == kind}


def read_listing(text: str) -> list[NftTable]:
    """The tables of a listing, with or without handles."""
    tables: list[NftTable] = []
    table, head, objects = "", list[str](), list[NftObject]()
    opening, lines = "", list[str]()
    for line in text.splitlines():
        if line.startswith("\t\t"):
            lines.append(line)
        elif line.startswith("\t}"):
            kind, _, name = opening.strip().partition(" {")[0].rpartition(" ")
            objects.append(NftObject(kind, name, tuple(lines), opening))
        elif line.startswith(_OF_TABLE):
            head.append(line)
        elif line.startswith("\t"):
            opening, lines = line, []
        elif line.startswith("table "):
            table, head, objects = line.removeprefix("table ").partition(" {")[0], [line], []
        elif line.startswith("}"):
            tables.append(NftTable(table, tuple(objects), tuple(head)))
    return tables


def print_listing(tables: Iterable[NftTable]) -> str:
    """The tables as nft lists them."""
    lines: list[str] = []
    for table in tables:
        lines += table.head
        apart = any(line.startswith("\tflags ") for line in table.head)  # nft parts objects by blank lines, and flags
        for each in table.objects:
            lines += [*[""] * apart, each.opening, *each.lines, "\t}"]
            apart = True
        lines.append("}")
    return "".join(f"{line}\n" for line in lines)


def listed_rules(text: str) -> tuple[ListedRule, ...]:
    """All rules of a listing, in order."""
    chains = (each for table in read_listing(text) for each in table.objects if each.kind == "chain")
    return tuple(rule for chain in chains for rule in chain.rules)


def without_counts(line: str) -> str:
    """A line of a listing without what its counters have counted."""
    words = line.split(" ")
    for at in (at for at, word in enumerate(words[:-3]) if (word.strip(), words[at + 2]) == ("packets", "bytes")):
        words[at + 1] = words[at + 3] = "0"
    return " ".join(words).replace(" counter packets 0 bytes 0", " counter")


def elements_of(braces: str) -> list[str]:
    """The elements between braces."""
    inside = braces.strip().removeprefix("{").rpartition("}")[0]
    return [" ".join(each.split()) for each in _ELEMENT.findall(inside) if each.strip()]


def read_element(text: str) -> Element:
    """The key and value of an element, without its comment, counter and times."""
    words = list(_plain(_WORD.findall(text)))
    at = words.index(":") if ":" in words else len(words)
    return Element(tuple(" ".join(words[:at]).split(" . ")), " ".join(words[at + 1 :]))


def print_element(element: Element) -> str:
    """The key and value as nft prints them."""
    key = " . ".join(element.key)
    return f"{key} : {element.value}" if element.value else key


def _plain(words: list[str]) -> Iterator[str]:
    at = 0
    while at < len(words):
        if words[at] in _OF_ELEMENT:
            at += 5 if words[at] == "counter" else 2
        else:
            yield words[at]
            at += 1
