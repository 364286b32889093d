"""Durations on the command line: read ``8h`` and ``1h30m``, and write an age as kubectl does."""

import re
from typing import Final

import click

_SECONDS_OF_UNIT: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_WHOLE: Final = re.compile(r"(\d+[smhd])+")
_LONGEST_SECONDS: Final = 30 * 86400


class Duration(click.ParamType[float]):
    """A time such as ``90s``, ``45m``, ``8h`` or ``1h30m``, in seconds."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The duration in seconds."""
        if isinstance(value, float):
            return value
        text = str(value)
        if _WHOLE.fullmatch(text) is None:
            self.fail(f"{text!r} is not a duration; write it as 90s, 45m, 8h, 1h30m or 2d", param, ctx)
        seconds = float(sum(int(part[:-1]) * _SECONDS_OF_UNIT[part[-1]] for part in re.findall(r"\d+[smhd]", text)))
        if not 0 < seconds <= _LONGEST_SECONDS:
            self.fail(f"{text!r} is not between 1s and 30d; choose another", param, ctx)
        return seconds


def age(seconds: float) -> str:
    """A time in two units at most, as kubectl shows ages.

    Example:
        >>> age(0), age(200), age(7300), age(28800), age(200000)
        ('0s', '3m20s', '2h1m', '8h', '2d7h')
    """
    whole = int(seconds)
    units = [("d", 86400), ("h", 3600), ("m", 60), ("s", 1)]
    for number, (letter, size) in enumerate(units):
        if whole >= size:
            rest, next_letter, next_size = whole % size, *(units[number + 1] if size > 1 else ("", 1))
            more = rest // next_size if next_letter else 0
            return f"{whole // size}{letter}" + (f"{more}{next_letter}" if more else "")
    return "0s"
