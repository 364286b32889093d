"""FILE… on the command line: find the scenario files that the arguments name, in a folder or in the catalogue.

The files are loaded here, too.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import click
from click.shell_completion import CompletionItem

from proxylab.cli.catalogue import complete_themes_and_names, files_of
from proxylab.cli.options import Options, argument, option
from proxylab.cli.scenario_files import SUFFIX, complete_scenarios
from proxylab.client.output_files import write_whole
from proxylab.errors import ScenarioError
from proxylab.scenario.load import load_scenario
from proxylab.scenario.model import Scenario

_PATTERN: Final = f"*{SUFFIX}"


class _FileOrName(click.Path):
    """A file that is there, or with ``--catalogue`` what the catalogue has under a name."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if ctx is not None and ctx.params.get("catalogue"):
            return files_of(value)[0]
        return super().convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        if ctx.params.get("catalogue"):
            return complete_themes_and_names(incomplete)
        return complete_scenarios(ctx, param, incomplete)


def _given(ctx: click.Context, param: click.Parameter, files: tuple[Path, ...]) -> tuple[Path, ...]:
    """The files; the whole catalogue where it was asked for without a name."""
    if not files and not ctx.params.get("catalogue"):
        raise click.MissingParameter(ctx=ctx, param=param)
    return files or files_of()


_FILE: Final = _FileOrName(path_type=Path, exists=True)

_Catalogue = Annotated[
    bool,
    option(
        "--catalogue",
        is_flag=True,
        is_eager=True,
        help="Take the scenarios that come with proxylab. FILE… then names themes, such as nodeport, and scenarios, "
        "such as clusterip/from-a-pod; without any, all are taken.",
    ),
]


class Files(Options, frozen=True, kw_only=True):
    """FILE…, or with ``--catalogue`` themes and scenarios of the catalogue."""

    files: Annotated[tuple[Path, ...], argument(nargs=-1, metavar="FILE…", type=_FILE, callback=_given)]
    catalogue: _Catalogue


class FilesOrCatalogue(Options, frozen=True, kw_only=True):
    """The same, but without any the whole catalogue is taken."""

    files: Annotated[
        tuple[Path, ...],
        argument(nargs=-1, metavar="[FILE…]", type=_FILE, callback=lambda _ctx, _param, files: files or files_of()),
    ]
    catalogue: _Catalogue


def load_all(files: Iterable[Path], *, strict: str | None = None) -> list[Scenario]:
    """The scenarios of the files and of every ``*.lab.yaml`` below the directories, each once.

    ``strict`` also checks manifests against the schema of that Kubernetes version.

    Raises:
        ScenarioError: with the mistakes of all files, not only of the first.
        CapabilityError: ``strict`` needs a package that is not installed.
    """
    loaded = load_each(files, strict=strict)
    if refused := [each for each in loaded.values() if isinstance(each, ScenarioError)]:
        raise ScenarioError([problem for error in refused for problem in error.problems])
    return [each for each in loaded.values() if isinstance(each, Scenario)]


def load_each(files: Iterable[Path], *, strict: str | None = None) -> dict[Path, Scenario | ScenarioError]:
    """The same by file, with the mistakes of a file in place of its scenario. Raises ``CapabilityError``."""
    loaded: dict[Path, Scenario | ScenarioError] = {}
    for file in dict.fromkeys(expand(files)):
        try:
            loaded[file] = load_scenario(file, strict=strict)
        except ScenarioError as error:
            loaded[file] = error
    return loaded


def write_new(file: Path, text: str) -> None:
    """Write a file that must not exist yet. Raises ``click.UsageError`` or ``OutputError``."""
    if os.path.lexists(file):
        raise click.UsageError(f"{file} exists already; choose another name")
    if not file.parent.is_dir():
        raise click.UsageError(f"cannot write {file}: {file.parent} is no folder; name another file")
    write_whole(file, text)


def expand(files: Iterable[Path]) -> Iterator[Path]:
    """The files, with every ``*.lab.yaml`` below a directory in its place."""
    for file in files:
        if file.is_dir():
            yield from sorted(file.rglob(_PATTERN))
        else:
            yield file
