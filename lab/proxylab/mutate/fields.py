"""What a field of a record can become, by the type of its value.

Owns ``changes``. It knows no field by name, so a new field of a record has mutants at once. A list becomes shorter by
its first or its last element; two of its elements exchange what they have; and its first and its last element change
in each of their fields, so that a fault which meets only the second port is a mutant, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields, replace

from proxylab.addresses import IPAddress, IPNetwork

FIRST: Final = "[first]"
LAST: Final = "[last]"
_UPPER: Final = ("ip", "ips", "cidr", "cidrs", "arp")
"""Parts of names that Kubernetes writes in capitals, but for a plural's s."""


def key_of(field: str) -> str:
    """The name of a field as Kubernetes writes it.

    Example:
        >>> [key_of(each) for each in ("node_port", "cluster_ips", "address_type")]
        ['nodePort', 'clusterIPs', 'addressType']
    """
    first, *rest = field.split("_")
    return first + "".join(each.upper().replace("S", "s") if each in _UPPER else each.title() for each in rest)


class FieldChange(NamedTuple):
    """Another value of a record, or of a part of one: where it differs, as a path, and how, in words."""

    path: str
    change: str
    value: Any


def changes(record: Struct) -> Iterator[FieldChange]:
    """The record with another value, once for each that a field can have."""
    for each in fields(record):
        default = each.default if each.default is not NODEFAULT else each.default_factory
        if callable(default):
            default = default()
        for path, change, value in _changed(getattr(record, each.name), default):
            yield FieldChange(f".{key_of(each.name)}{path}", change, replace(record, **{each.name: value}))


def _changed(value: Any, default: Any) -> Iterator[FieldChange]:
    """Other values in place of a value; ``default`` is that of an absent field."""
    if value is None:
        return
    if default is not NODEFAULT and value != default and not isinstance(value, bool | StrEnum | Mapping | tuple):
        yield FieldChange("", "left out", default)
    match value:
        case Struct():
            yield from changes(value)
        case Mapping():
            yield from _of_mapping(value)
        case tuple():
            yield from _of_list(value)
        case _:
            yield from (FieldChange("", change, new) for change, new in _of_plain(value))


def _of_plain(value: object) -> Iterator[tuple[str, object]]:
    match value:
        case bool():
            yield "turned off" if value else "turned on", not value
        case StrEnum():
            yield from ((f"as {each}", each) for each in type(value) if each is not value)
        case str() if value:
            yield "another", f"{value}x"
        case int() | float() if value:
            yield "one more", value + 1
        case _:
            yield from _of_address(value)


def _of_address(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, IPAddress):
        yield "one more", value + 1
    elif isinstance(value, IPNetwork):
        if value.prefixlen < value.max_prefixlen:
            yield "one bit longer", next(value.subnets())
        if value.prefixlen:
            yield "one bit shorter", value.supernet()


def _of_mapping(value: Mapping[str, Any]) -> Iterator[FieldChange]:
    """Each key by itself, but labels without a domain, which belong to users."""
    for key, held in value.items():
        if "/" in key or isinstance(held, bool):
            rest = {other: each for other, each in value.items() if other != key}
            yield FieldChange(f"[{key}]", "left out", rest)
            for made in _changed(held, NODEFAULT):
                yield FieldChange(f"[{key}]", made.change, {**value, key: made.value})


def _of_list(value: Sequence[Any]) -> Iterator[FieldChange]:
    if value:
        yield FieldChange("", "left out", ())
        for made in _changed(value[0], NODEFAULT):
            yield FieldChange(f"{FIRST}{made.path}", made.change, (made.value, *value[1:]))
    if len(value) < 2:
        return
    yield FieldChange("", "without the first", value[1:])
    yield FieldChange("", "without the last", value[:-1])
    *before, last = value
    for made in _changed(last, NODEFAULT):
        yield FieldChange(f"{LAST}{made.path}", made.change, (*before, made.value))
    if not isinstance(last, Struct):
        yield FieldChange("", "first and last exchanged", (last, *value[1:-1], value[0]))
        return
    for each in fields(last):
        mine, other = getattr(value[0], each.name), getattr(last, each.name)
        ends = replace(value[0], **{each.name: other}), replace(last, **{each.name: mine})
        if mine != other and ends[0] != last:  # else only their order changes
            yield FieldChange(f"[].{key_of(each.name)}", "exchanged", (ends[0], *value[1:-1], ends[1]))
