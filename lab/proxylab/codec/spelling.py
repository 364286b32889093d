"""Long columns of few different texts, spelled: each text once, and for every row a letter that stands for it.

In tens of thousands of observations seven columns hold names, addresses and kinds. JSON reads one long string in a
hundredth of the time of many short ones, and the reader decodes each text once, not for each row.
"""

import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from proxylab.codec.columns import WHOLE, MisfitError, show

__all__ = ["length_of", "read_spelled", "spelled"]

_TEXTS, _ROWS = "texts", "rows"
_LETTERS: Final = string.ascii_letters + string.digits
_WORTH_IT: Final = 256
"""Shorter columns stay lists, which are easier to read."""


def spelled(column: Sequence[Any]) -> Sequence[Any] | dict[str, Any]:
    """The spelled form of a long encoded column of few texts; else the column itself."""
    if len(column) < _WORTH_IT or len({text for text in column[:_WORTH_IT] if type(text) is str}) > len(_LETTERS):
        return column
    if {*map(type, column)} != {str}:
        return column
    texts = list(dict.fromkeys(column))
    if len(texts) > len(_LETTERS):
        return column
    letters = dict(zip(texts, _LETTERS, strict=False))
    return {_TEXTS: texts, _ROWS: "".join(map(letters.__getitem__, column))}


def length_of(given: Any) -> int | None:
    """The number of rows of a column from a document, spelled or not; ``None`` for anything else."""
    if type(given) is list:
        return len(given)
    if type(given) is dict and given.keys() == {_TEXTS, _ROWS} and type(given[_ROWS]) is str:
        return len(given[_ROWS])
    return None


def read_spelled(given: Mapping[str, Any], decode: Callable[[Sequence[Any]], Sequence[Any]]) -> Sequence[Any]:
    """The values of a spelled column; ``decode`` decodes its texts.

    Raises:
        MisfitError: for the first row whose text does not fit, or whose letter stands for none.
    """
    texts, rows = given[_TEXTS], given[_ROWS]
    if type(texts) is not list or len(texts) > len(_LETTERS):
        raise MisfitError(WHOLE, f"expected at most {len(_LETTERS)} texts, found {show(texts)}")
    try:
        values = decode(texts)
    except MisfitError as misfit:
        raise misfit.below(rows.find(_LETTERS[misfit.index]), "") from None
    by_letter = dict(zip(_LETTERS, values, strict=False))
    try:
        return list(map(by_letter.__getitem__, rows))
    except KeyError as stranger:
        letter = stranger.args[0]
        raise MisfitError(rows.index(letter), f"{letter!r} stands for none of {len(texts)} texts") from None
