"""``proxylab completion``: what makes a shell complete names.

Owns: the verb's options.
Must not: write into the user's files.
"""

import click
from click.shell_completion import BashComplete, ShellComplete, ZshComplete

__all__ = ["command"]

_SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete}


@click.command("completion", short_help="Print what makes bash or zsh complete names.")
@click.argument("shell", type=click.Choice(sorted(_SHELLS)))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that makes a shell complete verbs, options, labs, places, kinds, engines and files.

    In bash: eval "$(proxylab completion bash)"; in zsh, behind compinit: eval "$(proxylab completion zsh)"

    Example: proxylab completion bash
    """
    maker = _SHELLS[shell](ctx.find_root().command, {}, "proxylab", "_PROXYLAB_COMPLETE")
    click.echo(maker.source())
