"""Starts a lab process, and makes sure that it is gone, unless its lab is detached.

The new process begins in ``server.main``, and ``client.connection`` talks with it. The client stays in the user's
world, with the user's files, debugger and network. It never imports the lab process's modules.

The lab process is a fresh interpreter, not a fork: a client may have threads (execnet's, a debugger's), and a forked
copy of a threaded process inherits their locks in whatever state they are. It leads a session of its own, so that
Ctrl-C at the terminal reaches only the client, which then closes the socket.

PR_SET_PDEATHSIG applies to threads: the thread that starts a lab process must live as long as it.
"""

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from msgspec.structs import replace

import proxylab
from proxylab.capability import Capability
from proxylab.client.connection import Connection
from proxylab.client.control_sockets import ControlSocket
from proxylab.client.process_states import StuckProcess, ended_by_itself, how_it_ended, stuck_process
from proxylab.compiled_modules import READER, remove_damaged
from proxylab.encoding import encode
from proxylab.errors import GUEST_ENDED, CapabilityError, InternalError, LabEndedError, LabError, LabStuckError
from proxylab.guest.console import end_of_console
from proxylab.guest.kernels import cure_in_guest, find_kernel
from proxylab.protocol.faults import error_of
from proxylab.protocol.messages import AnswerOf, Build, Examine, Failed, Ready, Request
from proxylab.protocol.standing_labs import Detach, LabRecord
from proxylab.resource_limits import check_limits
from proxylab.scenario.words import HOST
from proxylab.timing import Deadline

_START_SECONDS: Final = 30.0
_CLOSE_SECONDS: Final = 5.0
_CLOSE_SECONDS_A_NETNS: Final = 0.1
"""The kernel closes the packet sockets of a killed process one after another: 27 ms a namespace."""
_STUCK_SECONDS: Final = 0.5
"""A lab that ends takes less; after so many seconds a process that does not run is not waited for."""
_KILLED_SECONDS: Final = 60.0
_STAY_SECONDS: Final = 30.0
_KILLED: Final = signal.SIGKILL.name
_KILLERS: Final = "has killed it, as the kernel does when memory runs out (see dmesg)"
_LOG_LINES: Final = 40
_LOG_BYTES: Final = 64 * 1024


class LabProcess(Connection):
    """A running lab process. Use as a context manager, or ``close`` it. Raises ``CapabilityError``.

    Args:
        control_socket: where other clients connect if the lab is detached; closed with this end of it.
        kernel: what ``--kernel`` says (``guest.kernels``).
        privileged: whether commands in a lab of the machine's root, or the kernel of its guest, keep root's rights over
            the machine.
    """

    def __init__(
        self, control_socket: ControlSocket | None = None, kernel: str = HOST, *, privileged: bool = False
    ) -> None:
        check_limits()
        found = find_kernel(kernel)
        self._in_guest = found is not None
        how = ["--kernel", encode(found).decode()] if found else []
        how += ["--privileged"] if privileged else []
        self._start_seconds = _START_SECONDS + (0 if found is None else found.boot_seconds)
        ours, theirs = socket.socketpair()
        given = [] if control_socket is None else [control_socket.socket.fileno(), control_socket.folder]
        with theirs:
            self._log: IO[bytes] = os.fdopen(os.memfd_create("log"), "w+b")  # closed by close()
            # The process inherits this mask: until it ignores SIGINT, none ends it with a traceback of Python.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
            try:
                self._child = subprocess.Popen(
                    [sys.executable, "-P", "-m", "proxylab.server.main", *how, *map(str, (theirs.fileno(), *given))],
                    stdin=subprocess.DEVNULL,
                    stdout=self._log,
                    stderr=self._log,
                    pass_fds=[theirs.fileno(), *given],
                    env=_environment(),
                    start_new_session=True,
                )
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        super().__init__(ours)
        self._control_socket = control_socket
        self._ready: Ready | None = None
        self._refused: LabError | None = None
        self._namespaces = 0

    @property
    def pid(self) -> int:
        """The supervisor's pid, in the client's pid namespace."""
        return self._child.pid

    @property
    def is_open(self) -> bool:
        """Whether it is in its sandbox and takes requests."""
        return self._ready is not None and not self.closed

    def ready(self) -> Ready:
        """Wait until the lab process is in its sandbox; every ``request`` calls this first.

        Raises:
            CapabilityError: this machine does not allow a sandbox.
            InternalError: it did not come up.
        """
        if self._refused is not None:
            raise self._refused  # the reason why it could not start; it is gone since
        if self._ready is None:
            try:
                reply: Ready | Failed = self._receive(Ready | Failed, "get ready", Deadline.after(self._start_seconds))
                if isinstance(reply, Failed):
                    raise error_of(reply.fault)
            except LabError as error:
                self._refused = error
                if not isinstance(error, CapabilityError):
                    self.close()  # it has died, or hangs: the next lab gets another process
                raise
            self._ready = reply
            if self._in_guest and reply.refused:
                self._tell(f"the guest's kernel keeps root's rights over the machine: {reply.refused}")
        return self._ready

    def request(self, request: Request[AnswerOf], deadline: Deadline) -> AnswerOf:
        """Wait until it is in its sandbox, then send a request and wait for the answer (see ``Connection.request``)."""
        self.ready()
        if isinstance(request, Build):
            self._namespaces = max(self._namespaces, len(request.plan.namespaces))
        try:
            answer = super().request(request, deadline)
        except CapabilityError as error:
            if not self._in_guest:
                raise
            raise CapabilityError(error.missing, cure_in_guest(error.cure)) from error
        return answer

    def examine(self, names: tuple[str, ...], deadline: Deadline) -> tuple[Capability, ...]:
        """The capabilities of these names, or all, each with the cure on the kernel where the process runs."""
        found = self.request(Examine(names), deadline)
        return tuple(replace(each, cure=cure_in_guest(each.cure)) for each in found) if self._in_guest else found

    def detach(self, record: LabRecord, seconds: float | None) -> None:
        """Open the control socket under the name in ``record``; the lab lives for ``seconds`` beyond this client.

        With ``None`` it ends with this client. Otherwise this client can send it no more requests.

        Raises:
            NameTakenError: a lab of that name is running.
            InternalError: it has no control socket.
        """
        if self._control_socket is None:
            raise InternalError("a lab process without a control socket cannot be detached")
        if not self._control_socket.name:
            self._control_socket.claim(record.name)
        self._control_socket.tell_supervisor(self.pid)
        self.request(Detach(record, seconds), Deadline.after(_STAY_SECONDS))
        if seconds is not None:
            self._leave()

    def close(self) -> None:
        """Close the lab and wait until every process of it has ended. A second call does nothing.

        End-of-file tells the lab process to end; one that does not is killed, and its sandbox with it.
        """
        if self._log.closed:
            return
        super().close()
        # End-of-file; then SIGTERM to the supervisor, which kills init and waits until the kernel has killed all below
        # it; then SIGKILL, in case the supervisor itself is stopped.
        for number in (signal.SIGTERM, signal.SIGKILL):
            seconds = _CLOSE_SECONDS + self._namespaces * _CLOSE_SECONDS_A_NETNS
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(_STUCK_SECONDS)
            if stuck_process(self.pid) is None:
                with suppress(subprocess.TimeoutExpired):
                    self._child.wait(seconds)
            if self._child.poll() is not None:
                break
            self._child.send_signal(number)
        try:
            self._child.wait(_KILLED_SECONDS + self._namespaces * _CLOSE_SECONDS_A_NETNS)
        except subprocess.TimeoutExpired:
            raise LabStuckError(
                f"the lab process does not end: {stuck_process(self.pid) or 'no process of it is stuck'}"
            ) from None
        finally:
            self._release()

    def _leave(self) -> None:
        """Hang up, and let it live. Another process may reap it in the end."""
        super().close()
        self._child.returncode = 0  # otherwise Python warns of a child that still runs
        self._release()

    def _release(self) -> None:
        self._log.close()
        if self._control_socket is not None:
            self._control_socket.close()

    def _gone(self, what: str) -> LabError:
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(_CLOSE_SECONDS)
        ended, status = f"the lab process ended before it could {what}", self._child.returncode
        if status is not None and ended_by_itself(status) and (words := self._last_words()):
            return LabEndedError(f"{ended}: {remove_damaged()}") if READER in words else InternalError(ended + words)
        how = "a process below its supervisor does not end" if status is None else how_it_ended(status)
        if status == GUEST_ENDED and not self._log.closed:
            how += f" ({end_of_console(self._log.fileno())})"
        killer = _KILLERS if _KILLED in how else "ended it"
        return LabEndedError(f"{ended}: {how}; unless something {killer}, please report this")

    def _stuck(self) -> StuckProcess | None:
        return stuck_process(self.pid)

    def _last_words(self) -> str:
        """The last lines that it wrote to its standard error, for a bug report."""
        if self._log.closed:
            return ""
        self._log.flush()
        size = os.fstat(self._log.fileno()).st_size
        tail = os.pread(self._log.fileno(), _LOG_BYTES, max(0, size - _LOG_BYTES))
        text = tail.decode(errors="replace").splitlines()
        return ":\n  " + "\n  ".join(text[-_LOG_LINES:]) if text else ""


def _environment() -> dict[str, str]:
    """The client's own environment, and the path to the client's own package."""
    root = str(Path(proxylab.__file__).resolve().parent.parent)
    inherited = os.environ.get("PYTHONPATH", "")
    return os.environ | {"PYTHONPATH": root + (os.pathsep + inherited if inherited else "")}
