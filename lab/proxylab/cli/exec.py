"""``proxylab exec``: run a command in a node, pod or host (``proxylab.client.exec_and_shell`` connects its streams)."""

from typing import Annotated

import click

from proxylab.cli.chosen_lab import ChosenLab, LabOptions, lab_words
from proxylab.cli.netns_argument import complete_netns, find_netns
from proxylab.cli.options import option, takes
from proxylab.client.exec_and_shell import run_attached


@click.command("exec", short_help="Run a command in a node, pod or host.")
@takes
def command(
    *,
    interactive: Annotated[bool, option("-i", "--stdin", is_flag=True, help="Pass standard input to the command.")],
    terminal: Annotated[
        bool,
        option("-t", "--tty", is_flag=True, help="Allocate a terminal for the command; usually with -i, as -it."),
    ],
    words: Annotated[tuple[str, ...], lab_words("[FILE] NODE|POD|HOST -- COMMAND…", complete_netns)],
    options: LabOptions,
) -> int:
    """Run COMMAND in a node, pod or host of the standing lab, and exit with its status.

    With FILE, run in a temporary lab of that scenario.

    Example: proxylab exec node-a -- iptables-save -t nat
    """
    chosen = ChosenLab(words, options)
    netns_name, *argv = chosen.words or ("",)
    if not argv:
        raise click.UsageError(
            f"COMMAND: give a command to run, as in `proxylab exec {netns_name or 'node-a'} -- ip route`"
        )
    with chosen.opened() as lab:
        found = find_netns(lab.scenario, netns_name, chosen.namespace)
        return run_attached(lab.connection, found, argv, interactive=interactive, terminal=terminal)
