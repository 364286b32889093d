"""``proxylab ps``: list the standing labs. It also removes the files that killed labs have left."""

import json
import os
from collections.abc import Iterator
from typing import Annotated, Final

import click
from msgspec.structs import asdict

from proxylab.binary_identity import identity_lines
from proxylab.cli.durations import age
from proxylab.cli.options import option, takes
from proxylab.cli.standard_streams import echo
from proxylab.cli.terminal import terminal_width
from proxylab.client.connection import ControlConnection
from proxylab.client.control_sockets import ControlSockets, NoSuchLabError
from proxylab.errors import LabError
from proxylab.protocol.standing_labs import Greet, Greeted
from proxylab.report.standing_labs import LabRow, labs_table
from proxylab.text import wrapped
from proxylab.timing import Deadline

_ANSWER_SECONDS: Final = 2.0


@click.command("ps", short_help="List the standing labs.")
@takes
def command(
    *,
    output: Annotated[
        str, option("-o", "--output", type=click.Choice(["text", "json", "name"]), default="text", show_default=True)
    ],
) -> None:
    """List the standing labs: name, engine, age, remaining time, state and file.

    Below them is a line for each binary that runs as a proxy, with the names of its labs.

    Example: proxylab ps
    """
    control_sockets = ControlSockets.of_user()
    found = list(_greetings(control_sockets))
    for name, how in control_sockets.ended():
        echo(f"{name} has ended: {how}", err=True)
    match output:
        case "json":
            items = [
                {"name": name} | (_document(each) if isinstance(each, Greeted) else {}) | {"state": _state(each)}
                for name, each in found
            ]
            echo(json.dumps({"apiVersion": "proxylab/v1", "kind": "LabList", "items": items}, indent=2))
        case "name":
            echo("".join(f"{name}\n" for name, _ in found), nl=False)
        case _:
            binaries = identity_lines((name, each.binary) for name, each in found if isinstance(each, Greeted))
            lines = [part for line in binaries for part in wrapped(line, "", "  ", terminal_width())]
            echo("\n".join([*labs_table([_row(name, each) for name, each in found]), *lines]))


def _greetings(control_sockets: ControlSockets) -> Iterator[tuple[str, Greeted | str]]:
    """Each lab with its answer, or with the reason why it gives none."""
    for name in control_sockets.names():
        try:
            with ControlConnection(control_sockets, name, _ANSWER_SECONDS) as connection:
                yield name, connection.request(Greet(), Deadline.after(_ANSWER_SECONDS))
        except NoSuchLabError:
            continue  # the lab has ended meanwhile
        except (LabError, TimeoutError):
            yield name, f"{control_sockets.stuck_process_of(name) or 'starting, or hung'}; `proxylab down` stops it"


def _document(greeted: Greeted) -> dict[str, object]:
    return asdict(greeted) | {"binary": greeted.binary and greeted.binary.to_document()}


def _state(answer: Greeted | str) -> str:
    if isinstance(answer, str):
        return "unresponsive"
    if answer.trouble:
        return "broken"
    return "busy" if answer.busy else "running"


def _row(name: str, answer: Greeted | str) -> LabRow:
    if isinstance(answer, str):
        return LabRow(name, "?", "?", "?", _state(answer), answer)
    left = "with its creator" if answer.left is None else age(answer.left)
    case = f" [{answer.case}]" if answer.case else ""
    where = answer.trouble or os.path.relpath(answer.file) + case
    return LabRow(name, answer.engine, age(answer.age), left, _state(answer), where)
