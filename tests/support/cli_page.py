"""The reference page of the command line, made from the command's own help."""

import click
from click.testing import CliRunner

__all__ = ["cli_page"]

_WIDTH = 100


def cli_page(command: click.Group) -> str:
    """One chapter for the command, and one for each verb."""
    parts = ["# The command line\n\nWhat `proxylab --help` and `proxylab VERB --help` print.\n"]
    names = ["", *command.list_commands(click.Context(command))]
    for name in names:
        said = CliRunner().invoke(
            command, [*([name] if name else []), "--help"], prog_name="proxylab", terminal_width=_WIDTH
        )
        parts.append(f"## `{' '.join(filter(None, ('proxylab', name)))}`\n\n```text\n{said.output.rstrip()}\n```\n")
    return "\n".join(parts)
