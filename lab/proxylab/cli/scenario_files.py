"""Names of scenario files, for a shell that completes them; reads none of them."""

import os
from typing import Final

import click
from click.shell_completion import CompletionItem

SUFFIX: Final = ".lab.yaml"

_MOST_FOUND: Final = 200
_MOST_FOLDERS: Final = 500


def complete_scenarios(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete scenario files below the typed folder, or any file if there is none."""
    base = os.path.dirname(incomplete)  # noqa: PTH120 - unlike pathlib, it keeps "./" as typed
    found: list[str] = []
    for number, (folder, folders, files) in enumerate(os.walk(base or ".")):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        below = os.path.relpath(folder, base or ".")
        names = [os.path.normpath(os.path.join(below, each)) for each in sorted(files)]  # noqa: PTH118
        paths = [os.path.join(base, each) for each in names if each.endswith(SUFFIX)]  # noqa: PTH118
        found += [each for each in paths if each.startswith(incomplete)]
        if number >= _MOST_FOLDERS or len(found) >= _MOST_FOUND:
            break
    return [CompletionItem(each) for each in found] or [CompletionItem(incomplete, type="file")]
