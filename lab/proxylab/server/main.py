"""The entry point of a lab process: ``python -m proxylab.server.main FD [SOCKET FOLDER]``.

It enters the sandbox (``kernel.sandbox.sandbox``), forks the launcher (``kernel.sandbox.launcher_child``) and starts
the event loop (``server.event_loop``), in this order. Supervisor, init and launcher are copies of this process, so it
imports nothing heavy before the launcher is forked.
"""

import gc
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import Final

from proxylab.errors import CapabilityError
from proxylab.kernel.sandbox.launcher_child import fork_launcher
from proxylab.kernel.sandbox.limits import raise_descriptor_limit
from proxylab.kernel.sandbox.sandbox import ControlSocket, enter

__all__ = ["GC_THRESHOLD", "main"]

_REPORT_SECONDS: Final = 5.0

GC_THRESHOLD: Final = 50_000
"""How many objects a lab process makes before Python searches them for cycles.

A run of many flows makes records without cycles. With Python's default of 700, a run of 10,000 flows takes more than
2.4 times the processor time of the kernel's own part; with this threshold it takes 1.9 times. The budget is twice.
"""


def main() -> None:
    """Become supervisor, init, launcher and lab process, each in its turn."""
    client = socket.socket(fileno=int(sys.argv[1]))
    control_socket = ControlSocket(socket.socket(fileno=int(sys.argv[2])), int(sys.argv[3])) if sys.argv[2:] else None
    if control_socket is not None:
        os.chdir("/")  # a detached lab must not keep this directory busy
    _forget_inherited_signals()
    raise_descriptor_limit()
    rootless = os.geteuid() != 0
    try:
        enter(client, control_socket)
    except CapabilityError as error:
        _report(client, error)
        os._exit(int(error.exit_code))
    launcher = fork_launcher(client, *([control_socket.socket] if control_socket else []))
    gc.set_threshold(GC_THRESHOLD)
    from proxylab.server.event_loop import serve  # noqa: PLC0415 - heavy, and only the lab process needs it

    serve(client, launcher, control_socket.socket if control_socket else None, rootless=rootless)


def _forget_inherited_signals() -> None:
    """Unblock all signals and restore the usual actions, since exec(2) passes on the client's.

    Init learns of dead children by SIGCHLD, and every process ends by SIGTERM: a client that blocks or ignores them
    must not make a sandbox that never ends.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def _report(client: socket.socket, error: CapabilityError) -> None:
    from proxylab.protocol.channel import Channel, ChannelClosedError  # noqa: PLC0415 - only on the way out
    from proxylab.protocol.faults import fault_of  # noqa: PLC0415
    from proxylab.protocol.messages import Failed  # noqa: PLC0415
    from proxylab.timing import Deadline  # noqa: PLC0415

    with suppress(TimeoutError, ChannelClosedError):  # a client that has gone needs no report
        Channel(client).send(Failed(fault_of(error)), Deadline.after(_REPORT_SECONDS))


if __name__ == "__main__":
    main()
