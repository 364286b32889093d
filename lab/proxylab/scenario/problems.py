"""``Problems``: the mistakes of one file, collected and raised together, in one form of message, with did-you-mean."""

import difflib
import json
from collections.abc import Iterable
from itertools import islice

from msgspec import Struct

from proxylab.errors import ScenarioError
from proxylab.scenario.document import Spot, path_text

__all__ = ["Problem", "Problems", "describe", "in_yaml", "listed", "nearest", "shown"]

_MOST_TOLD = 200
"""A file with more problems than this has one cause, which the first problems show."""

_LONGEST_LINE = 1000
_MOST_SHOWN = 60
_MOST_LISTED = 12
_MOST_COMPARED = 2000


class Problem(Struct, frozen=True, kw_only=True):
    """One mistake. ``word`` is what the author wrote; ``known`` are the words that the author may have meant."""

    spot: Spot
    what: str
    allowed: str = ""
    word: str = ""
    known: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [str(self.spot.position), path_text(self.spot.path), self.what]
        text = ": ".join(filter(None, parts))
        if self.allowed:
            text += f"; {self.allowed}"
        if meant := nearest(self.word, self.known):
            text += f"; did you mean {meant!r}?"
        return _one_line(text)


class Problems:
    """The mistakes of one file so far."""

    def __init__(self) -> None:
        self._found: dict[Spot, Problem] = {}

    def __len__(self) -> int:
        return len(self._found)

    def add(self, spot: Spot, what: str, *, allowed: str = "", word: str = "", known: Iterable[str] = ()) -> None:
        """Note one problem, unless this spot has one already.

        The earliest reader wins: a value that is not valid YAML is not reported as missing too.

        Args:
            spot: the key or value at fault.
            what: the mistake.
            allowed: the allowed values, or what to do.
            word: what the author wrote, for a suggestion from ``known``.
            known: the names or words that this place allows.
        """
        problem = Problem(spot=spot, what=what, allowed=allowed, word=word, known=tuple(known))
        self._found.setdefault(spot, problem)

    def raise_any(self) -> None:
        """Raise the problems, in the order of the file, and file by file if there are manifest files.

        Raises:
            ScenarioError: with a line for each problem.
        """
        if not self._found:
            return
        ordered = sorted(
            self._found.values(),
            key=lambda problem: (
                problem.spot.position.file,
                problem.spot.position.line,
                problem.spot.position.column,
            ),
        )
        lines = [str(problem) for problem in ordered[:_MOST_TOLD]]
        if untold := ordered[_MOST_TOLD:]:
            lines.append(f"{untold[0].spot.position}: and {len(untold)} more problems from here on")
        raise ScenarioError(lines)


def _one_line(text: str) -> str:
    """A message on one line: bounded, with unprintable characters escaped."""
    if len(text) > _LONGEST_LINE:
        text = text[: _LONGEST_LINE - 1] + "…"
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that the author probably meant, or an empty string.

    Example:
        >>> nearest("servce", ["service", "pod"])
        'service'
    """
    if not word or len(word) > _MOST_SHOWN:
        return ""

    by_lower = {candidate.lower(): candidate for candidate in islice(known, _MOST_COMPARED)}
    if word in by_lower.values():
        return ""
    close = difflib.get_close_matches(word.lower(), by_lower, n=1)
    return by_lower[close[0]] if close else ""


def shown(value: object) -> str:
    """A value of the file for a message: on one line, printable, bounded."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return repr(str(value) if len(value) <= _MOST_SHOWN else value[: _MOST_SHOWN - 1] + "…")
    return str(value)


def describe(value: object) -> str:
    """The kind of value that the author wrote, in a few words."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "empty"
    if isinstance(value, str):
        return f"the text {shown(value)}"
    return shown(value) if isinstance(value, bool) else f"the number {shown(value)}"


def listed(names: Iterable[str]) -> str:
    """Names for a message: all of them, or the first few and how many more there are."""
    every = list(names)
    if len(every) <= _MOST_LISTED:
        return ", ".join(every) or "none"
    return ", ".join(every[:_MOST_LISTED]) + f" and {len(every) - _MOST_LISTED} more"


def in_yaml(value: object) -> str:
    """A value in YAML's flow style, quoted only where YAML needs quotes."""
    match value:
        case dict():
            return "{" + ", ".join(f"{key}: {in_yaml(inner)}" for key, inner in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(in_yaml, value)) + "]"
        case str() if any(mark in value for mark in ":#{}[],&*!|>'\"%@`") and not value.startswith("http"):
            return json.dumps(value)
        case str():
            return value
        case _:
            return json.dumps(value)
