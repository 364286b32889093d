"""``proxylab shell``: a shell in a node, pod or host.

Owns: the verb's options.
Must not: know which shell (``proxylab.client.attach`` does).
"""

from typing import Any

import click

from proxylab.client.attach import run_shell
from proxylab.cli.netns import check_place, complete_places
from proxylab.cli.which import SessionMaker, lab_options, the_lab, with_file

__all__ = ["command"]


@click.command("shell", short_help="Open a shell in a node, pod or host.")
@click.argument("words", nargs=-1, required=True, metavar="[FILE] PLACE", shell_complete=complete_places)
@lab_options
@click.pass_obj
def command(make_session: SessionMaker | None, /, *, words: tuple[str, ...], name: str | None, **of_lab: Any) -> int:
    """Open a shell in a node, pod or host of the lab that stands; its prompt names the place.

    With FILE, the lab of that scenario is made for it, and closed.

    Example: proxylab shell client
    """
    file, rest = with_file(words)
    if len(rest) != 1:
        raise click.UsageError("PLACE: name one node, pod or host")
    (place,) = rest
    with the_lab(make_session, file, name, **of_lab) as lab:
        check_place(lab.scenario, place)
        return run_shell(lab.line, place)
