"""Text for people: aligned columns and wrapped sentences in a given width, and how text of others is shown.

Nothing here has colour.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final

WIDTH = 80
"""The columns of a terminal by default."""

_GAP = "  "
_KUBECTL_GAP = "   "
_UNBROKEN = "\x1f"
"""A space at which no line breaks; a unit separator (ASCII), which no name can hold."""

_NARROWEST = 12
"""The least width of a column; a longer word overflows its column uncut."""


def wrapped(text: str, first: str = "", rest: str | None = None, width: int = WIDTH) -> list[str]:
    """A sentence broken at spaces, with ``first`` before its first line and ``rest`` (by default blanks) before others.

    It never cuts words. It breaks a path longer than a line behind a slash: a terminal would cut it anywhere.
    """
    following = " " * len(first) if rest is None else rest
    lines = textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=following,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [part for line in lines for part in _at_slashes(line, following, width)] or [first.rstrip()]


def _at_slashes(line: str, following: str, width: int) -> Iterator[str]:
    while len(line) > width and (slash := line.rfind("/", len(following), width)) > 0:
        yield line[: slash + 1]
        line = following + line[slash + 1 :]
    yield line


def width_of(rows: Sequence[Sequence[str]]) -> int:
    """The width of the rows with unbroken cells."""
    widths = _widths(rows)
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def table(
    rows: Sequence[Sequence[str]], indent: str = "  ", right: frozenset[int] = frozenset(), width: int = WIDTH
) -> list[str]:
    """Rows in aligned columns, those of the indexes ``right`` right-aligned.

    If they are too wide, the widest columns shrink and their cells break.
    """
    widths = _widths(rows)
    room = width - len(indent) - len(_GAP) * (len(widths) - 1)
    while sum(widths) > room and max(widths) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1
    lines = []
    for row in rows:
        cells = [_broken(cell, room) for cell, room in zip(row, widths, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            padded = (
                part.rjust(room) if column in right else part.ljust(room)
                for column, (part, room) in enumerate(zip(parts, widths, strict=True))
            )
            lines.append((indent + _GAP.join(padded)).rstrip())
    return lines


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _broken(cell: str, width: int) -> list[str]:
    """A cell in lines. An item of an enumeration, such as "echo-1 667", stays whole if it fits."""
    items = cell.split(", ")
    if max(map(len, items)) < width:
        cell = ", ".join(item.replace(" ", _UNBROKEN) for item in items)
    lines = textwrap.wrap(cell, max(width, 1), break_long_words=False, break_on_hyphens=False)
    return [line.replace(_UNBROKEN, " ") for line in lines] or [""]


def kubectl_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table as kubectl prints it: heads in capitals, no wrapped lines.

    An empty cell is shown as ``<none>``.

    Example:
        >>> kubectl_table(["name", "age"], [["echo", "2m"], ["client", ""]])
        ['NAME     AGE', 'echo     2m', 'client   <none>']
    """
    cells = [[word.upper() for word in head], *([each or "<none>" for each in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        _KUBECTL_GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    ]


def names_that_fit(label: str, names: Sequence[str], width: int) -> str:
    """A labelled list in one line: as many names as fit, and the number of the others.

    Example:
        >>> names_that_fit("pods      ", ["echo-1", "echo-2", "echo-3"], 30)
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


_COMMAND: Final = re.compile(r"^([ \t]*):(?=:[A-Za-z_-]+(?:[ ]|::))", re.MULTILINE)
"""A line that GitHub Actions takes as a workflow command, such as ``::error file=f::…``."""
_OLD_COMMAND: Final = re.compile(r"##(?=\w*\[)")
"""How older commands of GitHub Actions (``##[error]``) begin, and those of Azure Pipelines and TeamCity."""


def shortened(line: str, most: int = 4096) -> str:
    """The beginning of a line that is too long for a log: a program may write for minutes without an end of line.

    >>> shortened("abc", 2)
    'ab… (3 characters)'
    """
    return line if len(line) <= most else f"{line[:most]}… ({len(line):,} characters)"


def printable(text: str, keep: str = "\n\t") -> str:
    r"""Text of others, as a terminal, a page and a CI system may show it.

    Logs, files and the names in them are written by others. A control character in them could colour or erase what is
    on the screen, a mark for text from right to left could reorder it, and a CI system would execute a line that looks
    like its commands. Each such character is shown as JSON escapes it, so that JSON text keeps its meaning. For a text
    that must stay in one line, ``keep`` is empty.

    Example:
        >>> print(printable("a\x1b[31m\u202e\n::error::b"))
        a\u001b[31m\u202e
        \u003a:error::b
    """
    if not text.translate(dict.fromkeys(map(ord, keep))).isprintable():
        text = "".join(each if each.isprintable() or each in keep else _escaped(each) for each in text)
    if "::" in text:
        text = _COMMAND.sub(r"\1\\u003a", text)
    return _OLD_COMMAND.sub(r"#\\u0023", text) if "##" in text else text


def _escaped(character: str) -> str:
    """As JSON: beyond the 16 bits of an escape, as two surrogates."""
    if character in "\n\t\r":
        return repr(character)[1:-1]
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
