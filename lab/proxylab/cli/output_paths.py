"""Files and folders on the command line that a verb writes.

Most verbs write at their end, after minutes in labs. So what keeps them from it is said before they begin.
"""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click

from proxylab.client.output_files import why_unwritable


class OutputFile(click.Path):
    """A file to write; a ``new`` one must not exist, and where there are ``suffixes`` its name ends in one of them."""

    def __init__(self, *, new: bool = False, allow_dash: bool = False, suffixes: Collection[str] = ()) -> None:
        super().__init__(dir_okay=False, writable=not new, allow_dash=allow_dash)
        self.new = new
        self.suffixes = suffixes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        file = Path(os.fsdecode(super().convert(value, param, ctx)))
        if ctx is not None and ctx.resilient_parsing:  # a shell completes
            return file
        if self.suffixes and file.suffix not in self.suffixes:
            self.fail(f"{str(file)!r} must end in {' or '.join(self.suffixes)}", param, ctx)
        if self.new and os.path.lexists(file):
            self.fail(f"{file} exists already; choose another name", param, ctx)
        if str(file) != "-" and (why := why_unwritable(file)):
            self.fail(f"cannot write {file}: {why}; name another file", param, ctx)
        return file


class OutputFolder(click.Path):
    """A folder for files to write, which is made if need be.

    With the flag ``unless``, which click must read before (``is_eager``), the verb writes nothing there.
    """

    def __init__(self, *, unless: str = "") -> None:
        super().__init__(file_okay=False)
        self.unless = unless

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        folder = Path(os.fsdecode(super().convert(value, param, ctx)))
        unwritten = ctx is not None and (ctx.resilient_parsing or ctx.params.get(self.unless))
        if not unwritten and (why := why_unwritable(folder / "any")):
            self.fail(f"cannot write to {folder}: {why}; name another folder", param, ctx)
        return folder
