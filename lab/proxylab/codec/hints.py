"""The coder for a type hint, made once per type."""

import dataclasses
import functools
import ipaddress
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any

from msgspec import Struct

from proxylab.codec.columns import Choice, Coder, Fixed, Many, Map, Plain, Text
from proxylab.codec.records import Fields, Record, Table, names
from proxylab.codec.unions import Union

__all__ = ["coder", "name"]

_PLAIN: dict[object, Coder] = {
    str: Plain(str),
    bool: Plain(bool),
    int: Plain(int),
    # JSON does not distinguish 1.0 from 1, and other writers write the latter.
    float: Plain(float, int),
    types.NoneType: Plain(types.NoneType),
}
_ADDRESSES = (
    (ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.ip_address),
    (ipaddress.IPv4Interface, ipaddress.IPv6Interface, ipaddress.ip_interface),
    (ipaddress.IPv4Network, ipaddress.IPv6Network, ipaddress.ip_network),
)
_ADDRESS = {cls: Text((cls,), cls) for four, six, _ in _ADDRESSES for cls in (four, six)}
_ADDRESS_PAIR = {frozenset({four, six}): Text((four, six), parse) for four, six, parse in _ADDRESSES}


def name(hint: object) -> str:
    """A hint at the start of a path: the class's name, or the hint itself."""
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)


@functools.cache
def coder(hint: Any) -> Coder:
    """The coder for values of type ``hint``.

    Raises:
        TypeError: no coder carries values of this type.
    """
    if hint in _PLAIN:
        return _PLAIN[hint]
    if hint in _ADDRESS:
        return _ADDRESS[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _union(arguments)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        item = arguments[0]
        return Table(_fields(item)) if _is_record(item) and names(item) else Many(coder(item))
    if origin is tuple and arguments:
        return Fixed(tuple, [coder(item) for item in arguments], [f"[{index}]" for index in range(len(arguments))])
    if origin is Mapping and arguments[0] is str:
        return Map(coder(arguments[1]))
    return _class(hint)


def _class(hint: Any) -> Coder:
    if _is_record(hint):
        return Record(_fields(hint))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return Choice(hint)
    if isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields"):
        hints = typing.get_type_hints(hint)
        return Fixed(hint, [coder(item) for item in hints.values()], [f".{field}" for field in hints])
    raise TypeError(f"no coder for {name(hint)}; proxylab.codec lists the types it can carry")


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and (dataclasses.is_dataclass(hint) or issubclass(hint, Struct))


def _fields(cls: type) -> Fields:
    hints = typing.get_type_hints(cls)
    return Fields(cls, {name: coder(hints[name]) for name in names(cls)})


def _union(arguments: tuple[Any, ...]) -> Coder:
    """A union; the two families of an address type are one member, since their texts differ."""
    left = set(arguments)
    members: list[Coder] = []
    for pair, text in _ADDRESS_PAIR.items():
        if pair <= left:
            left -= pair
            members.append(text)
    members += [coder(argument) for argument in arguments if argument in left]
    return members[0] if len(members) == 1 else Union(members)
