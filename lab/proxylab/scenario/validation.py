"""``validated``: check a value of a document by its declaration, with a plain message for each of pydantic's errors."""

from collections.abc import Iterable
from enum import StrEnum
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import Tag, ValidationError
from pydantic_core import ErrorDetails

from proxylab.errors import InternalError
from proxylab.scenario.document import Location, Path, Problems, describe, in_yaml, listed
from proxylab.scenario.keys import Declared, Manifest, RefusedError, WrittenAs, declared_keys, other_keys
from proxylab.scenario.reading import read, read_as

__all__ = ["validated"]

Wanted = TypeVar("Wanted", bound=Declared)

_ON_KEY = ("[key]",)
"""The end of pydantic's location for an error in a mapping's key."""


def validated(declared: type[Wanted], where: Location, problems: Problems) -> Wanted | None:
    """The value at ``where`` as that record, without positions, or ``None`` after noting its mistakes."""
    try:
        return read(declared, where.value)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            _tell(detail, declared, where, problems)
        return None


def _tell(detail: ErrorDetails, declared: Any, root: Location, problems: Problems) -> None:
    kind, location, given = detail["type"], detail["loc"], detail["input"]
    where = _location(root, location)
    refusal = detail.get("ctx", {}).get("error")
    if isinstance(refusal, RefusedError):
        problems.add(where.key if location[-1:] == _ON_KEY else where.spot, **refusal.problem)
    elif kind == "missing":
        problems.add(where[location[-1]].key, "is missing", allowed=_what_to_add(declared, location))
    elif kind == "extra_forbidden":
        found = _annotation_at(declared, location[:-1])
        known = [*_keys(found)]
        word = str(location[-1])
        if word in found.meant:
            problems.add(where.key, "unknown key", allowed=found.meant[word])
        else:
            problems.add(where.key, "unknown key", allowed=f"allowed: {listed(known)}", word=word, known=known)
    elif kind == "string_type":
        quotes = "put it in quotes" if isinstance(given, int | float) else ""
        problems.add(where.spot, f"must be text, is {describe(given)}", allowed=quotes)
    elif kind in ("too_short", "string_too_short"):
        problems.add(where.spot, "must not be empty")
    elif kind in _WANTED:
        problems.add(where.spot, f"must be {_WANTED[kind]}, is {describe(given)}")
    else:
        raise InternalError(f"{where.spot.position}: no message for pydantic's {kind!r}; please report this file")


_WANTED = {
    "int_type": "a whole number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
}


def _location(root: Location, location: Iterable[str | int]) -> Location:
    """The place of a pydantic error. Its location also holds tags of unions and keys that a validator added."""
    where = root
    for part in location:
        if where[part].exists:
            where = where[part]
    return where


def _what_to_add(declared: Any, location: Path) -> str:
    """The words that the key at ``location`` may have, if they are a closed set; otherwise an example."""
    found, owner = _annotation_at(declared, location), _annotation_at(declared, location[:-1])
    if isinstance(found, type) and issubclass(found, StrEnum):
        return f"allowed: {listed(found)}"
    examples = next(key.key.examples for key in declared_keys(owner) if key.alias == location[-1])
    return f"add it, such as {location[-1]}: {in_yaml(examples[0])}" if examples else "add it"


def _annotation_at(declared: Any, location: Path) -> Any:
    reached: Any = declared
    for part in location:
        reached = _step(reached, part)
    return _bare(reached)


def _step(annotation: Any, part: str | int) -> Any:
    """The annotation of the entry ``part`` of a value with this annotation."""
    annotation = _bare(annotation)
    arguments = get_args(annotation)
    match get_origin(annotation):
        case origin if origin in (Union, UnionType):
            tagged = [option for option in arguments if Tag(str(part)) in getattr(option, "__metadata__", ())]
            steps = tagged or [_step(option, part) for option in arguments]
            return next((step for step in steps if step is not None), None)
        case origin if origin in (dict, list):
            return arguments[-1]
        case _ if isinstance(annotation, type) and issubclass(annotation, Declared):
            others = other_keys(annotation)
            return _keys(annotation).get(str(part), read_as(others[1]) if others else None)
    return None


def _keys(declared: type[Declared]) -> dict[str, Any]:
    """The declared keys of a mapping, each with its annotation."""
    known = {key.alias: read_as(key.hint) for key in declared_keys(declared)}
    return {**known, **dict.fromkeys(declared.without_effect, Any)} if issubclass(declared, Manifest) else known


def _bare(annotation: Any) -> Any:
    """An annotation without its metadata, and without ``None`` if that is the only alternative."""
    while True:
        if get_origin(annotation) is Annotated:
            bare, *attached = get_args(annotation)
            form = next((each for each in attached if isinstance(each, WrittenAs)), None)
            annotation = bare if form is None else read_as(form.written)
            continue
        options = [option for option in get_args(annotation) if option is not type(None)]
        if get_origin(annotation) in (Union, UnionType) and len(options) == 1:
            annotation = options[0]
            continue
        return annotation
