"""Pydantic models made from ``Declared`` records, and records made from what pydantic has read.

Pydantic reads a file and notes all mistakes at once; the declarations in the model say what it reads. ``schema_of``
joins the two: wherever pydantic meets a ``Declared`` class, it reads a mapping with that class's keys and makes the
record. Pydantic does not know where a value stands, so ``placed`` adds the positions afterwards.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

from msgspec import NODEFAULT
from msgspec.structs import fields, replace
from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, GetCoreSchemaHandler, Tag, create_model
from pydantic_core import CoreSchema, core_schema

from proxylab.scenario.document import Location
from proxylab.scenario.keys import Declared, DeclaredKey, Form, Key, NotEmpty, declared_keys, key_field
from proxylab.scenario.schema.base import ScenarioShape, word_of
from proxylab.scenario.words import Position

__all__ = ["form_schema", "placed", "read_as", "schema_of", "shape_of"]

Read = TypeVar("Read", bound=Declared)

_NOWHERE: Final = Position("", 1, 1)
_NOT_EMPTY: Final = Field(min_length=1)


def form_schema(form: Form, handler: GetCoreSchemaHandler) -> CoreSchema:
    """Pydantic's schema for what an author writes, of which it makes the value of the model."""
    return core_schema.no_info_after_validator_function(form.make, handler.generate_schema(read_as(form.written)))


def schema_of(declared: type[Declared], handler: GetCoreSchemaHandler) -> CoreSchema:
    """Pydantic's schema for a mapping with the record's keys, of which it makes the record."""
    return core_schema.no_info_after_validator_function(_maker(declared), handler(shape_of(declared)))


@cache
def shape_of(declared: type[Declared]) -> type[ScenarioShape]:
    """The pydantic model with the record's keys."""
    keys: dict[str, Any] = {key.name: (read_as(key.hint), _field(key)) for key in declared_keys(declared)}
    return create_model(
        f"{declared.__name__}Shape",
        __base__=ScenarioShape,
        __doc__=declared.__doc__,
        __module__=declared.__module__,
        **keys,
    )


def placed(value: Read, location: Location, name: str = "") -> Read:
    """The record, with the positions of the mapping at ``location``, and as an entry of a mapping with its name."""
    own = {field.name for field in fields(value)} - {key.name for key in declared_keys(type(value))}
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


def _maker(declared: type[Declared]) -> Callable[[ScenarioShape], Declared]:
    names = [key.name for key in declared_keys(declared)]
    # ``placed`` fills in the positions, and ``_entries`` the name of an entry.
    unwritten = {
        field.name: _NOWHERE if field.name == "position" else ""
        for field in fields(declared)
        if field.name not in names and field.default is NODEFAULT and field.default_factory is NODEFAULT
    }

    def make(shape: ScenarioShape) -> Declared:
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
    # Editors show a default that says something, so not an empty list.
    if key.default in ("", (), {}) or isinstance(key.default, Declared):
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
                if not isinstance(each, Key)
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
            return list[read_as(arguments[0])], [], [AfterValidator(tuple)]  # type: ignore[misc]
        case origin if origin is Mapping:
            return dict[read_as(arguments[0]), read_as(arguments[1])], [], []  # type: ignore[misc]
        case origin if origin in (Union, UnionType):
            return read_as(hint), [], []
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint, [BeforeValidator(word_of(hint))], []
    return hint, [], []


def _one_of(options: tuple[Any, ...]) -> Any:
    """A union. If it has a scalar and a mapping, or one with keys and one by names, the value decides."""
    keyed = [option for option in options if _is_declared(option)]
    named = [option for option in options if get_origin(_unannotated(option)) is Mapping]
    scalars = [option for option in options if option is not type(None) and option not in (*keyed, *named)]
    if len(scalars) != 1 or not keyed + named or max(len(keyed), len(named)) > 1:
        return Union[tuple(map(read_as, options))]  # noqa: UP007 - a union of types that are known only now
    keys = {each.alias for option in keyed for each in declared_keys(_unannotated(option))}

    def kind(value: object) -> str:
        if not isinstance(value, dict | Declared):
            return "<text>"
        by_name = isinstance(value, dict) and named and keys.isdisjoint(value)
        return "<names>" if by_name or not keyed else "<keys>"

    kinds = (("<text>", scalars), ("<keys>", keyed), ("<names>", named))
    tagged = [_annotated(read_as(each[0]), [Tag(tag)]) for tag, each in kinds if each]
    chosen = _annotated(Union[tuple(tagged)], [Discriminator(kind)])  # noqa: UP007
    return _optional(Union[options], chosen)  # noqa: UP007


def _is_declared(hint: Any) -> bool:
    bare = _unannotated(hint)
    return isinstance(bare, type) and issubclass(bare, Declared)


def _unannotated(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _optional(hint: Any, written: Any) -> Any:
    """``written``, or ``None`` if a value of this type may be ``None``."""
    return Union[written, None] if type(None) in get_args(hint) else written  # noqa: UP007


def _entries(declared: type[Declared]) -> tuple[Any, list[Any], list[Any]]:
    """A mapping in the file, whose entries know their keys in the model."""
    found = key_field(declared)
    name, hint = found if found else ("", str)
    entry: Any = _annotated(declared, [BeforeValidator(_empty_for_null)])

    def named(entries: dict[str, Declared]) -> tuple[Declared, ...]:
        return tuple(replace(each, **{name: key}) for key, each in entries.items())

    return dict[read_as(hint), entry], [], [AfterValidator(named)]  # type: ignore[misc]


def _empty_for_null(value: object) -> object:
    """``node-a:`` without a value is a node with all defaults."""
    return {} if value is None else value


def _annotated(hint: Any, attached: list[Any]) -> Any:
    return Annotated[hint, *attached] if attached else hint
