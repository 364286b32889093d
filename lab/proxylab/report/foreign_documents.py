"""Documents that others wrote: reports of earlier runs, and bundles. What they say is shown on a terminal and on pages.

Their authors chose the names and reasons in them. So ``decode_printable`` makes all text printable, and keeps each text
in one line. The judge compares texts of one document with each other only, so the verdicts stay the same.
"""

from json import loads
from typing import Final, TypeVar

from proxylab.encoding import decode, encode
from proxylab.text import printable

T = TypeVar("T")

_OF_SEVERAL_LINES: Final = ("message",)
"""The keys of texts that may have several lines: an engine's error ends with its log."""


def decode_printable(data: bytes, hint: type[T]) -> T:
    """The value of type ``hint`` in JSON, with printable text only. Raises ``MisfitError``."""
    try:
        data = encode(_printable(loads(data), ""))
    except (ValueError, RecursionError):
        return decode(data, hint)  # it says in one form of message what is wrong
    return decode(data, hint)


def _printable(value: object, keep: str) -> object:
    match value:
        case str():
            return printable(value, keep)
        case list():
            return [_printable(each, keep) for each in value]
        case dict():
            return {
                printable(key, keep=""): _printable(each, "\n\t" if key in _OF_SEVERAL_LINES else "")
                for key, each in value.items()
            }
    return value
