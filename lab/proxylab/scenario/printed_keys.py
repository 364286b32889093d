"""``Declared`` records as plain data, in the form in which an author writes them. Reading the data gives the same."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from proxylab.addresses import IPAddress, IPInterface, IPNetwork
from proxylab.scenario.keys import Declared, declared_keys, key_field

__all__ = ["printed"]


def printed(record: Declared) -> dict[str, Any]:
    """The keys of a record that differ from their defaults."""
    return {
        key.alias: key.written(_plain(value))
        for key in declared_keys(type(record))
        if (value := getattr(record, key.name)) != key.default
    }


def _plain(value: Any) -> Any:
    match value:
        case Declared():
            return printed(value)
        case tuple() if value and isinstance(value[0], Declared) and (field := key_field(type(value[0]))):
            return {getattr(each, field[0]): printed(each) for each in value}
        case tuple():
            return list(map(_plain, value))
        case Mapping():
            return {key: _plain(each) for key, each in value.items()}
    return str(value) if isinstance(value, StrEnum | IPAddress | IPInterface | IPNetwork) else value
