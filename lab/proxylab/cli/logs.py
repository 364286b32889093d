"""``proxylab logs``: print the log of a node's engine."""

from typing import Annotated, Final

import click

from proxylab.cli.chosen_lab import ChosenLab, LabOptions, lab_words
from proxylab.cli.interrupt import ending_on_interrupt
from proxylab.cli.netns_argument import check_netns, complete_nodes
from proxylab.cli.options import option, takes
from proxylab.cli.standard_streams import echo
from proxylab.errors import ExitCode
from proxylab.protocol.standing_labs import Lines, Log
from proxylab.timing import Deadline

_BEGIN_SECONDS: Final = 30.0
_A_DAY: Final = 86400.0


@click.command("logs", short_help="Print the log of a node's engine.")
@takes
def command(
    *,
    follow: Annotated[bool, option("-f", "--follow", is_flag=True, help="Print new lines as they come, until Ctrl-C.")],
    words: Annotated[tuple[str, ...], lab_words("[FILE] NODE", complete_nodes)],
    options: LabOptions,
) -> ExitCode:
    """Print the last lines that the engine of NODE in the standing lab has logged, as many as the lab keeps.

    With FILE, run in a temporary lab of that scenario.

    Example: proxylab logs node-a
    """
    chosen = ChosenLab(words, options)
    if len(chosen.words) != 1:
        raise click.UsageError("NODE: name one node")
    with chosen.opened() as lab:
        (node,) = chosen.words
        check_netns(lab.scenario, node, "NODE")
        lab.connection.begin_feed(Log(node, follow), Deadline.after(_BEGIN_SECONDS))
        with ending_on_interrupt(lab.connection):
            while isinstance(said := lab.connection.next_answer(Deadline.after(_A_DAY)), Lines):
                for each in said.lines:
                    echo(each)
    return ExitCode.OK
