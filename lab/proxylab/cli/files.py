"""FILE… on the command line: find the scenario files that the arguments name, and load them."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem

from proxylab.errors import ScenarioError
from proxylab.scenario.load import load_scenario
from proxylab.scenario.model import Scenario

__all__ = ["FILES", "complete_scenarios", "load_all"]

_SUFFIX: Final = ".lab.yaml"
_PATTERN: Final = f"*{_SUFFIX}"

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
        paths = [os.path.join(base, each) for each in names if each.endswith(_SUFFIX)]  # noqa: PTH118
        found += [each for each in paths if each.startswith(incomplete)]
        if number >= _MOST_FOLDERS or len(found) >= _MOST_FOUND:
            break
    return [CompletionItem(each) for each in found] or [CompletionItem(incomplete, type="file")]


FILES: Final = click.argument(
    "files",
    nargs=-1,
    required=True,
    metavar="FILE…",
    type=click.Path(path_type=Path, exists=True),
    shell_complete=complete_scenarios,
)


def load_all(files: Iterable[Path], *, to_run: bool = True, strict: str | None = None) -> list[Scenario]:
    """The scenarios of the files and of every ``*.lab.yaml`` below the directories, each once.

    Args:
        files: files and directories.
        to_run: refuse what this version cannot run; verbs that run nothing pass ``False``.
        strict: also check manifests against the schema of this Kubernetes version.

    Raises:
        ScenarioError: with the mistakes of all files, not only of the first.
        CapabilityError: ``strict`` needs a package that is not installed.
    """
    scenarios: list[Scenario] = []
    problems: list[str] = []
    for file in dict.fromkeys(_expand(files)):
        try:
            scenarios.append(load_scenario(file, to_run=to_run, strict=strict))
        except ScenarioError as error:
            problems += error.problems
    if problems:
        raise ScenarioError(problems)
    return scenarios


def _expand(files: Iterable[Path]) -> Iterator[Path]:
    for file in files:
        if file.is_dir():
            yield from sorted(file.rglob(_PATTERN))
        else:
            yield file
