"""What ``nft list`` prints: tables, their chains, sets and maps, and the rules and elements in those."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from msgspec import Struct

_HANDLE: Final = " # handle "
_HEADS: Final = ("type ", "policy ", "devices ", "flags ", 'comment "')
"""How lines of a chain begin that are no rules."""
_ELEMENTS: Final = "elements = {"
_ELEMENT: Final = re.compile(r'(?:"[^"]*"|[^,"])+')
_WORD: Final = re.compile(r'"[^"]*"|[^\s"]+')
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
    """A chain, set, map or another object of a table, with the lines between its braces."""

    kind: str
    name: str
    lines: tuple[str, ...]

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


class NftTable(Struct, frozen=True):
    """One table, by its family and name: ``ip kube-proxy``."""

    name: str
    objects: tuple[NftObject, ...]

    def of_kind(self, kind: str) -> dict[str, NftObject]:
        """The chains, sets or maps, by name."""
        return {each.name: each for each in self.objects if each.kind == kind}


def read_listing(text: str) -> list[NftTable]:
    """The tables of a listing, with or without handles."""
    tables: list[NftTable] = []
    table, objects = "", list[NftObject]()
    head, lines = "", list[str]()
    for line in text.splitlines():
        if line.startswith("\t\t"):
            lines.append(line)
        elif line.startswith("\t}"):
            kind, _, name = head.rpartition(" ")
            objects.append(NftObject(kind, name, tuple(lines)))
        elif line.startswith("\t"):
            head, lines = line.strip().partition(" {")[0], []
        elif line.startswith("table "):
            table, objects = line.removeprefix("table ").partition(" {")[0], []
        elif line.startswith("}"):
            tables.append(NftTable(table, tuple(objects)))
    return tables


def listed_rules(text: str) -> tuple[ListedRule, ...]:
    """All rules of a listing, in order."""
    chains = (each for table in read_listing(text) for each in table.objects if each.kind == "chain")
    return tuple(rule for chain in chains for rule in chain.rules)


def elements_of(braces: str) -> list[str]:
    """The elements between braces."""
    inside = braces.strip().removeprefix("{").rpartition("}")[0]
    return [" ".join(each.split()) for each in _ELEMENT.findall(inside) if each.strip()]


def read_element(text: str) -> Element:
    """The key and value of an element, without its comment, counter and times."""
    words = list(_plain(_WORD.findall(text)))
    at = words.index(":") if ":" in words else len(words)
    return Element(tuple(" ".join(words[:at]).split(" . ")), " ".join(words[at + 1 :]))


def _plain(words: list[str]) -> Iterator[str]:
    at = 0
    while at < len(words):
        if words[at] in _OF_ELEMENT:
            at += 5 if words[at] == "counter" else 2
        else:
            yield words[at]
            at += 1
