"""Documents that were mangled on their way: values gone, or others than they were; texts cut, repeated or mixed."""

import copy
import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

__all__ = ["mangled", "mangled_text", "mangler", "places"]

ODD = [
    *(None, "", 0, -1, True, [], {}, "x", [None], {"a": 1}, ["x"], 3.5, 1e308, 2**64, -(2**63), "\x00", "\u202e", "é"),
    *(
        "fd00::1",
        "10.0.0.1",
        "10.0.0.0/8",
        "::/0",
        "300.1.1.1",
        99_999,
        "99999",
        "None",
        "null",
        [[[[[]]]]],
        "x" * 5000,
    ),
]
_MARKS = (
    "[",
    "]",
    "{",
    "}",
    ":",
    ",",
    "-",
    "&a ",
    "*a",
    "!!",
    "|",
    ">",
    '"',
    "'",
    "\n",
    "\t",
    "<<: *a",
    "---\n",
    "<",
    "&x;",
)


def places(value: Any, path: tuple[Any, ...] = (), left_out: Sequence[str] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a document, except those below the keys ``left_out``."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        if key not in left_out:
            yield (*path, key)
            yield from places(inner, (*path, key), left_out)


def mangled(whole: Any, known: Sequence[tuple[Any, ...]], chance: random.Random) -> Any:
    """A copy of a document with up to three values gone, exchanged with others of its own, or odd."""
    whole = copy.deepcopy(whole)
    for _ in range(chance.randint(1, 3)):
        *path, last = chance.choice(known)
        holder = whole
        try:
            for key in path:
                holder = holder[key]
            match chance.randrange(10):
                case 0 | 1 | 2:
                    del holder[last]
                case 3 if isinstance(holder, list):
                    holder.append(copy.deepcopy(holder[last]))
                case 4 | 5:
                    holder[last] = copy.deepcopy(_at(whole, chance.choice(known)))
                case _:
                    holder[last] = chance.choice(ODD)
        except (LookupError, TypeError):
            pass  # what stood there is gone already
    return whole


def _at(whole: Any, path: Sequence[Any]) -> Any:
    for key in path:
        whole = whole[key]
    return whole


def mangled_text(text: str, chance: random.Random) -> str:
    """A text with up to four pieces taken out, repeated, moved, or marks of its syntax put in."""
    for _ in range(chance.randint(1, 4)):
        start = chance.randint(0, len(text))
        end = min(len(text), start + chance.choice((0, 1, 3, 10, 60, 1000)))
        from_here = chance.randint(0, len(text))
        piece = chance.choice((chance.choice(_MARKS), text[start:end] * 2, text[from_here : from_here + 40], ""))
        text = text[:start] + piece + text[end:]
    return text


def mangler(text: str, left_out: Sequence[str] = ()) -> Callable[[random.Random], str]:
    """Makes mutants of a JSON document: of its values mostly, and of its text."""
    whole = json.loads(text)
    known = [*places(whole, left_out=left_out)]

    def one(chance: random.Random) -> str:
        return mangled_text(text, chance) if chance.randrange(5) == 0 else json.dumps(mangled(whole, known, chance))

    return one
