"""``proxylab check``: every mistake of scenario files at once.

Owns: the verb's options and its words.
Must not: import what a run needs.

Some mistakes show only when a lab is laid out: networks that are too small, addresses that two places claim. So every
case of a scenario that could be read is laid out as well.
"""

from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path

import click

from proxylab.cli.files import files_argument, load_all
from proxylab.errors import ExitCode, ScenarioError
from proxylab.evidence.words import amount
from proxylab.plan.assembly import assemble
from proxylab.scenario.cases import cases
from proxylab.scenario.model import Scenario
from proxylab.scenario.strict import strict_versions
from proxylab.scenario.words import RUNNING_MODES

__all__ = ["command"]

_DEFAULT_VERSION = "v1.36"
"""That whose rules the embedded engine renders."""


class _Check(click.Command):
    """A command whose ``--strict`` may stand without a value, also before a file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = len(list(takewhile(lambda arg: arg != "--", args)))
        bare = [f"--strict={_DEFAULT_VERSION}" if arg == "--strict" else arg for arg in args[:options]]
        return super().parse_args(ctx, [*bare, *args[options:]])


@click.command("check", cls=_Check, short_help="Say every mistake of scenario files, and run nothing.")
@files_argument
@click.option(
    "--strict",
    metavar="[=VERSION]",
    help=f"Hold manifests against the Kubernetes API's own schema of a version too, by default {_DEFAULT_VERSION}. "
    "Needs proxylab[strict], and no network.",
)
def command(files: tuple[Path, ...], strict: str | None) -> ExitCode:
    """Say every mistake of the scenarios in FILE…, and run nothing.

    A directory stands for every *.lab.yaml below it.

    Example: proxylab check scenarios
    """
    scenarios = load_all(files, strict=_version(strict))
    if not scenarios:
        click.echo("no *.lab.yaml there", err=True)
        return ExitCode.NOTHING_SELECTED
    _lay_out(scenarios)
    for scenario in scenarios:
        steps = len(scenario.judged) - len(scenario.all_probes)
        judged = amount(len(scenario.all_probes), "probe") + (f" and {amount(steps, 'step')}" if steps else "")
        click.echo(f"{scenario.file}: ok, {judged}")
        for note in scenario.notes:
            click.echo(f"{scenario.file}: {note}", err=True)
    return ExitCode.OK


def _version(written: str | None) -> str | None:
    if written is None:
        return None

    version = f"v{written.removeprefix('v')}"
    if version not in strict_versions():
        raise click.BadParameter(
            f"{written!r} is not there; there are {', '.join(strict_versions())}", param_hint="--strict"
        )
    return version


def _lay_out(scenarios: Iterable[Scenario]) -> None:
    """Raise what keeps any case of the scenarios from being laid out, each mistake once."""
    problems: dict[str, None] = {}
    for case in (each for scenario in scenarios for each in _different_cases(scenario)):
        try:
            assemble(case)
        except ScenarioError as error:
            problems |= dict.fromkeys(error.problems)
    if problems:
        raise ScenarioError(tuple(problems))


def _different_cases(scenario: Scenario) -> list[Scenario]:
    """The cases of a scenario in all modes, each once: in most of them nothing depends on the mode."""
    found: list[Scenario] = []
    for mode in RUNNING_MODES:
        found += [case for case in cases(scenario, mode) if case not in found]
    return found
