"""``proxylab check``: every mistake of scenario files at once.

Owns: the verb's options and its words.
Must not: import what a run needs.

Some mistakes show only when a lab is laid out: networks that are too small, addresses that two places claim. So every
case of a scenario that could be read is laid out as well.
"""

from collections.abc import Iterable
from pathlib import Path

import click

from lab.assembly import assemble
from lab.cli.files import FILES, load_all
from lab.errors import ExitCode, ScenarioError
from lab.scenario.cases import cases
from lab.scenario.missing import RUNNING_MODES
from lab.scenario.model import Scenario

__all__ = ["command"]


@click.command("check", short_help="Say every mistake of scenario files, and run nothing.")
@FILES
def command(files: tuple[Path, ...]) -> ExitCode:
    """Say every mistake of the scenarios in FILE…, and run nothing.

    A directory stands for every *.lab.yaml below it.

    Example: proxylab check scenarios
    """
    scenarios = load_all(files)
    if not scenarios:
        click.echo("no *.lab.yaml there", err=True)
        return ExitCode.NOTHING_SELECTED
    _lay_out(scenarios)
    for scenario in scenarios:
        count = len(scenario.probes)
        click.echo(f"{scenario.file}: ok, {count} {'probe' if count == 1 else 'probes'}")
        for note in scenario.notes:
            click.echo(f"{scenario.file}: {note}", err=True)
    return ExitCode.OK


def _lay_out(scenarios: Iterable[Scenario]) -> None:
    """Raise what keeps any case of the scenarios from being laid out, each mistake once."""
    problems: dict[str, None] = {}
    for case in (each for scenario in scenarios for mode in RUNNING_MODES for each in cases(scenario, mode)):
        try:
            assemble(case)
        except ScenarioError as error:
            problems |= dict.fromkeys(error.problems)
    if problems:
        raise ScenarioError(tuple(problems))
