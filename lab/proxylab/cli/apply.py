"""``proxylab apply``: change a standing lab to match its edited scenario.

``proxylab.client.edit`` decides what can change. The verb prints the changes before it makes them.
"""

import sys
from pathlib import Path
from typing import Annotated

import click

from proxylab.cli.chosen_lab import LabName, standing
from proxylab.cli.file_arguments import load_all
from proxylab.cli.options import option, takes
from proxylab.cli.scenario_files import complete_scenarios
from proxylab.cli.standard_streams import echo
from proxylab.cli.terminal import Color, changes_in_colour, wants_color
from proxylab.client.standing_lab import StandingLab, attach_to
from proxylab.engines.engine_names import mode_of
from proxylab.errors import ExitCode, ScenarioError
from proxylab.oracle.promised import promised_cases
from proxylab.scenario.model import Scenario


@click.command("apply", short_help="Change a standing lab to match its edited scenario.")
@takes
def command(
    *,
    file: Annotated[
        Path,
        option(
            "-f",
            "--filename",
            required=True,
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            shell_complete=complete_scenarios,
            help="The edited scenario.",
        ),
    ],
    dry_run: Annotated[bool, option("--dry-run", is_flag=True, help="Show the changes; make none.")],
    name: LabName,
    color: Color,
) -> ExitCode:
    """Show what the edited scenario changes in the standing lab, then make the changes.

    Objects change through the lab's API server, sysctls in place. Connection tracking and counters stay. A change that
    needs a new network is refused, and then nothing changes.

    Example: proxylab apply -f scenarios/clusterip/from-a-pod.lab.yaml --dry-run
    """
    with standing(name, or_file=False) as connection:
        lab = attach_to(connection)
        found = lab.edit(_case(file, lab))
        if found.refused:
            again = f"`proxylab down {connection.name}` and `proxylab up {file}` build a new lab"
            raise ScenarioError([*(f"{file}: {each}" for each in found.refused), f"nothing changed; {again}"])
        echo("\n".join(changes_in_colour(found.changes)), color=wants_color(sys.stdout, color))
        if not found.changes or dry_run:
            echo("nothing changed", err=True)
        if not dry_run:
            lab.bring_to(found)
    if found.changes and not dry_run:
        echo(f"{connection.name} now matches {file}", err=True)
    return ExitCode.OK


def _case(file: Path, lab: StandingLab) -> Scenario:
    """The case of the edited file with the id of the lab's own case."""
    (written,) = load_all((file,))
    wanted = lab.scenario.case.id
    found = promised_cases(written, mode_of(lab.engine.name), lab.engine.version)
    fitting = [each for each in found if each.case.id == wanted]
    if not fitting:
        ids = ", ".join(each.case.id or "the only one" for each in found) or "none"
        here = f"runs the case {wanted}" if wanted else "runs a scenario without a matrix"
        raise click.UsageError(f"--filename: the lab {here}, the file has {ids}; name a file with that case")
    return fitting[0]
