"""``./dev size``: each line of the code is counted once, as what it is."""

from pathlib import Path

import pytest
from code_size import Size, size_lines, size_of

MODULE = '''"""A head
of two lines, and

a blank one."""

import os  # why
from pathlib import (
    Path,

    PurePath,
)

# why
LIMIT = 3  # a remark beside code
"""What the limit is for."""


def name() -> str:
    """One line."""
    text = """a string
    # that is no comment

    but a value"""
    return text
'''


def test_each_line_is_of_one_kind() -> None:
    assert size_of(MODULE) == Size(files=1, code=6, docstrings=6, comments=1, imports=6, blank=5)
    assert size_of(MODULE).lines == MODULE.count("\n")


@pytest.mark.parametrize("source", ["", "x = 1", "\n\n", "# only\n", '"""only"""\n', "import os\n"])
def test_small_files_are_counted_whole(source: str) -> None:
    assert size_of(source).lines == len(source.splitlines())


def test_a_package_is_a_row_with_all_that_it_holds(tmp_path: Path) -> None:
    for name in ("top.py", "one/__init__.py", "one/deep/er.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("import os\n\nx = 1\n")
    (tmp_path / "one/notes.txt").write_text("not counted\n")
    head, *rows = [line.split() for line in size_lines(tmp_path)]
    assert head == ["package", "files", "lines", "code", "docstrings", "comments", "imports", "blank"]
    assert rows == [
        ["*.py", "1", "3", "1", "0", "0", "1", "1"],
        ["one/", "2", "6", "2", "0", "0", "2", "2"],
        ["all", "3", "9", "3", "0", "0", "3", "3"],
    ]
