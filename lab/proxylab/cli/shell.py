"""``proxylab shell``: open a shell in a node, pod or host (see ``proxylab.client.attach``)."""

from typing import Any

import click

from proxylab.cli.netns import check_netns, complete_netns
from proxylab.cli.which import SessionMaker, lab_options, the_lab, with_file
from proxylab.client.attach import run_shell

__all__ = ["command"]


@click.command("shell", short_help="Open a shell in a node, pod or host.")
@click.argument("words", nargs=-1, required=True, metavar="[FILE] NODE|POD|HOST", shell_complete=complete_netns)
@lab_options
@click.pass_obj
def command(make_session: SessionMaker | None, /, *, words: tuple[str, ...], name: str | None, **of_lab: Any) -> int:
    """Open a shell in a node, pod or host of the standing lab; the prompt shows its name.

    With FILE, run in a temporary lab of that scenario.

    Example: proxylab shell client
    """
    file, rest = with_file(words)
    if len(rest) != 1:
        raise click.UsageError("NODE|POD|HOST: name one")
    (netns_name,) = rest
    with the_lab(make_session, file, name, **of_lab) as lab:
        check_netns(lab.scenario, netns_name)
        return run_shell(lab.connection, netns_name)
