"""``proxylab completion``: print the script with which a shell completes names. It writes no file of the user's."""

from typing import Annotated

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from proxylab.cli.options import argument, takes
from proxylab.cli.standard_streams import echo

_SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "fish": FishComplete, "zsh": ZshComplete}


@click.command("completion", short_help="Print the completion script for bash, fish or zsh.")
@takes
@click.pass_context
def command(ctx: click.Context, /, *, shell: Annotated[str, argument(type=click.Choice(sorted(_SHELLS)))]) -> None:
    """Print the script with which a shell completes verbs, options, labs, nodes, pods, hosts, kinds, engines and files.

    In bash: eval "$(proxylab completion bash)"; in zsh, after compinit: eval "$(proxylab completion zsh)";
    in fish: proxylab completion fish | source

    Example: proxylab completion bash
    """
    maker = _SHELLS[shell](ctx.find_root().command, {}, "proxylab", "_PROXYLAB_COMPLETE")
    echo(maker.source())
