"""How a figure grows with the number of Services: as a power of it, with the error of the exponent.

The exponent is the slope of a straight line by least squares through the logarithms. Its error is the standard error of
that slope: of the noise of all rounds, and of what the figure differs from a power. An exponent of 1 is linear, 0 is no
growth. A figure of a constant and a linear part has one between, which rises with the sizes.
"""

import math
from collections.abc import Sequence

from msgspec import Struct


class Growth(Struct, frozen=True):
    """The exponent, and its standard error; ``None`` where as many sizes as the line has parameters leave none."""

    exponent: float
    error: float | None

    def __str__(self) -> str:
        exponent = round(self.exponent, 2) + 0.0  # without the sign of a zero
        return f"n^{exponent:.2f}" + ("" if self.error is None else f" ± {self.error:.2f}")


def growth(points: Sequence[tuple[float, float]]) -> Growth | None:
    """The growth of values with sizes, from (size, value) pairs; ``None`` unless two sizes have values above 0.

    Example:
        >>> str(growth([(10, 1.0), (100, 10.0), (1000, 100.0)]))
        'n^1.00 ± 0.00'
    """
    logs = [(math.log(size), math.log(value)) for size, value in points if size > 0 and value > 0]
    if len({size for size, _ in logs}) < 2:
        return None
    mean_x, mean_y = (math.fsum(each[axis] for each in logs) / len(logs) for axis in (0, 1))
    spread = math.fsum((x - mean_x) ** 2 for x, _ in logs)
    slope = math.fsum((x - mean_x) * (y - mean_y) for x, y in logs) / spread
    freedom = len(logs) - 2
    if not freedom:
        return Growth(slope, None)
    residuals = math.fsum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in logs)
    return Growth(slope, math.sqrt(residuals / freedom / spread))
