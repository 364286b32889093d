"""``proxylab exec``: a command in a node, pod or host.

Owns: the verb's options.
Must not: know how a command comes by its streams (``proxylab.client.attach`` does).
"""

from typing import Any

import click

from proxylab.cli.netns import check_netns, complete_netns
from proxylab.cli.which import SessionMaker, lab_options, the_lab, with_file
from proxylab.client.attach import run_attached

__all__ = ["command"]


@click.command("exec", short_help="Run a command in a node, pod or host.")
@click.argument("words", nargs=-1, required=True, metavar="[FILE] PLACE -- COMMAND…", shell_complete=complete_netns)
@click.option("-i", "--stdin", "interactive", is_flag=True, help="Let the command read standard input.")
@click.option("-t", "--tty", "terminal", is_flag=True, help="Give the command a terminal of its own; mostly as -it.")
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
    """Run COMMAND in a node, pod or host of the lab that stands, and exit with its status.

    With FILE, the lab of that scenario is made for it, and closed.

    Example: proxylab exec node-a -- iptables-save -t nat
    """
    file, rest = with_file(words)
    netns_name, *argv = rest or ("",)
    if not argv:
        raise click.UsageError(f"COMMAND: say what to run, as in `proxylab exec {netns_name or 'node-a'} -- ip route`")
    with the_lab(make_session, file, name, **of_lab) as lab:
        check_netns(lab.scenario, netns_name)
        return run_attached(lab.connection, netns_name, argv, interactive=interactive, terminal=terminal)
