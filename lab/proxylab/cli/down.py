"""``proxylab down``: stop labs, politely first and then by force, and wait until nothing of them is left."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Final

import click

from proxylab.cli.chosen_lab import complete_names
from proxylab.cli.options import argument, option, takes
from proxylab.cli.standard_streams import echo
from proxylab.client.connection import ControlConnection
from proxylab.client.control_sockets import ControlSockets, NoSuchLabError
from proxylab.client.process_states import stuck_process
from proxylab.errors import ExitCode, LabError, LabStuckError
from proxylab.protocol.standing_labs import End
from proxylab.timing import Deadline

_ASK_SECONDS: Final = 5.0
_LEAVE_SECONDS: Final = 60.0
"""A lab of 1,000 pods, the most that a scenario may have, is gone 2 s after it confirms the request."""
_KILLED_SECONDS: Final = 300.0
"""The kernel closes the packet sockets of a killed process one after another: 27 s for 1,000 pods."""
_PAUSE: Final = 0.005


@click.command("down", short_help="Stop and remove standing labs.")
@takes
def command(
    *,
    names: Annotated[tuple[str, ...], argument(nargs=-1, metavar="[NAME]…", shell_complete=complete_names)],
    every: Annotated[bool, option("--all", is_flag=True, help="Stop every standing lab.")],
) -> ExitCode:
    """Stop the labs with these NAMEs, or the only one, and wait until nothing of them is left.

    Example: proxylab down --all
    """
    control_sockets = ControlSockets.of_user()
    there = control_sockets.names()
    if every and names:
        raise click.UsageError("give NAME or --all, not both")
    ended = dict(control_sockets.ended())
    for name, how in ended.items():
        echo(f"{name} has ended already: {how}", err=True)
    unknown = [name for name in names if name not in there and name not in ended]
    if unknown:
        known = f"there are {', '.join(there)}" if there else "no lab is running"
        raise click.UsageError(f"NAME: there is no lab {unknown[0]!r}; {known}")
    if not every and not names and len(there) > 1:
        raise click.UsageError(f"{len(there)} labs are running; give their NAMEs or --all: {', '.join(there)}")
    for name in [each for each in dict.fromkeys(names) if each in there] if names else there:
        _end(control_sockets, name)
        echo(f"{name} is gone")
    if not there and not ended:
        echo("no lab is running", err=True)
    return ExitCode.OK


def _end(control_sockets: ControlSockets, name: str) -> None:
    """Ask the lab to end; if it does not answer, or a process of it does not run, make its supervisor kill it."""
    supervisor = control_sockets.supervisor_of(name)

    def is_stuck() -> bool:
        return supervisor is not None and stuck_process(supervisor) is not None

    if not is_stuck():
        seconds = _ASK_SECONDS
        with (
            suppress(NoSuchLabError, LabError, TimeoutError),
            ControlConnection(control_sockets, name, seconds) as connection,
        ):
            connection.request(End(), Deadline.after(seconds))
            seconds = _LEAVE_SECONDS
        _wait(lambda: not control_sockets.is_taken(name) or is_stuck(), seconds)
        if not control_sockets.is_taken(name):
            return
    control_sockets.kill(name)
    if not _wait(lambda: name not in control_sockets.names(), _KILLED_SECONDS):
        why = supervisor and stuck_process(supervisor)
        raise LabStuckError(f"the lab {name} does not end: {why or f'its supervisor has the pid {supervisor}'}")


def _wait(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether the condition came true in time."""
    deadline = Deadline.after(seconds)
    while not condition():
        if deadline.passed:
            return False
        time.sleep(_PAUSE)
    return True
