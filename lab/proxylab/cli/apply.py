"""``proxylab apply``: change a standing lab to match its edited scenario, or apply manifests to it.

``proxylab.client.edit`` decides what can change. The verb prints the changes before it makes them. In a lab with a real
control plane, kubectl applies manifests, on the side of the server.
"""

import sys
from pathlib import Path
from typing import Annotated, Final

import click

from proxylab.cli.chosen_lab import LabName, standing
from proxylab.cli.file_arguments import load_all
from proxylab.cli.input_files import read_input
from proxylab.cli.kubectl import become_kubectl
from proxylab.cli.options import option, takes
from proxylab.cli.scenario_files import complete_scenarios
from proxylab.cli.standard_streams import echo
from proxylab.cli.terminal import Color, changes_in_colour, wants_color
from proxylab.client.kubernetes import kubeconfig_of
from proxylab.client.standing_lab import StandingLab, attach_to
from proxylab.engines.engine_names import mode_of
from proxylab.errors import ExitCode, ScenarioError
from proxylab.oracle.promised import promised_cases
from proxylab.scenario.load import holds_scenario
from proxylab.scenario.model import Scenario

_STANDARD_INPUT: Final = "-"
_SUFFIXES: Final = (".yaml", ".yml", ".json")


@click.command("apply", short_help="Change a standing lab to match its edited scenario or manifests.")
@takes
def command(
    *,
    file: Annotated[
        Path,
        option(
            "-f",
            "--filename",
            required=True,
            type=click.Path(exists=True, allow_dash=True, path_type=Path),
            shell_complete=complete_scenarios,
            help="The edited scenario; or manifests: a file, a folder with *.yaml, *.yml and *.json, or - for standard "
            "input.",
        ),
    ],
    dry_run: Annotated[bool, option("--dry-run", is_flag=True, help="Show the changes; make none.")],
    name: LabName,
    color: Color,
) -> ExitCode:
    """Show what the edited scenario, or the manifests, change in the standing lab, then make the changes.

    Objects change through the lab's API server, sysctls in place. Connection tracking and counters stay. A change that
    needs a new network is refused, and then nothing changes. Manifests take the place of the lab's objects of the same
    names, and add others, as far as the lab has pods for them; with a real control plane kubectl applies them.

    Example: proxylab apply -f scenarios/clusterip/from-a-pod.lab.yaml --dry-run
    """
    given = {} if str(file) == _STANDARD_INPUT else _texts(file)
    is_edited = any(map(holds_scenario, given.values()))
    if is_edited and file.is_dir():
        raise click.UsageError("--filename: name a scenario's file itself; a folder is for manifests")
    with standing(name, or_file=False) as connection:
        lab = attach_to(connection)
        if is_edited or not lab.built.has_kubernetes:
            if not is_edited:
                given = given or {_STANDARD_INPUT: sys.stdin.read()}
            written = load_all((file,))[0] if is_edited else lab.with_manifests(given)
            found = lab.edit(_case(written, lab))
            if found.refused:
                again = f"`proxylab down {connection.name}` and `proxylab up {file if is_edited else 'FILE'}`"
                raise ScenarioError(
                    [*(f"{file}: {each}" for each in found.refused), f"nothing changed; {again} build a new lab"]
                )
            echo("\n".join(changes_in_colour(found.changes)), color=wants_color(sys.stdout, color))
            if not found.changes or dry_run:
                echo("nothing changed", err=True)
            if not dry_run:
                lab.bring_to(found, {} if is_edited else given)
            if found.changes and not dry_run:
                echo(f"{connection.name} now matches {file}", err=True)
            return ExitCode.OK
        kubeconfig = kubeconfig_of(connection)
    dry = ("--dry-run=server",) if dry_run else ()
    return become_kubectl(kubeconfig, ("apply", "--server-side", "--force-conflicts", "-f", str(file), *dry))


def _texts(file: Path) -> dict[str, str]:
    """The texts of a file, or of the manifests in a folder, by their names."""
    wanted = "a scenario or manifests"
    if not file.is_dir():
        return {str(file): read_input(file, wanted)}
    found = sorted(each for each in file.iterdir() if each.suffix in _SUFFIXES)
    if not found:
        raise click.UsageError(f"--filename: {file} holds no *.yaml, *.yml or *.json; name {wanted}")
    return {str(each): read_input(each, wanted) for each in found}


def _case(written: Scenario, lab: StandingLab) -> Scenario:
    """The case of the edited scenario with the id of the lab's own case."""
    wanted = lab.scenario.case.id
    found = promised_cases(written, mode_of(lab.engine.name), lab.engine.version)
    fitting = [each for each in found if each.case.id == wanted]
    if not fitting:
        ids = ", ".join(each.case.id or "the only one" for each in found) or "none"
        here = f"runs the case {wanted}" if wanted else "runs a scenario without a matrix"
        raise click.UsageError(f"--filename: the lab {here}, the file has {ids}; name a file with that case")
    return fitting[0]
