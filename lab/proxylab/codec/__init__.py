"""Frozen dataclasses to JSON and back, by their type hints.

The lab's data crosses processes and goes to files in this form only. The codec carries dataclasses, enums, named
tuples, ``str``, ``int``, ``float``, ``bool``, ``None``, ``ipaddress`` objects, ``tuple[X, ...]``, ``tuple[X, Y]``,
``Mapping[str, X]`` and unions of these.

Three rules give the form:

* A dataclass becomes an object of the fields that differ from their defaults. Only where a hint is a union of several
  dataclasses does the object carry its class's name, under ``"is"``: the reader then knows which of them to build.
* ``tuple[X, ...]`` of one dataclass becomes a table: an object of columns, one list for each field, without those that
  hold only the default. ``spelling`` shortens a long column of few different texts. A run carries tens of
  thousands of observations; field names and a container for each would be most of the work.
* Everything else becomes its JSON type; enums their value, addresses their usual text.

A coder, made once per type, works on a column of values: type checks and conversions of a table then run as loops in
the interpreter's C code, in a fifth of the time of a walk over values.
Both directions are strict: a value that does not fit its hint is a ``CodecError``, never a guess.
"""

import json
from typing import Any, TypeVar, overload

from proxylab.codec.columns import MisfitError
from proxylab.codec.hints import coder, name

__all__ = ["CodecError", "decode", "dumps", "encode", "loads"]

T = TypeVar("T")


class CodecError(ValueError):
    """A value or a document does not fit its type. The message starts with the path to it.

    The caller knows whether the author of a file or the lab is at fault.
    """


def encode(value: object, hint: object) -> Any:
    """``value``, which is of type ``hint``, as lists, dicts, strings, numbers, booleans and ``None``.

    Raises:
        CodecError: a value inside does not fit its hint.
        TypeError: this package cannot carry ``hint``.
    """
    try:
        return coder(hint).encode([value])[0]
    except MisfitError as misfit:
        raise CodecError(f"{name(hint)}{misfit.trail}: {misfit.message}") from None


@overload
def decode(data: object, hint: type[T]) -> T: ...
@overload
def decode(data: object, hint: object) -> Any: ...
def decode(data: object, hint: object) -> Any:
    """The value of type ``hint`` from which ``encode`` made ``data``.

    Raises:
        CodecError: ``data`` does not fit ``hint``.
        TypeError: this package cannot carry ``hint``.
    """
    try:
        return coder(hint).decode([data])[0]
    except MisfitError as misfit:
        raise CodecError(f"{name(hint)}{misfit.trail}: {misfit.message}") from None


def dumps(value: object, hint: object) -> bytes:
    """``encode``, as compact ASCII JSON. Raises what ``encode`` raises; infinities and NaN are a ``CodecError``."""
    data = encode(value, hint)
    try:
        return json.dumps(data, separators=(",", ":"), allow_nan=False).encode("ascii")
    except ValueError as error:
        raise CodecError(f"{name(hint)}: {error}") from None


@overload
def loads(data: bytes, hint: type[T]) -> T: ...
@overload
def loads(data: bytes, hint: object) -> Any: ...
def loads(data: bytes, hint: object) -> Any:
    """``decode`` of a JSON document. Raises what ``decode`` raises; a document that is no JSON is a ``CodecError``."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CodecError(f"{name(hint)}: not JSON: {error}") from None
    return decode(document, hint)
