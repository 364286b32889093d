"""A lab process, as its client sees it.

Owns: starting a lab process, and making sure that it is gone, unless it was told to stay.
Must not: import the lab process's own modules, or stay in the sandbox: the client lives in the user's world, with the
user's files, debugger and network.

The lab process is a fresh interpreter, not a fork: a client may have threads (execnet's, a debugger's), and a forked
copy of a threaded process inherits their locks in whatever state they are. It leads a session of its own, so that
Ctrl-C at the terminal reaches the client only, which then closes the socket.

PR_SET_PDEATHSIG speaks of threads: the thread that starts a lab process must live as long as it.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, TypeVar

import proxylab
from proxylab.client.connection import Connection
from proxylab.client.control_sockets import ControlSocket
from proxylab.errors import InternalError, LabEndedError, LabError
from proxylab.protocol.faults import raised
from proxylab.protocol.messages import LAUNCHER_ENDED, Build, Failed, Ready
from proxylab.protocol.standing_labs import AnyRequest, Memory, Stay, Stays
from proxylab.timing import Deadline

__all__ = ["LabProcess"]

Wanted = TypeVar("Wanted")

_START_SECONDS: Final = 30.0
_CLOSE_SECONDS: Final = 5.0
_CLOSE_SECONDS_A_PLACE: Final = 0.1
"""The kernel closes the packet sockets of a killed process one after another: 27 ms a place."""
_STAY_SECONDS: Final = 30.0
_KILLERS: Final = "as the kernel does when memory runs out (see dmesg)"
_LOG_LINES: Final = 40
_LOG_BYTES: Final = 64 * 1024


class LabProcess(Connection):
    """A running lab process. Use as a context manager, or ``close`` it.

    Args:
        control_socket: what other clients shall come by, should it be told to ``stay``; closed with this end of it.
    """

    def __init__(self, control_socket: ControlSocket | None = None) -> None:
        ours, theirs = socket.socketpair()
        given = [] if control_socket is None else [control_socket.socket.fileno(), control_socket.folder]
        with theirs:
            self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", "proxylab.server.boot", *map(str, (theirs.fileno(), *given))],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=[theirs.fileno(), *given],
                env=_environment(),
                start_new_session=True,
            )
        super().__init__(ours)
        self._control_socket = control_socket
        self._ready: Ready | None = None
        self._refused: LabError | None = None
        self._places = 0

    @property
    def pid(self) -> int:
        """The keeper's pid, in the client's pid namespace."""
        return self._child.pid

    @property
    def stands(self) -> bool:
        """Whether it is in its sandbox and may be asked."""
        return self._ready is not None and not self.closed

    def ready(self) -> Ready:
        """Wait until the lab process is in its sandbox; asked first by every ``request``.

        Raises:
            CapabilityError: this machine does not allow a sandbox.
            InternalError: it did not come up.
        """
        if self._refused is not None:
            raise self._refused  # what it said when it could not start; it is gone since
        if self._ready is None:
            try:
                answer = self._receive("get ready", Deadline.after(_START_SECONDS))
                if isinstance(answer, Failed):
                    raise raised(answer.fault)
            except LabError as error:
                self._refused = error
                raise
            if not isinstance(answer, Ready):
                raise InternalError(f"a lab process must greet with Ready, not {type(answer).__name__}")
            self._ready = answer
        return self._ready

    def request(self, request: AnyRequest, wanted: type[Wanted], deadline: Deadline) -> Wanted:
        """Ask, and wait for the answer (see ``Connection.request``); first, that it is in its sandbox."""
        self.ready()
        if isinstance(request, Build):
            self._places = max(self._places, len(request.plan.namespaces))
        return super().request(request, wanted, deadline)

    def stay(self, memory: Memory, seconds: float | None) -> None:
        """Let others come by the door, under the name that the memory has; for so many seconds beyond this client.

        With ``None`` it ends with this client as ever. Otherwise it is asked nothing more from here.

        Raises:
            NameTakenError: a lab of that name stands.
            InternalError: it has no door.
        """
        if self._control_socket is None:
            raise InternalError("a lab process without a door cannot stay")
        if not self._control_socket.name:
            self._control_socket.claim(memory.name)
        self._control_socket.tell_supervisor(self.pid)
        self.request(Stay(memory, seconds), Stays, Deadline.after(_STAY_SECONDS))
        if seconds is not None:
            self._leave()

    def close(self) -> None:
        """Close the lab and wait until every process of it has ended. Calling it twice does no harm.

        End-of-file is the order to end; a lab process that does not follow it is killed, and its sandbox with it.
        """
        if self._log.closed:
            return
        super().close()
        # End-of-file; then SIGTERM to the keeper, which kills init and waits until the kernel has killed all below it;
        # then, for a keeper that is stopped itself, SIGKILL.
        for blow in (signal.SIGTERM, signal.SIGKILL):
            try:
                self._child.wait(_CLOSE_SECONDS + self._places * _CLOSE_SECONDS_A_PLACE)
            except subprocess.TimeoutExpired:
                self._child.send_signal(blow)
        self._child.wait()
        self._release()

    def _leave(self) -> None:
        """Hang up, and let it live; whoever reaps this process's children when it is over need not be this process."""
        super().close()
        self._child.returncode = 0  # or Python would complain of a child that it has forgotten
        self._release()

    def _release(self) -> None:
        self._log.close()
        if self._control_socket is not None:
            self._control_socket.close()

    def _gone(self, what: str) -> LabError:
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(_CLOSE_SECONDS)
        ended, status = f"the lab process ended before it could {what}", self._child.returncode
        if status != LAUNCHER_ENDED and (words := self._last_words()):
            return InternalError(ended + words)
        how = "its launcher, which starts commands, ended" if status == LAUNCHER_ENDED else _how(status)
        return LabEndedError(f"{ended}: {how}; unless something has killed it, {_KILLERS}, please report this")

    def _last_words(self) -> str:
        """The last lines that it wrote to its standard error, for a bug report."""
        self._log.flush()
        size = os.fstat(self._log.fileno()).st_size
        tail = os.pread(self._log.fileno(), _LOG_BYTES, max(0, size - _LOG_BYTES))
        text = tail.decode(errors="replace").splitlines()
        return ":\n  " + "\n  ".join(text[-_LOG_LINES:]) if text else ""


def _how(status: int | None) -> str:
    """In which way it ended, by the keeper's status, which is the lab process's own as a byte."""
    number = 0 if status is None else -status if status < 0 else 256 - status
    names = {each.value: each.name for each in signal.Signals}
    return f"{names[number]} ended it" if number in names else f"it has status {status}"


def _environment() -> dict[str, str]:
    """The client's own, in which the lab process finds the very package that the client runs."""
    root = str(Path(proxylab.__file__).resolve().parent.parent)
    inherited = os.environ.get("PYTHONPATH", "")
    return os.environ | {"PYTHONPATH": root + (os.pathsep + inherited if inherited else "")}
