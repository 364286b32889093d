"""Options of the command line as records, which verbs share.

A field of an ``Options`` record is an option: it is annotated with its type and an ``Option``, or with several that
set it. A field may also be such a record. ``takes`` adds the options to a command, and hands it the records.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, wraps
from typing import Annotated, Any, Self, TypeVar, cast, get_args, get_origin, get_type_hints

import click
from msgspec import Struct

Command = TypeVar("Command", bound=Callable[..., Any])


class Option(Struct, frozen=True):
    """An option: how a user spells it, and what else ``click.option`` takes."""

    spelt: str
    attributes: Mapping[str, Any]


def option(spelt: str, **attributes: Any) -> Option:
    """An option for a field; the arguments are those of ``click.option``."""
    return Option(spelt, attributes)


class Options(Struct, frozen=True, kw_only=True):
    """Options that belong together."""

    @classmethod
    def taken_from(cls, given: dict[str, Any]) -> Self:
        """The record of these values by field, which it takes out of ``given``."""
        fields = {
            name: hint.taken_from(given) if _is_record(hint) else given.pop(name) for name, hint in _hints(cls).items()
        }
        return cls(**fields)


def options_of(record: type[Options]) -> Iterator[tuple[str, Option]]:
    """The options of a record, each with its field, in order."""
    for name, hint in _hints(record).items():
        if _is_record(hint):
            yield from options_of(hint)
        elif get_origin(hint) is Annotated:
            yield from ((name, each) for each in get_args(hint)[1:] if isinstance(each, Option))


def takes(**records: type[Options]) -> Callable[[Command], Command]:
    """Add the options of the records to a command, whose arguments of these names are the records."""

    def decorate(command: Command) -> Command:
        @wraps(command)
        def with_records(*arguments: Any, **given: Any) -> Any:
            made = {name: record.taken_from(given) for name, record in records.items()}
            return command(*arguments, **given, **made)

        taking = cast("Command", with_records)
        for name, each in reversed([each for record in records.values() for each in options_of(record)]):
            taking = click.option(each.spelt, name, **each.attributes)(taking)
        return taking

    return decorate


@cache
def _hints(record: type[Options]) -> dict[str, Any]:
    return get_type_hints(record, include_extras=True)


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Options)
