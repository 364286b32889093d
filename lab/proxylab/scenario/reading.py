"""Pydantic models made from ``Declared`` records, and records made from what pydantic has read.

Pydantic reads a file and notes all mistakes at once; the declarations in the model say what it reads. ``schema_of``
joins the two: wherever pydantic meets a ``Declared`` class, it reads a mapping with that class's keys and makes the
record. Pydantic does not know where a value stands, so ``placed`` adds the positions afterwards.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache
from types import UnionType, new_class
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields, replace
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    InstanceOf,
    Tag,
    TypeAdapter,
    create_model,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from proxylab.encoding import Record
from proxylab.scenario.document import Location, describe, listed, shown
from proxylab.scenario.keys import (
    Check,
    Declared,
    DeclaredKey,
    Key,
    Manifest,
    NotEmpty,
    OtherKeys,
    Read,
    WrittenAs,
    attached,
    declared_keys,
    key_field,
    other_keys,
    refused,
)
from proxylab.scenario.words import Position

Made = TypeVar("Made", bound=Declared)
Placed = TypeVar("Placed", bound=Declared)

_NOWHERE: Final = Position("", 1, 1)
_NOT_EMPTY: Final = Field(min_length=1)


class Shape(BaseModel):
    """A mapping with known keys."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        defer_build=True,  # a file uses a few of the shapes; the others need no validator
    )


def _has_value(value: object) -> object:
    if value is None:
        raise refused("has no value", allowed="give it one, or leave the key out")
    return value


_HAS_VALUE: Final = Read(_has_value)


class _ScenarioShape(Shape):
    """A mapping of the scenario format: a key without a value is an error."""

    @classmethod
    def __pydantic_init_subclass__(cls, **options: object) -> None:
        """Check that every key has a value, before any other validator."""
        for field in cls.model_fields.values():
            if _HAS_VALUE not in field.metadata:
                field.metadata.append(_HAS_VALUE)


class _ManifestShape(Shape):
    """A mapping of a Kubernetes object: null means the same as an absent key, as for the API server."""

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, value: object) -> object:
        if not isinstance(value, dict) or None not in value.values():
            return value
        known = {field.alias for field in cls.model_fields.values()}
        return {key: each for key, each in value.items() if each is not None or key not in known}


class _LooseShape(_ManifestShape):
    """A mapping of a Kubernetes object with more keys than these."""

    model_config = ConfigDict(extra="ignore")


def form_schema(form: WrittenAs, handler: GetCoreSchemaHandler) -> CoreSchema:
    """Pydantic's schema for what an author writes, of which it makes the value of the model."""
    return core_schema.no_info_after_validator_function(form.make, handler.generate_schema(read_as(form.written)))


def schema_of(declared: type[Declared], handler: GetCoreSchemaHandler) -> CoreSchema:
    """Pydantic's schema for a mapping with the record's keys, of which it makes the record."""
    return core_schema.no_info_after_validator_function(_maker(declared), handler(shape_of(declared)))


@cache
def _adapter(declared: Any, key: str = "") -> TypeAdapter[Any]:
    hints = {each.name: each.hint for each in declared_keys(declared)}
    return TypeAdapter(read_as(hints[key]) if key else declared)


def read(declared: type[Made], value: object) -> Made:
    """The record of a value, without positions. Raises pydantic's ``ValidationError``."""
    made: Made = _adapter(declared).validate_python(value)
    return made


def read_key(declared: type[Declared], key: str, value: object) -> Any:
    """The value of one field of a record, without positions. Raises pydantic's ``ValidationError``."""
    return _adapter(declared, key).validate_python(value, strict=True)


@cache
def shape_of(declared: type[Declared]) -> type[Shape]:
    """The pydantic model with the record's keys."""
    keys: dict[str, Any] = {key.name: (read_as(key.hint), _field(key)) for key in declared_keys(declared)}
    for alias, text in declared.without_effect.items() if issubclass(declared, Manifest) else ():
        keys[alias] = (Any, Field(default=None, alias=alias, description=text))
    return create_model(
        f"{declared.__name__.lstrip('_')}Shape",
        __base__=_base(declared),
        __doc__=declared.__doc__,
        __module__=declared.__module__,
        **keys,
    )


def _base(declared: type[Declared]) -> type[Shape]:
    """The base of a record's shape; it says what becomes of undeclared keys, and of null."""
    if issubclass(declared, Manifest):
        return _LooseShape if declared.loose else _ManifestShape
    found = other_keys(declared)
    if found is None:
        return _ScenarioShape
    _, hint, mark = found

    def with_pattern(schema: dict[str, Any]) -> None:
        if mark.pattern:
            schema |= {
                "patternProperties": {mark.pattern: schema["additionalProperties"]},
                "additionalProperties": False,
            }

    body = {
        "__module__": declared.__module__,
        "__doc__": declared.__doc__,
        "__annotations__": {"__pydantic_extra__": dict[str, _annotated(read_as(hint), [_HAS_VALUE])]},  # type: ignore[misc]
        "model_config": ConfigDict(extra="allow", json_schema_extra=with_pattern),
    }
    return new_class(declared.__name__, (_ScenarioShape,), exec_body=lambda made: made.update(body))


def placed(value: Placed, location: Location, name: str = "") -> Placed:
    """The record, with the positions of the mapping at ``location``, and as an entry of a mapping with its name."""
    own = {*value.__struct_fields__} - {key.name for key in declared_keys(type(value))}
    changes: dict[str, object] = {}
    if name and (field := key_field(type(value))):
        changes[field[0]] = name
    if "position" in own:
        changes["position"] = location.key.position
    if "positions" in own:
        changes["positions"] = {str(key): location[str(key)].key.position for key in location.keys}
    for key in declared_keys(type(value)):
        inner = getattr(value, key.name)
        if (there := _placed(inner, location[key.alias])) is not inner:
            changes[key.name] = there
    if (others := other_keys(type(value))) and (inner := getattr(value, others[0])):
        changes[others[0]] = _placed(inner, location)
    return replace(value, **changes) if changes else value


def _placed(value: Any, location: Location) -> Any:
    match value:
        case Declared():
            return placed(value, location)
        case tuple() if value and isinstance(value[0], Declared):
            name = key_field(type(value[0]))
            parts = [getattr(each, name[0]) for each in value] if name else range(len(value))
            return tuple(placed(each, location[part]) for part, each in zip(parts, value, strict=True))
        case dict() if any(isinstance(each, Declared) for each in value.values()):
            return {name: _placed(each, location[name]) for name, each in value.items()}
    return value


@cache
def _maker(declared: type[Declared]) -> Callable[[Shape], Declared]:
    names = [key.name for key in declared_keys(declared)]
    others = other_keys(declared)
    # ``placed`` fills in the positions, and ``_entries`` the name of an entry.
    unwritten = {
        field.name: _NOWHERE if field.name == "position" else ""
        for field in fields(declared)
        if field.name not in names and field.default is NODEFAULT and field.default_factory is NODEFAULT
    }

    def make(shape: Shape) -> Declared:
        if others:
            return declared(
                **{name: getattr(shape, name) for name in names}, **unwritten, **{others[0]: shape.model_extra}
            )
        return declared(**{name: getattr(shape, name) for name in names}, **unwritten)

    return make


def _field(key: DeclaredKey) -> Any:
    options: dict[str, Any] = {"alias": key.alias, "description": key.key.text}
    if key.key.examples:
        options["examples"] = key.key.examples
    if key.default is NODEFAULT and key.key.implied is None:
        return Field(**options)
    if key.default is NODEFAULT:
        return Field(**options, default_factory=lambda: key.key.implied)
    # Editors show a default that says something as an author writes it: not an empty list, nor milliseconds.
    otherwise = any(isinstance(each, Read | WrittenAs) for each in attached(key.hint))
    if otherwise or key.default in ("", (), {}) or isinstance(key.default, Struct):
        return Field(**options, default_factory=lambda: key.default)
    return Field(**options, default=key.default)


def read_as(hint: Any) -> Any:
    """The annotation by which pydantic reads a field of a record that has this annotation."""
    arguments = get_args(hint)
    match get_origin(hint):
        case origin if origin is Annotated:
            attached = [
                _NOT_EMPTY if isinstance(each, NotEmpty) else each
                for each in arguments[1:]
                if not isinstance(each, Key | OtherKeys)
            ]
            inner = _parts_read(arguments[0])
            return _annotated(inner[0], [*inner[1], *attached, *inner[2]])
        case origin if origin in (Union, UnionType):
            return _one_of(arguments)
    inner = _parts_read(hint)
    return _annotated(inner[0], [*inner[1], *inner[2]])


def _parts_read(hint: Any) -> tuple[Any, list[Any], list[Any]]:
    """What pydantic reads for a type, and what it does before and after the checks that are attached to the type."""
    arguments = get_args(hint)
    match get_origin(hint):
        case origin if origin is tuple:
            if isinstance(arguments[0], type) and issubclass(arguments[0], Declared) and key_field(arguments[0]):
                return _entries(arguments[0])
            return list[read_as(arguments[0])], [], [Check(tuple)]  # type: ignore[misc]
        case origin if origin is Mapping:
            return dict[read_as(arguments[0]), read_as(arguments[1])], [], []  # type: ignore[misc]
        case origin if origin in (Union, UnionType):
            return read_as(hint), [], []
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint, [Read(_word_of(hint))], []
    if isinstance(hint, type) and issubclass(hint, Record) and not issubclass(hint, Declared):
        return InstanceOf[hint], [], []  # type: ignore[misc]
    return hint, [], []


def _one_of(options: tuple[Any, ...]) -> Any:
    """A union. The value decides which alternative it has to be: by its kind, or a mapping by its keys."""
    keyed = [option for option in options if _is_declared(option)]
    named = [option for option in options if get_origin(_bare(option)) is Mapping]
    lists = [option for option in options if get_origin(_bare(option)) is tuple]
    scalars = [option for option in options if option is not type(None) and option not in (*keyed, *named, *lists)]
    if len(keyed) > 1 and not scalars + named + lists:
        firsts = {declared_keys(_bare(each))[0].alias: each for each in keyed}
        tagged = [_annotated(read_as(each), [Tag(f"<{first}>")]) for first, each in firsts.items()]
        return _annotated(Union[tuple(tagged)], [Discriminator(_first_key(tuple(firsts)))])  # noqa: UP007
    several = max(map(len, (keyed, named, lists))) > 1
    if len(scalars) != 1 or several or not keyed + named + lists:
        return Union[tuple(map(read_as, options))]  # noqa: UP007 - a union of types that are known only now
    keys = {each.alias for option in keyed for each in declared_keys(_bare(option))}

    def kind(value: object) -> str:
        if lists and isinstance(value, list):
            return "<list>"
        if not keyed + named or not isinstance(value, dict | Declared):
            return "<one>"
        by_name = isinstance(value, dict) and named and keys.isdisjoint(value)
        return "<names>" if by_name or not keyed else "<keys>"

    kinds = (("<one>", scalars), ("<list>", lists), ("<keys>", keyed), ("<names>", named))
    tagged = [_annotated(read_as(each[0]), [Tag(tag)]) for tag, each in kinds if each]
    chosen = _annotated(Union[tuple(tagged)], [Discriminator(kind)])  # noqa: UP007
    return Union[chosen, None] if type(None) in options else chosen  # noqa: UP007


def _first_key(firsts: tuple[str, ...]) -> Callable[[Mapping[str, object]], str | None]:
    """Picks the alternative whose first key a mapping has. A ``Read`` refuses other mappings before."""
    return lambda value: next((f"<{first}>" for first in firsts if first in value), None)


def _is_declared(hint: Any) -> bool:
    bare = _bare(hint)
    return isinstance(bare, type) and issubclass(bare, Declared)


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _entries(declared: type[Declared]) -> tuple[Any, list[Any], list[Any]]:
    """A mapping in the file, whose entries know their keys in the model."""
    found = key_field(declared)
    name, hint = found if found else ("", str)
    entry: Any = _annotated(declared, [Read(_empty_for_null)])

    def named(entries: dict[str, Declared]) -> tuple[Declared, ...]:
        return tuple(replace(each, **{name: key}) for key, each in entries.items())

    return dict[read_as(hint), entry], [], [Check(named)]  # type: ignore[misc]


def _empty_for_null(value: object) -> object:
    """``node-a:`` without a value is a node with all defaults."""
    return {} if value is None else value


def _annotated(hint: Any, attached: list[Any]) -> Any:
    return Annotated[hint, *attached] if attached else hint


def _word_of(words: type[StrEnum]) -> Callable[[object], StrEnum]:
    """A validator for a closed set of words."""
    known = tuple(words)

    def validate(value: object) -> StrEnum:
        if isinstance(value, str):
            if value in known:
                return words(value)
            raise refused(f"{shown(value)} is unknown", allowed=f"allowed: {listed(known)}", word=value, known=known)
        raise refused(f"must be one of {listed(known)}, is {describe(value)}")

    return validate
