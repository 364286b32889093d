"""Reads a value of a document as its declaration says: one walk notes each mistake in its place, and makes the records.

The annotation of a type becomes a function, once, when a file first has such a value. A function that meets a mistake
notes it and returns ``BAD``; the walk goes on, and so finds the other mistakes of the file. The records get their
positions in the same walk.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin

from msgspec import NODEFAULT
from msgspec.structs import replace

from proxylab.errors import InternalError
from proxylab.scenario.document import Document, Location, Problems, describe, in_yaml, listed, shown
from proxylab.scenario.keys import (
    Between,
    Check,
    Declared,
    DeclaredKey,
    Manifest,
    NotEmpty,
    Read,
    RefusedError,
    WrittenAs,
    bare,
    declared_keys,
    is_declared,
    key_field,
    other_keys,
    refused,
)
from proxylab.scenario.words import Position

Made = TypeVar("Made", bound=Declared)
_Reader = Callable[[Any, Location, Problems], Any]

BAD: Final = object()
"""Stands for a value with a mistake, which is noted."""

NOUNS: Final[Mapping[type, str]] = {
    str: "text",
    int: "a whole number",
    bool: "true or false",
    list: "a list",
    dict: "a mapping",
}
"""The types that YAML has, as messages call them."""


def read(declared: type[Made], where: Location, problems: Problems) -> Made | None:
    """The record at a place, or ``None`` after noting its mistakes."""
    made = _record(declared)(where.value, where, problems)
    return None if made is BAD else made


def read_plain(declared: type[Made], value: object) -> Made:
    """The record of a value from no file. Raises ``ScenarioError`` with a line for each mistake, without a place."""
    problems = Problems()
    made = read(declared, Document(value, Position("", 1, 1), {}).root, problems)
    problems.raise_any()
    if made is None:
        raise InternalError(f"proxylab refuses a {declared.__name__} without a reason; please report it")
    return made


def read_entry(declared: type[Made], where: Location, name: str, problems: Problems) -> Made | None:
    """The record at a place, which is an entry of a mapping; null is an entry with all defaults."""
    made = _record(declared)({} if where.value is None else where.value, where, problems, name)
    return None if made is BAD else made


def read_key(key: DeclaredKey, where: Location, problems: Problems) -> Any:
    """The value of a key, which stands at that place, or ``None`` after noting its mistakes."""
    made = _reader(key.hint)(where.value, where, problems)
    return None if made is BAD else made


def _written(where: Location) -> Location:
    """The place of what the author wrote, of which a ``Read`` may have made the mapping or list with this place."""
    while not where.exists:
        where = Location(where.document, where.path[:-1])
    return where


def _is(kind: type, value: object, where: Location, problems: Problems) -> bool:
    """Whether a value is of a type that YAML has; if it is not, that is noted."""
    if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return True
    quotes = "put it in quotes" if kind is str and isinstance(value, int | float) else ""
    problems.add(_written(where).spot, f"must be {NOUNS[kind]}, is {describe(value)}", allowed=quotes)
    return False


def _reader(hint: Any) -> _Reader:
    """What reads a value with that annotation: first its ``Read``s, then its type, then its checks."""
    plain, attached = bare(hint), getattr(hint, "__metadata__", ())
    form = next((each for each in attached if isinstance(each, WrittenAs)), None)
    inner = _type_reader(plain) if form is None else _reader(form.written)
    reads = [each.read for each in reversed(attached) if isinstance(each, Read)]
    checks = [each.check for each in attached if isinstance(each, Check | Between | NotEmpty)]
    in_list = form is None and get_origin(plain) is tuple

    def reader(value: Any, where: Location, problems: Problems) -> Any:
        try:
            for read in reads:
                value = read(value)
            value = inner(value, where, problems)
            if value is BAD:
                return BAD
            for check in checks:
                value = check(value)
        except RefusedError as refusal:
            problems.add(_written(where).spot, **refusal.problem)
            return BAD
        if in_list:
            return tuple(value.values() if isinstance(value, dict) else value)
        return value if form is None else form.make(value)

    return reader


def _type_reader(hint: Any) -> _Reader:
    """What reads a value of a type, without what is attached to it."""
    arguments = get_args(hint)
    match get_origin(hint):
        case origin if origin in (Union, UnionType):
            return _one_of(arguments)
        case origin if origin is tuple:
            return _entries(arguments[0]) if key_field(arguments[0]) else _items(arguments[0])
        case origin if origin is Mapping:
            return _mapping(*arguments)
    if is_declared(hint):

        def record(value: Any, where: Location, problems: Problems) -> Any:
            return _record(hint)(value, where, problems)  # made when a file has one: most files have few of the records

        return record
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _word(hint)
    if hint in NOUNS:
        return lambda value, where, problems: value if _is(hint, value, where, problems) else BAD
    return lambda value, _where, _problems: float(value) if hint is float else value  # a ``Read`` has made it


def _word(words: type[StrEnum]) -> _Reader:
    known = tuple(words)

    def reader(value: Any, _where: Location, _problems: Problems) -> Any:
        if not isinstance(value, str):
            raise refused(f"must be one of {listed(known)}, is {describe(value)}")
        if value not in known:
            what = f"{shown(value)} is unknown"
            raise refused(what, allowed=f"allowed: {listed(known)}", word=value, known=known)
        return words(value)

    return reader


def _items(hint: Any) -> _Reader:
    read = _reader(hint)

    def reader(value: Any, where: Location, problems: Problems) -> Any:
        if not _is(list, value, where, problems):
            return BAD
        made = [read(each, where[index], problems) for index, each in enumerate(value)]
        return BAD if BAD in made else made

    return reader


def _mapping(name_hint: Any, hint: Any) -> _Reader:
    read, read_name = _reader(hint), _name_reader(name_hint)

    def reader(value: Any, where: Location, problems: Problems) -> Any:
        if not _is(dict, value, where, problems):
            return BAD
        made = {
            read_name(name, where[name], problems): read(each, where[name], problems) for name, each in value.items()
        }
        return BAD if BAD in made or BAD in made.values() else made

    return reader


def _entries(declared: type[Declared]) -> _Reader:
    """What reads a mapping whose entries know their keys in the model, each by its key."""
    found = key_field(declared)
    read_name = _name_reader(found[1] if found else str)

    def reader(value: Any, where: Location, problems: Problems) -> Any:
        if not _is(dict, value, where, problems):
            return BAD
        read, made = _record(declared), {}
        for name, each in value.items():
            key = read_name(name, where[name], problems)
            made[key] = read({} if each is None else each, where[name], problems, name)
        return BAD if BAD in made or BAD in made.values() else made

    return reader


def _name_reader(hint: Any) -> _Reader:
    """What checks the key of a mapping, which is text."""
    checks = [each.check for each in getattr(hint, "__metadata__", ()) if isinstance(each, Check)]

    def reader(name: Any, where: Location, problems: Problems) -> Any:
        try:
            for check in checks:
                name = check(name)
        except RefusedError as refusal:
            problems.add(_written(where).key, **refusal.problem)
            return BAD
        return name

    return reader


def _one_of(options: tuple[Any, ...]) -> _Reader:
    """What reads one of several types: the kind of the value decides, and of several records the first key it has."""
    types = [each for each in options if each is not NoneType]
    if len(types) == 1:
        only = _reader(types[0])
        return lambda value, where, problems: None if value is None else only(value, where, problems)
    kinds = [(each, bare(each), get_origin(bare(each))) for each in types]
    records = {declared_keys(plain)[0].alias: _reader(each) for each, plain, _ in kinds if is_declared(plain)}
    keys = {key.alias for _, plain, _ in kinds if is_declared(plain) for key in declared_keys(plain)}
    named = [_reader(each) for each, _, origin in kinds if origin is Mapping]
    lists = [_reader(each) for each, _, origin in kinds if origin is tuple]
    scalars = [_reader(each) for each, plain, origin in kinds if origin is None and not is_declared(plain)]

    def reader(value: Any, where: Location, problems: Problems) -> Any:
        if value is None and NoneType in options:
            return None
        if len(scalars) > 1 and not isinstance(value, dict | list):
            return value  # a ``Read`` has made it one of them
        if isinstance(value, dict) and named and keys.isdisjoint(value):
            chosen = named[0]
        elif isinstance(value, dict) and records:
            chosen = next((each for first, each in records.items() if first in value), next(iter(records.values())))
        else:
            chosen = next(iter([*(lists if isinstance(value, list) else ()), *scalars, *records.values(), *named]))
        return chosen(value, where, problems)

    return reader


@cache
def _record(declared: type[Declared]) -> Callable[..., Any]:
    """What reads a mapping with a record's keys; ``name`` is that of an entry."""
    is_manifest, others, unwritten = issubclass(declared, Manifest), other_keys(declared), _unwritten(declared)
    keys = [(key, _reader(key.hint)) for key in declared_keys(declared)]
    known = [*(key.alias for key, _ in keys), *(declared.without_effect if issubclass(declared, Manifest) else ())]
    allows_more = issubclass(declared, Manifest) and declared.loose
    read_other = _reader(others.hint) if others else None

    def reader(value: Any, where: Location, problems: Problems, name: str = "") -> Any:
        if not _is(dict, value, where, problems):
            return BAD
        made: dict[str, Any] = {}
        for key, read in keys:
            if key.alias in value and not (is_manifest and value[key.alias] is None):
                made[key.name] = _given(read, value[key.alias], where[key.alias], problems)
            else:
                made[key.name] = _absent(key, where, problems)
        rest = {alias: each for alias, each in value.items() if alias not in known}
        if others and read_other:
            made[others.field] = {
                alias: _given(read_other, each, where[alias], problems) for alias, each in rest.items()
            }
        elif rest and not allows_more:
            _refuse_keys(declared, rest, known, where, problems)
            return BAD
        if BAD in made.values() or (others and BAD in made[others.field].values()):
            return BAD
        return declared(**made, **unwritten(value, where, name))

    return reader


def _unwritten(declared: type[Declared]) -> Callable[[Mapping[str, object], Location, str], dict[str, Any]]:
    """What fills the fields that no author writes: the name of an entry, its place, and the places of its keys."""
    names, own_name = declared.__struct_fields__, key_field(declared)

    def fill(value: Mapping[str, object], where: Location, name: str) -> dict[str, Any]:
        made: dict[str, Any] = {own_name[0]: name} if own_name else {}
        if "position" in names:
            made["position"] = where.key.position
        if "positions" in names:
            made["positions"] = {alias: where[alias].key.position for alias in value}
        return made

    return fill


def _given(read: _Reader, value: object, where: Location, problems: Problems) -> Any:
    if value is not None:
        return read(value, where, problems)
    problems.add(where.spot, "has no value", allowed="give it one, or leave the key out")
    return BAD


def _absent(key: DeclaredKey, where: Location, problems: Problems) -> Any:
    """What an absent key means; ``BAD`` after noting one that the author must write."""
    default = key.key.implied if key.default is NODEFAULT else key.default
    if key.default is NODEFAULT and default is None:
        problems.add(_written(where)[key.alias].key, "is missing", allowed=_what_to_add(key))
        return BAD
    if isinstance(default, Declared) and "position" in default.__struct_fields__:
        return replace(default, position=where[key.alias].key.position)
    return default


def _what_to_add(key: DeclaredKey) -> str:
    """The words that a missing key may have, if they are a closed set; otherwise an example."""
    plain = bare(key.hint)
    if isinstance(plain, type) and issubclass(plain, StrEnum):
        return f"allowed: {listed(plain)}"
    return f"add it, such as {key.alias}: {in_yaml(key.key.examples[0])}" if key.key.examples else "add it"


def _refuse_keys(
    declared: type[Declared], rest: Mapping[str, object], known: list[str], where: Location, problems: Problems
) -> None:
    for alias in rest:
        if alias in declared.meant:
            problems.add(where[alias].key, "unknown key", allowed=declared.meant[alias])
        else:
            allowed = f"allowed: {listed(known)}"
            problems.add(where[alias].key, "unknown key", allowed=allowed, word=alias, known=known)
