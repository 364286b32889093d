"""``proxylab logs``: what the engine of a node says.

Owns: the verb's options.
Must not: keep more than the engine does.
"""

from typing import Any, Final

import click

from proxylab.cli.interrupt import ending_on_interrupt
from proxylab.cli.netns import check_netns, complete_nodes
from proxylab.cli.which import SessionMaker, lab_options, the_lab, with_file
from proxylab.errors import ExitCode
from proxylab.protocol.standing_labs import Lines, Log
from proxylab.timing import Deadline

__all__ = ["command"]

_BEGIN_SECONDS: Final = 30.0
_A_DAY: Final = 86400.0


@click.command("logs", short_help="Print what the engine of a node has said.")
@click.argument("words", nargs=-1, required=True, metavar="[FILE] NODE", shell_complete=complete_nodes)
@click.option("-f", "--follow", is_flag=True, help="Go on with what it says from now on, until Ctrl-C.")
@lab_options
@click.pass_obj
def command(
    make_session: SessionMaker | None, /, *, words: tuple[str, ...], follow: bool, name: str | None, **of_lab: Any
) -> ExitCode:
    """Print what the engine of NODE has said in the lab that stands: its last lines, as many as it keeps.

    With FILE, the lab of that scenario is made for it, and closed.

    Example: proxylab logs node-a
    """
    file, rest = with_file(words)
    if len(rest) != 1:
        raise click.UsageError("NODE: name one node")
    with the_lab(make_session, file, name, **of_lab) as lab:
        (node,) = rest
        check_netns(lab.scenario, node, "NODE")
        lab.connection.begin(Log(node, follow), Deadline.after(_BEGIN_SECONDS))
        with ending_on_interrupt(lab.connection):
            while isinstance(said := lab.connection.heard(Deadline.after(_A_DAY)), Lines):
                for each in said.lines:
                    click.echo(each)
    return ExitCode.OK
