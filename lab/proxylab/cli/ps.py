"""``proxylab ps``: list the standing labs. It also removes the files that killed labs have left."""

import json
import os
from collections.abc import Iterator
from typing import Final

import click
from msgspec.structs import asdict

from proxylab.cli.durations import age
from proxylab.client.connection import ControlConnection
from proxylab.client.control_sockets import ControlSockets, NoSuchLabError
from proxylab.errors import LabError
from proxylab.protocol.standing_labs import Greet, Greeted
from proxylab.report.standing_labs import labs_table
from proxylab.timing import Deadline

__all__ = ["command"]

_ANSWER_SECONDS: Final = 2.0


@click.command("ps", short_help="List the standing labs.")
@click.option("-o", "--output", type=click.Choice(["text", "json", "name"]), default="text", show_default=True)
def command(*, output: str) -> None:
    """List the standing labs: name, engine, age, remaining time, state and file.

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
    """Each lab with its answer; ``None`` for a lab that is starting or does not answer."""
    control_sockets = ControlSockets.of_user()
    for name in control_sockets.names():
        try:
            with ControlConnection(control_sockets.connect(name, _ANSWER_SECONDS), name) as connection:
                yield name, connection.request(Greet(), Greeted, Deadline.after(_ANSWER_SECONDS))
        except NoSuchLabError:
            continue  # the lab has ended meanwhile
        except (LabError, TimeoutError):
            yield name, None


def _state(greeted: Greeted | None) -> str:
    if greeted is None:
        return "unresponsive"
    return "busy" if greeted.busy else "running"


def _row(name: str, greeted: Greeted | None) -> tuple[str, str, str, str, str, str]:
    if greeted is None:
        return (name, "?", "?", "?", _state(greeted), "starting, or hung; `proxylab down` stops it")
    left = "with its creator" if greeted.left is None else age(greeted.left)
    case = f" [{greeted.case}]" if greeted.case else ""
    return (name, greeted.engine, age(greeted.age), left, _state(greeted), os.path.relpath(greeted.file) + case)
