"""How many examples a property is tried with, and which rows of a long table every run tries.

Few examples by default, so that all properties together take seconds, and the same ones in every run, so that a red one
is red for a change. ``LAB_THOROUGH=20`` tries twenty times as many, drawn anew each time.
"""

import os
from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

import pytest

__all__ = ["examples", "sentinels"]

Row = TypeVar("Row")


def examples(few: int) -> int:
    """``few``, or as many times that as the environment asks for."""
    return few * max(1, int(os.environ.get("LAB_THOROUGH", "1")))


def sentinels(rows: Iterable[Row], kind: Callable[[Row], Hashable], name: Callable[[Row], str]) -> list[Any]:
    """The rows as cases of a test: the first of each kind runs in every run, and the others are thorough."""
    known = set[Hashable]()
    cases = []
    for row in rows:
        cases.append(pytest.param(row, id=name(row), marks=[pytest.mark.thorough] if kind(row) in known else []))
        known.add(kind(row))
    return cases
