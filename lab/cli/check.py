"""``proxylab check``: every mistake of scenario files at once.

Owns: the verb's options and its words.
Must not: import what a run needs.
"""

from pathlib import Path

import click

from lab.cli.files import FILES, load_all
from lab.errors import ExitCode

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
    for scenario in scenarios:
        count = len(scenario.probes)
        click.echo(f"{scenario.file}: ok, {count} {'probe' if count == 1 else 'probes'}")
        for note in scenario.notes:
            click.echo(f"{scenario.file}: {note}", err=True)
    return ExitCode.OK
