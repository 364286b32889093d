"""How many examples a property is tried with.

Few by default, so that all properties together take seconds, and the same ones in every run, so that a red one is red
for a change. ``LAB_THOROUGH=20`` tries twenty times as many, drawn anew each time.
"""

import os

__all__ = ["examples"]


def examples(few: int) -> int:
    """``few``, or as many times that as the environment asks for."""
    return few * max(1, int(os.environ.get("LAB_THOROUGH", "1")))
