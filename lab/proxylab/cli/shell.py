"""``proxylab shell``: open a shell in a node, pod or host (see ``proxylab.client.exec_and_shell``)."""

from typing import Annotated

import click

from proxylab.cli.chosen_lab import ChosenLab, LabOptions, lab_words
from proxylab.cli.netns_argument import complete_netns, find_netns
from proxylab.cli.options import takes
from proxylab.client.exec_and_shell import run_shell


@click.command("shell", short_help="Open a shell in a node, pod or host.")
@takes
def command(
    *, words: Annotated[tuple[str, ...], lab_words("[FILE] NODE|POD|HOST", complete_netns)], options: LabOptions
) -> int:
    """Open a shell in a node, pod or host of the standing lab; the prompt shows its name.

    With FILE, run in a temporary lab of that scenario.

    Example: proxylab shell client
    """
    chosen = ChosenLab(words, options)
    if len(chosen.words) != 1:
        raise click.UsageError("NODE|POD|HOST: name one")
    (netns_name,) = chosen.words
    with chosen.opened() as lab:
        found = find_netns(lab.scenario, netns_name, chosen.namespace)
        return run_shell(lab.connection, found)
