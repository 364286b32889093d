"""``proxylab exec``: run a command in a node, pod or host (``proxylab.client.attach`` connects its streams)."""

from typing import Any

import click

from proxylab.cli.netns import check_netns, complete_netns
from proxylab.cli.which import SessionMaker, lab_options, the_lab, with_file
from proxylab.client.attach import run_attached

__all__ = ["command"]


@click.command("exec", short_help="Run a command in a node, pod or host.")
@click.argument(
    "words", nargs=-1, required=True, metavar="[FILE] NODE|POD|HOST -- COMMAND…", shell_complete=complete_netns
)
@click.option("-i", "--stdin", "interactive", is_flag=True, help="Pass standard input to the command.")
@click.option(
    "-t", "--tty", "terminal", is_flag=True, help="Allocate a terminal for the command; usually with -i, as -it."
)
@lab_options
@click.pass_obj
def command(
    make_session: SessionMaker | None,
    /,
    *,
    words: tuple[str, ...],
    interactive: bool,
    terminal: bool,
    name: str | None,
    **of_lab: Any,
) -> int:
    """Run COMMAND in a node, pod or host of the standing lab, and exit with its status.

    With FILE, run in a temporary lab of that scenario.

    Example: proxylab exec node-a -- iptables-save -t nat
    """
    file, rest = with_file(words)
    netns_name, *argv = rest or ("",)
    if not argv:
        raise click.UsageError(
            f"COMMAND: give a command to run, as in `proxylab exec {netns_name or 'node-a'} -- ip route`"
        )
    with the_lab(make_session, file, name, **of_lab) as lab:
        check_netns(lab.scenario, netns_name)
        return run_attached(lab.connection, netns_name, argv, interactive=interactive, terminal=terminal)
