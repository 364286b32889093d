"""Ends the standing labs of a test run that was killed: they would live on for hours, as they do for users.

As a program (``python orphaned_labs.py FOLDER``) it waits until its standard input closes, which the death of its
parent does, however it dies. Then it ends every lab whose control socket lies below the folder.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proxylab.client.control_sockets import SUPERVISOR_SUFFIX, ControlSockets


@contextmanager
def ended_with_us(folder: Path) -> Iterator[None]:
    """End the standing labs below ``folder`` when this process dies within the block."""
    argv = [sys.executable, __file__, str(folder)]
    # In a session of its own: the signal that ends a whole run must not end this program too.
    with subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True):
        yield


def main() -> None:
    """Wait for the end of the parent, and end its labs."""
    sys.stdin.read()
    for file in Path(sys.argv[1]).rglob(f"*{SUPERVISOR_SUFFIX}"):
        ControlSockets(file.parent).kill(file.name.removesuffix(SUPERVISOR_SUFFIX))


if __name__ == "__main__":
    main()
