"""``proxylab up``: start a lab that keeps running after the command ends (a standing lab).

``command`` reads the scenario, claims the lab's name, and opens the lab: ``client.session.Session.open`` starts the lab
process and has it build the lab. Then the lab is detached from this command, which prints what runs in it and ends.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from proxylab.cli.case_option import CASE, FILE, SEED, choose_case
from proxylab.cli.durations import Duration, age
from proxylab.cli.engine_options import choice_of, engine_options
from proxylab.cli.scenario_results import SessionMaker
from proxylab.cli.standard_streams import echo
from proxylab.client.control_sockets import ControlSocket, ControlSockets, NameTakenError, is_name
from proxylab.client.session import Session
from proxylab.engines.engine_names import mode_of, version_of
from proxylab.errors import ExitCode
from proxylab.plan.assembly import lay_out
from proxylab.report.standing_labs import standing_lines

_WIDTH: Final = 80


@click.command("up", short_help="Start the lab of a scenario and leave it running.")
@FILE
@CASE
@engine_options
@click.option("-n", "--name", metavar="NAME", help="The lab's name; by default its scenario's.")
@click.option(
    "--ttl", type=Duration(), metavar="TIME", default="8h", show_default=True, help="The lab's lifetime: 90s, 8h, 2d."
)
@SEED
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
    """Start the lab of the scenario FILE with its engines, print what runs in it, and return.

    The lab runs until `proxylab down` or the end of its lifetime, even if the terminal closes. Only its owner can
    reach it.

    Example: proxylab up scenarios/clusterip/from-a-pod.lab.yaml --ttl 1h
    """
    scenario = choose_case(file, case_id, mode_of(engine), version_of(engine))
    with _session(make_session, engine, seed, of_engine) as (session, claim):
        lab_name = claim(name or scenario.name)
        session.open(scenario).detach(lab_name, ttl)
        binary = session.engine.binary
    alone = len(ControlSockets.of_user().names()) == 1
    lines = standing_lines(
        lay_out(scenario),
        name=lab_name,
        engine=engine,
        left=age(ttl),
        width=shutil.get_terminal_size((_WIDTH, 24)).columns,
        alone=alone,
        binary=binary,
    )
    echo("\n".join(lines))
    return ExitCode.OK


@contextmanager
def _session(
    make_session: SessionMaker | None, engine: str, seed: int, of_engine: dict[str, Any]
) -> Iterator[tuple[Session, Callable[[str], str]]]:
    """A session for a standing lab with its engine, and a function that claims the lab's name.

    It makes a control socket without a name, and obtains the engine. The session starts the lab process when it opens a
    lab.
    """
    control_socket = ControlSocket(ControlSockets.of_user())

    def claim(name: str) -> str:
        if not is_name(name):
            raise click.UsageError(f"--name: {name!r} is not a valid name; use up to 63 of a-z, 0-9, dot and hyphen")
        try:
            control_socket.claim(name)
        except NameTakenError:
            raise click.UsageError(
                f"--name: a lab {name!r} runs already; stop it with `proxylab down {name}`, or choose another --name"
            ) from None
        return name

    try:
        with (make_session or Session)(choice_of(engine, **of_engine), seed, lambda: control_socket) as session:
            yield session, claim
    except BaseException:
        control_socket.give_up()
        raise
