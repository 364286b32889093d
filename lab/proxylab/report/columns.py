"""Tables as kubectl prints them: column heads in capitals, columns as wide as their widest cell, no wrapped lines."""

from collections.abc import Sequence

__all__ = ["fitting", "rows_of"]

_GAP = "   "


def rows_of(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table. An empty cell is shown as ``<none>``.

    Example:
        >>> rows_of(["name", "age"], [["echo", "2m"], ["client", ""]])
        ['NAME     AGE', 'echo     2m', 'client   <none>']
    """
    cells = [[word.upper() for word in head], *([each or "<none>" for each in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [_GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def fitting(label: str, names: Sequence[str], width: int) -> str:
    """A labelled list in one line: as many names as fit, and the number of the others.

    Example:
        >>> fitting("pods      ", ["echo-1", "echo-2", "echo-3"], 30)
        'pods      echo-1, and 2 more'
    """
    if not names:
        return f"{label}none"
    for shown in range(len(names), 0, -1):
        left = len(names) - shown
        line = label + ", ".join(names[:shown]) + (f", and {left} more" if left else "")
        if len(line) <= width:
            return line
    return f"{label}{names[0]}, and {len(names) - 1} more" if len(names) > 1 else label + names[0]
