"""How many examples a property is tried with, and which rows of a long table every run tries.

Few examples by default, so that all properties together take seconds, and the same ones in every run, so that a red one
is red for a change. ``LAB_THOROUGH=20`` tries twenty times as many, drawn anew each time.
"""

import os
from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

import pytest
from changes import names_a_changed_scenario

__all__ = ["examples", "sentinels"]

Row = TypeVar("Row")


def examples(few: int) -> int:
    """``few``, or as many times that as the environment asks for."""
    return few * max(1, int(os.environ.get("LAB_THOROUGH", "1")))


def sentinels(
    rows: Iterable[Row],
    kind: Callable[[Row], Hashable],
    name: Callable[[Row], str],
    *,
    few: Callable[[Row], Hashable] | None = None,
    concern: str = "",
) -> list[Any]:
    """The rows as cases of a test: the first of each kind runs in every run, and the others are thorough.

    Where ``few`` says coarser kinds, every run has the first of each of these, and the others that are the first of
    their kind belong to a concern. A row whose name has a scenario that changed always runs.
    """
    known, ran = set[Hashable](), set[Hashable]()
    cases = []
    for row in rows:
        marks = []
        if kind(row) in known:
            marks = [pytest.mark.thorough]
        elif few is not None and few(row) in ran:
            marks = [getattr(pytest.mark, concern)]
        known.add(kind(row))
        ran.add(few(row) if few is not None else None)
        cases.append(pytest.param(row, id=name(row), marks=[] if names_a_changed_scenario(name(row)) else marks))
    return cases
