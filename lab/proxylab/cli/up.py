"""``proxylab up``: start a lab that keeps running after the command ends (a standing lab).

``command`` reads the scenario, obtains the engine, claims the lab's name, and opens the lab:
``client.session.Session.open`` starts the lab process and has it build the lab. Then the lab is detached from this
command, which prints what runs in it and ends.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import click

from proxylab.binaries.control_plane import EMBEDDED
from proxylab.cli.case_option import CaseId, Seed, choose_case
from proxylab.cli.durations import Duration, age
from proxylab.cli.engine_options import EngineOptions
from proxylab.cli.options import Options, argument, option, takes
from proxylab.cli.scenario_files import complete_scenarios
from proxylab.cli.standard_streams import echo
from proxylab.client.control_sockets import ControlSocket, ControlSockets, NameTakenError, is_name
from proxylab.client.kubernetes import open_api
from proxylab.client.session import Session, SessionMaker
from proxylab.engines.engine_names import mode_of, version_of
from proxylab.errors import ExitCode
from proxylab.plan.assembly import lay_out
from proxylab.report.standing_labs import standing_lines
from proxylab.scenario.words import HOST

_WIDTH: Final = 80
_TWO_NODES: Final = Path(__file__).with_name("two-nodes.lab.yaml")


class UpOptions(Options, frozen=True, kw_only=True):
    """What stands, under which name, and for how long."""

    file: Annotated[
        Path | None,
        argument(
            required=False,
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            shell_complete=complete_scenarios,
        ),
    ]
    case_id: CaseId
    proxies: EngineOptions
    name: Annotated[
        str | None, option("--lab", "--name", metavar="NAME", help="The lab's name; by default its scenario's.")
    ]
    ttl: Annotated[
        float,
        option(
            "--ttl",
            type=Duration(),
            metavar="TIME",
            default="8h",
            show_default=True,
            help="The lab's lifetime: 90s, 8h, 2d.",
        ),
    ]
    seed: Seed


@click.command("up", short_help="Start the lab of a scenario and leave it running.")
@takes
@click.pass_obj
def command(make_session: SessionMaker | None, /, *, options: UpOptions) -> ExitCode:
    """Start the lab of the scenario FILE with its engines, print what runs in it, and return.

    With --control-plane real, `proxylab kubectl` and `proxylab kubeconfig` reach its API; FILE may then be left out,
    for a cluster of two nodes.

    The lab runs until `proxylab down` or the end of its lifetime, even if the terminal closes. Only its owner can
    reach it.

    Example: proxylab up scenarios/clusterip/from-a-pod.lab.yaml --ttl 1h
    """
    engine, is_asked_for = options.proxies.engine, options.proxies.proxy.control_plane not in ("", EMBEDDED)
    if is_asked_for and options.proxies.kernel not in ("", HOST):
        raise click.UsageError("--control-plane: a guest has no way to a port of this machine; leave --kernel out")
    if options.file is None and not is_asked_for:
        raise click.UsageError("FILE: name a scenario, or give --control-plane real for a cluster of two nodes")
    scenario = choose_case(options.file or _TWO_NODES, options.case_id, mode_of(engine), version_of(engine))
    lab_name = options.name or scenario.name
    if not is_name(lab_name):
        raise click.UsageError(f"--lab: {lab_name!r} is not a valid name; use up to 63 of a-z, 0-9, dot and hyphen")
    if lab_name in ControlSockets.of_user().names():
        raise _taken(lab_name)  # now, not after minutes in which a kube-proxy is built
    with _session(make_session or Session, options) as (session, control_socket):
        try:
            control_socket.claim(lab_name)
        except NameTakenError:
            raise _taken(lab_name) from None
        lab = session.open(scenario)
        if lab.built.has_kubernetes:
            open_api(lab.connection, lab_name)
        lab.detach(lab_name, options.ttl)
        binary = session.engine.binary
    alone = len(ControlSockets.of_user().names()) == 1
    lines = standing_lines(
        lay_out(scenario),
        name=lab_name,
        engine=engine,
        left=age(options.ttl),
        width=shutil.get_terminal_size((_WIDTH, 24)).columns,
        alone=alone,
        binary=binary,
    )
    echo("\n".join(lines))
    if lab.built.has_kubernetes:
        echo(f"  proxylab kubectl {'' if alone else f'--lab {lab_name} '}-- get all --all-namespaces")
    return ExitCode.OK


def _taken(name: str) -> click.UsageError:
    return click.UsageError(
        f"--lab: a lab {name!r} runs already; stop it with `proxylab down {name}`, or choose another --lab"
    )


@contextmanager
def _session(make_session: SessionMaker, options: UpOptions) -> Iterator[tuple[Session, ControlSocket]]:
    """A session for a standing lab with its engine, and the lab's control socket, which has no name yet.

    It obtains the engine. The session starts the lab process when it opens a lab.
    """
    control_socket = ControlSocket(ControlSockets.of_user())
    try:
        with make_session(options.proxies.choice(), options.seed, lambda: control_socket) as session:
            yield session, control_socket
    except BaseException:
        control_socket.give_up()
        raise
