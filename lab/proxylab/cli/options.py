"""Options and arguments of the command line, each declared once: where its value has its name and type.

``takes`` reads them from the keywords of a verb's command. A keyword is annotated with its type and an option, or with
several that set it; an alias such as ``Color`` is one that verbs share. Or a keyword is a record of options, whose
fields are annotated so, or are such records: those of a verb that has many, or that several verbs share.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, wraps
from typing import Any, Self, TypeVar, cast, get_type_hints

import click
from msgspec import Struct

Command = TypeVar("Command", bound=Callable[..., Any])
Hints = Mapping[str, Any]


class Option(Struct, frozen=True):
    """An option: how a user spells it, short forms first, and what else ``click.option`` takes.

    An argument has no spelling.
    """

    spellings: tuple[str, ...]
    attributes: Mapping[str, Any]

    @property
    def spelt(self) -> str:
        """The spelling that messages use."""
        return self.spellings[-1]


def option(*spellings: str, **attributes: Any) -> Option:
    """An option for a keyword or field; the arguments are those of ``click.option``."""
    return Option(spellings, attributes)


def argument(**attributes: Any) -> Option:
    """An argument for a keyword or field; the arguments are those of ``click.argument``."""
    return Option((), attributes)


class Options(Struct, frozen=True, kw_only=True):
    """Options that belong together."""

    @classmethod
    def taken_from(cls, given: dict[str, Any]) -> Self:
        """The record of these values by field, which it takes out of ``given``."""
        return cls(**_values(_fields(cls), given))


def options_of(record: type[Options]) -> Iterator[tuple[str, Option]]:
    """The options of a record, each with its field, in order."""
    return _declared(_fields(record))


def takes(command: Command) -> Command:
    """Add the options and arguments that the keywords of a command declare, in their order."""
    keywords = get_type_hints(command, include_extras=True)
    own = {name: hint for name, hint in keywords.items() if _is_record(hint) or _options_at(hint)}

    @wraps(command)
    def with_options(*arguments: Any, **given: Any) -> Any:
        values = _values(own, given)
        return command(*arguments, **given, **values)

    taking = cast("Command", with_options)
    for name, each in reversed(list(_declared(own))):
        add = click.option if each.spellings else click.argument
        taking = add(*each.spellings, name, **each.attributes)(taking)
    return taking


def _declared(hints: Hints) -> Iterator[tuple[str, Option]]:
    for name, hint in hints.items():
        if _is_record(hint):
            yield from options_of(hint)
        else:
            yield from ((name, each) for each in _options_at(hint))


def _values(hints: Hints, given: dict[str, Any]) -> dict[str, Any]:
    """The value of each name, which it takes out of ``given``."""
    return {name: hint.taken_from(given) if _is_record(hint) else given.pop(name) for name, hint in hints.items()}


@cache
def _fields(record: type[Options]) -> Hints:
    return get_type_hints(record, include_extras=True)


def _options_at(hint: Any) -> list[Option]:
    """The options with which a type is annotated."""
    return [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Option)]


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Options)
