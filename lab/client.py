"""A lab process, as its client sees it.

Owns: starting a lab process, asking it, and making sure that it is gone.
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
from types import TracebackType
from typing import IO, Final, Self, TypeVar

import lab
from lab.channel import Channel, ChannelClosedError
from lab.errors import InternalError, LabError
from lab.faults import raised
from lab.messages import Answer, Failed, Ready, Request
from lab.timing import Deadline

__all__ = ["LabProcess"]

Wanted = TypeVar("Wanted")

_START_SECONDS: Final = 30.0
_CLOSE_SECONDS: Final = 5.0
_LOG_LINES: Final = 40
_LOG_BYTES: Final = 64 * 1024


class LabProcess:
    """A running lab process. Use as a context manager, or ``close`` it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", "lab.boot", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                pass_fds=[theirs.fileno()],
                env=_environment(),
                start_new_session=True,
            )
        self._channel = Channel(ours)
        self._ready: Ready | None = None
        self._refused: LabError | None = None
        self.closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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

    def request(self, request: Request, wanted: type[Wanted], deadline: Deadline) -> Wanted:
        """Ask, and wait for the answer, which must be a ``wanted``.

        Raises:
            LabError: the one that the lab process met, with its own words.
            InternalError: the lab process is gone, silent, or answers something else; then, and when this call is
                interrupted, it is closed: an answer that comes late would be taken for that to the next request.
        """
        self.ready()
        what = f"answer {type(request).__name__}"
        try:
            answer = self._exchange(request, what, deadline)
        except BaseException:
            self.close()
            raise
        if isinstance(answer, Failed):
            raise raised(answer.fault)
        if not isinstance(answer, wanted):
            self.close()
            raise InternalError(f"the lab process answered {type(request).__name__} with {type(answer).__name__}")
        return answer

    def close(self) -> None:
        """Close the lab and wait until every process of it has ended. Calling it twice does no harm.

        End-of-file is the order to end; a lab process that does not follow it is killed, and its sandbox with it.
        """
        self.closed = True
        self._channel.close()
        # End-of-file; then SIGTERM to the keeper, which kills init and waits until the kernel has killed all below it;
        # then, for a keeper that is stopped itself, SIGKILL.
        for blow in (signal.SIGTERM, signal.SIGKILL):
            try:
                self._child.wait(_CLOSE_SECONDS)
            except subprocess.TimeoutExpired:
                self._child.send_signal(blow)
        self._child.wait()
        self._log.close()

    def _exchange(self, request: Request, what: str, deadline: Deadline) -> object:
        try:
            self._channel.send(request, Request, deadline)
        except ChannelClosedError as error:
            raise self._gone(what) from error
        except TimeoutError:
            raise InternalError(f"the lab process did not take the request to {what}{self._last_words()}") from None
        return self._receive(what, deadline)

    def _receive(self, what: str, deadline: Deadline) -> object:
        try:
            return self._channel.receive(Answer, deadline)
        except ChannelClosedError as error:
            raise self._gone(what) from error
        except TimeoutError:
            raise InternalError(f"the lab process did not {what} in time{self._last_words()}") from None

    def _gone(self, what: str) -> InternalError:
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(_CLOSE_SECONDS)
        return InternalError(f"the lab process ended before it could {what}{self._last_words()}")

    def _last_words(self) -> str:
        """The last lines that it wrote to its standard error, for a bug report."""
        self._log.flush()
        size = os.fstat(self._log.fileno()).st_size
        tail = os.pread(self._log.fileno(), _LOG_BYTES, max(0, size - _LOG_BYTES))
        text = tail.decode(errors="replace").splitlines()
        return ":\n  " + "\n  ".join(text[-_LOG_LINES:]) if text else ""


def _environment() -> dict[str, str]:
    """The client's own, in which the lab process finds the very package that the client runs."""
    root = str(Path(lab.__file__).resolve().parent.parent)
    inherited = os.environ.get("PYTHONPATH", "")
    return os.environ | {"PYTHONPATH": root + (os.pathsep + inherited if inherited else "")}
