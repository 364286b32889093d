"""How large the code is, by package, for ``./dev size``: blank lines, docstrings, comments and imports are no code.

A change that makes the code smaller by packing its lines denser shows in the length of lines, which ruff limits.
"""

import ast
import io
import sys
import tokenize
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from proxylab.text import table

__all__ = ["Size", "size_lines", "size_of"]

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = ("package", "files", "lines", "code", "docstrings", "comments", "imports", "blank")


@dataclass(frozen=True)
class Size:
    """How many files, and how many lines of each kind. Each line is of one kind."""

    files: int = 0
    code: int = 0
    docstrings: int = 0
    comments: int = 0
    imports: int = 0
    blank: int = 0

    @property
    def lines(self) -> int:
        return self.code + self.docstrings + self.comments + self.imports + self.blank

    def __add__(self, other: "Size") -> "Size":
        return Size(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))


def size_of(source: str) -> Size:
    """The size of one file. A string that stands alone is a docstring, also where it describes a constant."""
    lines = source.splitlines()
    docstrings, imports = set[int](), set[int]()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(ast.Constant(str())):
                docstrings |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            case ast.Import() | ast.ImportFrom():
                imports |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    comments = {
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and lines[token.start[0] - 1].lstrip().startswith("#")
    }
    blank = {number for number, line in enumerate(lines, 1) if not line.strip()} - docstrings
    others = comments - imports
    code = len(lines) - len(docstrings) - len(imports) - len(others) - len(blank - imports)
    return Size(1, code, len(docstrings), len(others), len(imports), len(blank - imports))


def size_lines(folder: Path) -> list[str]:
    """A table with a row for each package in the folder, one for the modules beside them, and their sum."""
    found: dict[str, Size] = defaultdict(Size)
    for file in sorted(folder.rglob("*.py")):
        inside, *deeper = file.relative_to(folder).parts
        found[f"{inside}/" if deeper else "*.py"] += size_of(file.read_text(encoding="utf-8"))
    rows = [(name, found[name]) for name in sorted(found)] + [("all", sum(found.values(), Size()))]
    cells = [(name, *(f"{getattr(size, column):,}" for column in COLUMNS[1:])) for name, size in rows]
    return table([COLUMNS, *cells], "", frozenset(range(1, len(COLUMNS))))


if __name__ == "__main__":
    print("\n".join(size_lines(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "lab" / "proxylab")))  # noqa: T201
