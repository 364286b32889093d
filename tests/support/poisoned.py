"""Copies of a record in which one string is another one: a copy for each field of each type of record in it.

What a text of others may stand in is thus found by the records themselves, and a new field is tried without a word.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import fields, replace

from proxylab.errors import InternalError

__all__ = ["poisoned"]


def poisoned(record: Any, end: str) -> Iterator[tuple[str, Any]]:
    """The name of each field, and the record with ``end`` behind the string there. Equal fields count once."""
    seen: set[str] = set()
    yield from _of(record, end, type(record).__name__, seen)


def _of(value: Any, end: str, name: str, seen: set[str]) -> Iterator[tuple[str, Any]]:
    match value:
        case str() if type(value) is str and name not in seen:  # and no enumeration, whose words are ours
            seen.add(name)
            yield name, value + end
        case msgspec.Struct():
            yield from _of_record(value, end, seen)
        case tuple() | list():
            for number, item in enumerate(value):
                for found, changed in _of(item, end, f"{name}[]", seen):
                    yield found, type(value)([*value[:number], changed, *value[number + 1 :]])
        case Mapping():
            yield from _of_mapping(value, end, name, seen)


def _of_record(record: msgspec.Struct, end: str, seen: set[str]) -> Iterator[tuple[str, Any]]:
    for each in fields(record):
        place = f"{type(record).__name__}.{each.name}"
        for found, changed in _of(getattr(record, each.name), end, place, seen):
            with suppress(InternalError, TypeError, ValueError):  # the record refuses the word
                yield found, replace(record, **{each.name: changed})


def _of_mapping(mapping: Mapping[Any, Any], end: str, name: str, seen: set[str]) -> Iterator[tuple[str, Any]]:
    for key, item in mapping.items():
        if type(key) is str and f"{name} key" not in seen:
            seen.add(f"{name} key")
            yield f"{name} key", {key + end if each is key else each: other for each, other in mapping.items()}
        for found, changed in _of(item, end, f"{name}{{}}", seen):
            yield found, {**mapping, key: changed}
