"""``Declared`` records as plain data, in the form in which an author writes them. Reading the data gives the same."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from proxylab.addresses import IPAddress, IPInterface, IPNetwork
from proxylab.scenario.keys import Declared, declared_keys, key_field

__all__ = ["printed"]


def printed(value: Any) -> Any:
    """A record, without the keys that have their defaults, or another value of a record's field."""
    match value:
        case Declared():
            return {
                key.alias: key.written(printed(inner))
                for key in declared_keys(type(value))
                if (inner := getattr(value, key.name)) != key.default
            }
        case tuple() if value and isinstance(value[0], Declared) and (field := key_field(type(value[0]))):
            return {getattr(each, field[0]): printed(each) for each in value}
        case tuple():
            return list(map(printed, value))
        case Mapping():
            return {key: printed(each) for key, each in value.items()}
    return str(value) if isinstance(value, StrEnum | IPAddress | IPInterface | IPNetwork) else value
