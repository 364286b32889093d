"""Where a lab process begins: ``python -m lab.boot FD``, started by ``lab.client``.

Owns: the order sandbox, launcher, event loop.
Must not: import anything heavy before the launcher is forked; keeper, init and launcher are copies of this process.
"""

import os
import signal
import socket
import sys

from lab.errors import CapabilityError
from lab.kernel.launcher_child import fork_launcher
from lab.kernel.sandbox import enter

__all__ = ["main"]


def main() -> None:
    """Become keeper, init, launcher and lab process, each in its turn."""
    client = socket.socket(fileno=int(sys.argv[1]))
    rootless = os.geteuid() != 0
    try:
        enter(client)
    except CapabilityError as error:
        _report(client, error)
        os._exit(int(error.exit_code))
    launcher = fork_launcher(client)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from lab.process import serve  # noqa: PLC0415 - heavy, and nobody's business but the lab process's

    serve(client, launcher, rootless=rootless)


def _report(client: socket.socket, error: CapabilityError) -> None:
    from lab.channel import Channel  # noqa: PLC0415 - only on the way out
    from lab.faults import fault_of  # noqa: PLC0415
    from lab.messages import Answer, Failed  # noqa: PLC0415

    Channel(client).send(Failed(fault_of(error)), Answer)


if __name__ == "__main__":
    main()
