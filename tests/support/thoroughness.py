"""How many examples a property is tried with.

Few by default, so that all properties together take seconds; ``LAB_THOROUGH=20`` tries twenty times as many. Examples
are drawn anew in each run, so what few do not find today, they find on another day.
"""

import os

__all__ = ["examples"]


def examples(few: int) -> int:
    """``few``, or as many times that as the environment asks for."""
    return few * max(1, int(os.environ.get("LAB_THOROUGH", "1")))
