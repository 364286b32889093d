"""Commands inside nodes, pods and hosts.

Owns: the launcher child that starts them, and ``Launcher``, by which the lab process talks to it.
Must not: be imported by anything that the launcher child does not need; it is forked while the process is small.

Why a child: starting a command means to fork, and a fork of the lab process, with its event loop and its hundreds of
descriptors, is slow and full of traps. The launcher is forked once, while nothing but this module is loaded, and then
forks a command in half a millisecond. Each command enters the network namespace it is given, and the mount and UTS
namespaces of its place: its hostname is the place's name, its /run is private to the place (iptables keeps its lock
there), its process group is its own. Those two namespaces are made by the first command of a place and kept open here.

Standard input and output are memfds (memfd_create(2)): a command never blocks on a full pipe, and the lab process reads
a whole answer when the command has ended. RLIMIT_FSIZE bounds them.

If the launcher dies, the lab process sees end-of-file and closes the lab; if the lab process dies, init ends and the
kernel ends the launcher.
"""

import asyncio
import contextlib
import json
import os
import resource
import select
import signal
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from lab.errors import InternalError
from lab.kernel.linux import (
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWUTS,
    MS_NODEV,
    MS_NOSUID,
    die_with_parent,
    mount,
    setns,
    unshare,
)
from lab.kernel.netns import NetNs
from lab.timing import Deadline

__all__ = ["Completed", "Launcher", "fork_launcher"]

_MESSAGE_LIMIT = 128 * 1024
_OUTPUT_LIMIT = 256 * 1024 * 1024
_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that has ended. ``status`` is its exit code, or minus the number of the signal that ended it."""

    argv: tuple[str, ...]
    status: int
    stdout: bytes
    stderr: bytes


# --- the lab process's side -------------------------------------------------------------------------------------------


class Launcher:
    """The lab process's handle on the launcher child. Bound to the running event loop by ``attach``."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._waiting: dict[int, asyncio.Future[int]] = {}
        self._number = 0
        self.gone: asyncio.Event = asyncio.Event()

    def attach(self) -> None:
        """Begin to read the launcher's answers on the running loop."""
        self._channel.setblocking(False)
        asyncio.get_running_loop().add_reader(self._channel, self._read)

    async def run(
        self,
        netns: NetNs,
        argv: Sequence[str],
        *,
        place: str,
        stdin: bytes = b"",
        environment: Mapping[str, str] | None = None,
        deadline: Deadline,
    ) -> Completed:
        """Run one command in ``netns`` and wait for its end.

        Raises:
            TimeoutError: when it has not ended by the deadline; it and its process group are killed.
            InternalError: when the launcher is gone.
        """
        files = [os.memfd_create(name, os.MFD_CLOEXEC) for name in ("stdin", "stdout", "stderr")]
        try:
            _write_all(files[0], stdin)
            os.lseek(files[0], 0, os.SEEK_SET)
            request = {
                "argv": list(argv),
                "place": place,
                "hostname": netns.name,
                "environment": {**_ENVIRONMENT, **(environment or {})},
            }
            status = await self._start_and_wait(request, (netns.fd, *files), deadline)
            return Completed(tuple(argv), status, _contents(files[1]), _contents(files[2]))
        finally:
            for fd in files:
                os.close(fd)

    def forget(self, places: Sequence[str]) -> None:
        """Let go of the mount and UTS namespaces of ``places``."""
        for place in places:
            self._send({"forget": place}, ())

    def close(self) -> None:
        """End the launcher, and with it the commands that still run."""
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop().remove_reader(self._channel)
        self._channel.close()

    async def _start_and_wait(self, request: dict[str, Any], fds: Sequence[int], deadline: Deadline) -> int:
        self._number += 1
        number = self._number
        ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting[number] = ended
        try:
            self._send({"run": number, **request}, fds)
            async with asyncio.timeout(deadline.remaining):
                return await ended
        except TimeoutError:
            self._send({"kill": number}, ())
            command = " ".join(request["argv"])
            raise TimeoutError(f"{command} in {request['hostname']} did not end in time and was killed") from None
        finally:
            self._waiting.pop(number, None)

    def _send(self, message: dict[str, Any], fds: Sequence[int]) -> None:
        try:
            socket.send_fds(self._channel, [json.dumps(message).encode()], list(fds))
        except OSError as error:
            raise InternalError(f"the launcher does not answer ({error})") from error

    def _read(self) -> None:
        try:
            message = self._channel.recv(_MESSAGE_LIMIT)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if not message:
            asyncio.get_running_loop().remove_reader(self._channel)
            self.gone.set()
            for ended in self._waiting.values():
                if not ended.done():
                    ended.set_exception(InternalError("the launcher ended"))
            return
        number, status = struct.unpack("=qi", message)
        ended_now = self._waiting.get(number)
        if ended_now is not None and not ended_now.done():
            ended_now.set_result(status)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _contents(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)


# --- the launcher's side ----------------------------------------------------------------------------------------------


def fork_launcher(client: socket.socket) -> socket.socket:
    """Fork the launcher child; return the lab process's end of the channel to it.

    ``client`` is closed in the child: only the lab process may hold it, so that its end is the end of the lab.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        client.close()
        die_with_parent()
        _serve(theirs)
    theirs.close()
    return ours


@dataclass(frozen=True, slots=True)
class _Place:
    """The mount and UTS namespaces of a place, held open."""

    mounts: int
    names: int


def _serve(channel: socket.socket) -> NoReturn:
    """Start commands, reap them and report how they ended, until the channel is closed."""
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    places: dict[str, _Place] = {}
    running: dict[int, int] = {}
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    poll.register(wake_read, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd == wake_read:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_read, 4096)
            elif not _obey(channel, places, running):
                os._exit(0)
        _reap(channel, running)


def _obey(channel: socket.socket, places: dict[str, _Place], running: dict[int, int]) -> bool:
    """Carry out one request. False when the lab process has gone."""
    try:
        data, fds, _, _ = socket.recv_fds(channel, _MESSAGE_LIMIT, 4)
    except OSError:
        return False
    if not data:
        return False
    request = json.loads(data)
    if "run" in request:
        running[_start(request, fds, places)] = request["run"]
        for fd in fds:
            os.close(fd)
    elif "kill" in request:
        for pid, number in running.items():
            if number == request["kill"]:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
    elif "forget" in request:
        place = places.pop(request["forget"], None)
        if place is not None:
            os.close(place.mounts)
            os.close(place.names)
    return True


def _reap(channel: socket.socket, running: dict[int, int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        number = running.pop(pid, None)
        if number is not None:
            channel.send(struct.pack("=qi", number, os.waitstatus_to_exitcode(status)))


def _start(request: dict[str, Any], fds: Sequence[int], places: dict[str, _Place]) -> int:
    """Fork the command; for the first command of a place, keep the namespaces that it makes."""
    place = places.get(request["place"])
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        try:
            _become(request, fds, place, theirs)
        except BaseException as error:
            os.write(fds[3], f"{request['argv'][0]}: {error}\n".encode())
            os._exit(127 if isinstance(error, FileNotFoundError) else 126)
    theirs.close()
    with contextlib.suppress(OSError):  # it may have run and ended already
        os.setpgid(pid, pid)
    if place is None and ours.recv(1):
        places[request["place"]] = _Place(
            os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC),
            os.open(f"/proc/{pid}/ns/uts", os.O_RDONLY | os.O_CLOEXEC),
        )
        ours.send(b".")
    ours.close()
    return pid


def _become(request: dict[str, Any], fds: Sequence[int], place: _Place | None, launcher: socket.socket) -> NoReturn:
    """Turn this fresh child into the command."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    os.setpgid(0, 0)
    die_with_parent()
    netns, *standard = fds
    if place is None:
        unshare(CLONE_NEWNS | CLONE_NEWUTS)
        mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=64m")
        socket.sethostname(request["hostname"])
    else:
        setns(place.mounts, CLONE_NEWNS)
        setns(place.names, CLONE_NEWUTS)
    setns(netns, CLONE_NEWNET)
    if place is None:
        launcher.send(b".")
        launcher.recv(1)  # the launcher opens our namespaces by our pid; until then we must not end
    for target, fd in enumerate(standard):
        os.dup2(fd, target, inheritable=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (_OUTPUT_LIMIT, _OUTPUT_LIMIT))
    os.chdir("/")
    os.execvpe(request["argv"][0], request["argv"], request["environment"])  # noqa: S606 - a shell is not wanted
