"""``proxylab up``: a lab that stays.

Owns: the verb's options, and the order in which name, lab and its stay are had.
Must not: keep the lab; it does so itself.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from proxylab.cli.case import CASE, FILE
from proxylab.cli.engine import choice_of, engine_options
from proxylab.cli.which import SessionMaker, case_of
from proxylab.cli.words import Span, age
from proxylab.client.control_sockets import ControlSocket, ControlSockets, NameTakenError, is_name
from proxylab.client.session import Session
from proxylab.errors import ExitCode
from proxylab.plan.assembly import lay_out
from proxylab.report.standing_labs import standing_lines

__all__ = ["command"]

_WIDTH: Final = 80


@click.command("up", short_help="Make the lab of a scenario, and let it stand.")
@FILE
@CASE
@engine_options
@click.option("-n", "--name", metavar="NAME", help="What the lab is called; by default as its scenario.")
@click.option(
    "--ttl", type=Span(), metavar="TIME", default="8h", show_default=True, help="When it ends by itself: 90s, 8h, 2d."
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Orders source ports and payloads; the same seed sends the same packets.",
)
@click.pass_obj
def command(
    make_session: SessionMaker | None,
    /,
    *,
    file: Path,
    case_id: str | None,
    engine: str,
    name: str | None,
    ttl: float,
    seed: int,
    **of_engine: Any,
) -> ExitCode:
    """Make the lab of the scenario FILE with its engines, say what stands and what to type next, and leave.

    The lab stands until `proxylab down`, or until its time is over, whatever becomes of the terminal that made it. Only
    its owner reaches it.

    Example: proxylab up scenarios/clusterip/from-a-pod.lab.yaml --ttl 1h
    """
    with _session(make_session, engine, seed, of_engine) as (session, claim):
        scenario = case_of(file, engine, case_id)
        called = claim(name or scenario.name)
        session.open(scenario).stay(called, ttl)
    alone = len(ControlSockets.of_user().names()) == 1
    lines = standing_lines(
        lay_out(scenario),
        name=called,
        engine=engine,
        left=age(ttl),
        width=shutil.get_terminal_size((_WIDTH, 24)).columns,
        alone=alone,
    )
    click.echo("\n".join(lines))
    return ExitCode.OK


@contextmanager
def _session(
    make_session: SessionMaker | None, engine: str, seed: int, of_engine: dict[str, Any]
) -> Iterator[tuple[Session, Callable[[str], str]]]:
    """A session whose lab can stay, and what takes a name for it. Its process starts while the scenario is read."""
    control_socket = ControlSocket(ControlSockets.of_user())

    def claim(name: str) -> str:
        if not is_name(name):
            raise click.UsageError(
                f"--name: {name!r} can be no lab's name; allowed: up to 63 of a-z, 0-9, dot and hyphen"
            )
        try:
            control_socket.claim(name)
        except NameTakenError:
            raise click.UsageError(
                f"--name: a lab {name!r} stands already; end it with `proxylab down {name}`, or choose another --name"
            ) from None
        return name

    try:
        with (make_session or Session)(choice_of(engine, **of_engine), seed, lambda: control_socket) as session:
            session.begin()
            yield session, claim
    except BaseException:
        control_socket.give_up()
        raise
