"""The catalogue: the scenarios that come with proxylab, by name.

This module finds them, completes their names, and makes the text of a copy. It neither parses a scenario nor writes a
file.

A scenario's name is its path below the catalogue without suffix, such as clusterip/from-a-pod. Its folder is its theme.
In a checkout the catalogue is a link to ``scenarios/``; a wheel has the files themselves.
"""

import os
from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem

from proxylab.scenario.document import nearest

_PACKAGE: Final = Path(__file__).parents[1]
_SCHEMA: Final = _PACKAGE / "scenario" / "schema.json"
_SUFFIX: Final = ".lab.yaml"


def files_of(*names: str) -> tuple[Path, ...]:
    """The folder of each theme and the file of each scenario so named; without names, the whole catalogue.

    Raises:
        click.BadParameter: there is none of that name.
    """
    folder = _folder()
    paths = {**{theme: folder / theme for theme in _themes()}, **catalogue_files()}
    for name in names:
        if name not in paths:
            raise click.BadParameter(f"the catalogue has no {name!r}; {_suggestion(name, list(paths))}")
    return tuple(paths[name] for name in names) or (folder,)


def catalogue_files() -> dict[str, Path]:
    """The file of each scenario, by its name."""
    folder = _folder()
    return {name: folder / f"{name}{_SUFFIX}" for name in _names()}


def recorded_mutants() -> bytes:
    """Which mutant turned which probes of the catalogue red (``proxylab.features.semantics.promise_coverage``)."""
    return (_folder() / "mutations.json").read_bytes()


def released_results() -> str:
    """The results of releases of kube-proxy on the catalogue (``proxylab.features.conformance.conformance_table``)."""
    return (_folder() / "conformance.json").read_text(encoding="utf-8")


def the_scenario(ctx: click.Context, param: click.Parameter, name: str | None) -> str | None:
    """The name, if it is a scenario's."""
    if name is None or name in _names():
        return name
    own = [each for each in _names() if each.startswith(f"{name.rstrip('/')}/")]
    if own:
        raise click.BadParameter(f"{name!r} is a theme; name one of its scenarios: {', '.join(own)}", ctx, param)
    raise click.BadParameter(f"the catalogue has no scenario {name!r}; {_suggestion(name, _names())}", ctx, param)


def copies(name: str, file: Path) -> dict[Path, str]:
    """What a copy of a scenario at ``file`` says, and of its Python test, where it has one, beside that.

    The scenario's first line leads an editor from there to the schema, and the test names the scenario by its file.
    """
    (source,) = files_of(name)
    text = source.read_text(encoding="utf-8").partition("\n")[2]
    schema = os.path.relpath(_SCHEMA, file.resolve().parent)
    found = {file: f"# yaml-language-server: $schema={schema}\n{text}"}
    test = _test_of(source)
    if test.exists():
        found[_test_of(file)] = test.read_text(encoding="utf-8").replace(source.name, file.name)
    return found


def complete_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Scenarios of the catalogue, for a shell."""
    return [CompletionItem(name) for name in _names() if name.startswith(incomplete)]


def complete_themes_and_names(incomplete: str) -> list[CompletionItem]:
    """Themes, and the scenarios of one whose name has been typed."""
    known = _names() if "/" in incomplete else _themes()
    return [CompletionItem(name) for name in known if name.startswith(incomplete)]


def _folder() -> Path:
    """The catalogue, by a short path where it is below the working directory."""
    folder = (_PACKAGE / "catalogue").resolve()
    here = Path.cwd()
    return folder.relative_to(here) if folder.is_relative_to(here) else folder


def _names() -> list[str]:
    folder = _folder()
    return sorted(str(file.relative_to(folder)).removesuffix(_SUFFIX) for file in folder.glob(f"*/*{_SUFFIX}"))


def _themes() -> list[str]:
    return list(dict.fromkeys(name.partition("/")[0] for name in _names()))


def _suggestion(name: str, known: list[str]) -> str:
    near = nearest(name, known)
    return f"did you mean {near!r}?" if near else f"its themes are {', '.join(_themes())}"


def _test_of(scenario: Path) -> Path:
    """The Python test of a scenario's file, which is called as the file is."""
    return scenario.with_name(f"test_{scenario.name.partition('.')[0].replace('-', '_')}.py")
