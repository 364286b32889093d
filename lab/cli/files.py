"""FILE… on the command line.

Owns: which scenario files the arguments mean, and loading them.
Must not: know what is done with them.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import click

from lab.errors import ScenarioError
from lab.scenario.load import load_scenario
from lab.scenario.model import Scenario

__all__ = ["FILES", "load_all"]

_PATTERN: Final = "*.lab.yaml"

FILES: Final = click.argument(
    "files", nargs=-1, required=True, metavar="FILE…", type=click.Path(path_type=Path, exists=True)
)


def load_all(files: Iterable[Path], *, to_run: bool = True, strict: str | None = None) -> list[Scenario]:
    """The scenarios of the files, and of every ``*.lab.yaml`` below the directories among them, each once.

    Args:
        files: files and directories.
        to_run: refuse what this version cannot run; those who only look at scenarios need not.
        strict: the version of Kubernetes against whose schema manifests are held too.

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
