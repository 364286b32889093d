"""``proxylab ps``: the labs that stand.

Owns: the verb's options.
Must not: end one; it only clears away what killed ones have left.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import Final

import click

from proxylab.cli.words import age
from proxylab.client.connection import ControlConnection
from proxylab.client.control_sockets import ControlSockets, NoSuchLabError
from proxylab.errors import LabError
from proxylab.protocol.standing_labs import Greet, Greeted
from proxylab.report.standing_labs import labs_table
from proxylab.timing import Deadline

__all__ = ["command"]

_SECONDS: Final = 2.0


@click.command("ps", short_help="List the labs that stand.")
@click.option("-o", "--output", type=click.Choice(["text", "json", "name"]), default="text", show_default=True)
def command(*, output: str) -> None:
    """List the labs that stand: name, engine, age, time that is left, state and file.

    Example: proxylab ps
    """
    found = list(_greetings())
    match output:
        case "json":
            items = [{"name": name} | (asdict(each) if each else {}) | {"state": _state(each)} for name, each in found]
            click.echo(json.dumps({"apiVersion": "proxylab/v1", "kind": "LabList", "items": items}, indent=2))
        case "name":
            click.echo("".join(f"{name}\n" for name, _ in found), nl=False)
        case _:
            click.echo("\n".join(labs_table([_row(name, each) for name, each in found])))


def _greetings() -> Iterator[tuple[str, Greeted | None]]:
    """Each lab with what it says of itself; ``None`` for one that is being made, or does not answer."""
    control_sockets = ControlSockets.of_user()
    for name in control_sockets.names():
        try:
            with ControlConnection(control_sockets.connect(name, _SECONDS), name) as line:
                yield name, line.request(Greet(), Greeted, Deadline.after(_SECONDS))
        except NoSuchLabError:
            continue  # it has ended meanwhile
        except (LabError, TimeoutError):
            yield name, None


def _state(greeted: Greeted | None) -> str:
    if greeted is None:
        return "silent"
    return "busy" if greeted.busy else "stands"


def _row(name: str, greeted: Greeted | None) -> tuple[str, str, str, str, str, str]:
    if greeted is None:
        return (name, "?", "?", "?", _state(greeted), "being made, or hung; `proxylab down` ends it")
    left = "with its maker" if greeted.left is None else age(greeted.left)
    case = f" [{greeted.case}]" if greeted.case else ""
    return (name, greeted.engine, age(greeted.age), left, _state(greeted), os.path.relpath(greeted.file) + case)
