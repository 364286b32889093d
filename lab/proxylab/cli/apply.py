"""``proxylab apply``: a standing lab is brought to an edited file.

Owns: the verb's options, and that changes are shown before they are made.
Must not: know what can be changed (``proxylab.client.edit`` does).
"""

import sys
from pathlib import Path
from typing import Final

import click

from proxylab.cli.color import COLOR, wants_color
from proxylab.cli.files import complete_scenarios, load_all
from proxylab.cli.which import NAME, standing
from proxylab.client.edit import Edit
from proxylab.client.standing_lab import StandingLab, attach_to
from proxylab.engines.names import mode_of
from proxylab.errors import ExitCode, ScenarioError
from proxylab.scenario.cases import cases
from proxylab.scenario.model import Scenario

__all__ = ["command", "lines_of"]

_COLOURS: Final = {"+": "green", "-": "red", "~": "yellow"}


@click.command("apply", short_help="Bring a standing lab to an edited file.")
@click.option(
    "-f",
    "--filename",
    "file",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    shell_complete=complete_scenarios,
    help="The edited scenario.",
)
@click.option("--dry-run", is_flag=True, help="Show the changes, and make none.")
@NAME
@COLOR
def command(*, file: Path, dry_run: bool, name: str | None, color: str) -> ExitCode:
    """Show what the edited scenario changes, and bring the lab that stands to it: objects by the API, sysctls in place.

    What would need another wire is refused, and nothing is changed then. Connection tracking and counters stay.

    Example: proxylab apply -f scenarios/clusterip/from-a-pod.lab.yaml --dry-run
    """
    with standing(name, or_file=False) as connection:
        lab = attach_to(connection)
        found = lab.edit(_case(file, lab))
        if found.refused:
            again = f"`proxylab down {connection.name}` and `proxylab up {file}` make it anew"
            raise ScenarioError([*(f"{file}: {each}" for each in found.refused), f"nothing was changed; {again}"])
        click.echo("\n".join(lines_of(found)), color=wants_color(sys.stdout, color))
        if not found.changes or dry_run:
            click.echo("nothing was changed", err=True)
        if not dry_run:
            lab.bring_to(found)
    if found.changes and not dry_run:
        click.echo(f"{connection.name} is brought to {file}", err=True)
    return ExitCode.OK


def _case(file: Path, lab: StandingLab) -> Scenario:
    """The case of the edited file that the lab is of."""
    (written,) = load_all((file,))
    wanted = lab.scenario.case.id
    found = cases(written, mode_of(lab.engine.name), lab.engine.version)
    fitting = [each for each in found if each.case.id == wanted]
    if not fitting:
        ids = ", ".join(each.case.id or "the only one" for each in found) or "none"
        here = f"of the case {wanted}" if wanted else "of no matrix"
        raise click.UsageError(f"--filename: the lab is {here}, the file has {ids}; name a file with that case")
    return fitting[0]


def lines_of(found: Edit) -> list[str]:
    """The changes, coloured by what they do; or that there are none."""
    return [click.style(each, fg=_COLOURS[each[0]]) for each in found.changes] or ["nothing differs from what stands"]
