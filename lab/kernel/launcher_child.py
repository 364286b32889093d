"""Commands inside nodes, pods and hosts: the launcher child.

Owns: the child that forks commands, and the mount and UTS namespaces of the places they run in.
Must not: import anything that a command's start does not need; this process is forked while it is small, and every
command is a fork of it.

Why a child: starting a command means to fork, and a fork of the lab process, with its event loop and its hundreds of
descriptors, is slow and full of traps. The launcher is forked once, early, and then forks a command in half a
millisecond. Each command enters the network namespace it is given, and the mount and UTS namespaces of its place: its
hostname is the place's name, its /run is private to the place (iptables keeps its lock there), its /sys and its
resolv.conf are the place's (``kernel.place``), its process group is its own. Those two namespaces are made by the first
command of a place and kept open here.

If the launcher dies, the lab process sees end-of-file and closes the lab; if the lab process dies, init ends and the
kernel ends the launcher.
"""

import contextlib
import fcntl
import json
import os
import resource
import select
import signal
import socket
import struct
import termios
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from lab.frozen import dataclass
from lab.kernel.commands import family_of
from lab.kernel.feeding import feed
from lab.kernel.linux import (
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWUTS,
    die_with_parent,
    setns,
    unshare,
)
from lab.kernel.place import furnish

__all__ = ["ENDED", "MESSAGE_LIMIT", "fork_launcher"]

MESSAGE_LIMIT: Final = 128 * 1024  # a request; SEQPACKET keeps it whole
# What nohup(1) and shells in the background ignore, and what Python handles or ignores.
_RESTORED: Final = tuple(
    getattr(signal, f"SIG{name}") for name in ("HUP", "INT", "QUIT", "TERM", "CHLD", "PIPE", "XFSZ")
)
ENDED: Final = struct.Struct("=qi")  # an answer: the request's number, and the exit code or minus the signal
_ROUNDS: Final = 100
_OUTPUT_LIMIT: Final = 256 * 1024 * 1024  # RLIMIT_FSIZE, which bounds memfds too


def fork_launcher(client: socket.socket, *others: socket.socket) -> socket.socket:
    """Fork the launcher child; return the lab process's end of the channel to it.

    ``client`` is closed in the child: only the lab process may hold it, so that its end is the end of the lab. So are
    ``others``, which are nothing to a launcher.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        for each in (client, *others):
            each.close()
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
        data, fds, flags, _ = socket.recv_fds(channel, MESSAGE_LIMIT, 4)
    except OSError:
        return False
    if not data or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):  # gone, or speaking another protocol than ours
        return False
    for fd in fds:
        os.set_inheritable(fd, False)  # recv_fds drops its flags argument, MSG_CMSG_CLOEXEC too (cpython 3.11)
    match json.loads(data):
        case {"run": int(number)} as request:
            running[_start(request, fds, places)] = number
        case {"kill": int(number), "signal": int(which)}:
            _kill(number, which, running)
        case {"forget": str(name)} if name in places:
            place = places.pop(name)
            os.close(place.mounts)
            os.close(place.names)
    for fd in fds:
        os.close(fd)
    return True


def _kill(number: int, which: int, running: dict[int, int]) -> None:
    """Send a signal to one command with all its children, if it still runs, wherever they have gone.

    Those that a dying process has started meanwhile are found the next time round; the dead start none.
    """
    for pid in [pid for pid, other in running.items() if other == number]:
        killed: set[int] = set()
        for _ in range(_ROUNDS):
            found = family_of(number, pid) - killed
            if not found:
                break
            for each in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, which)
            killed |= found


def _reap(channel: socket.socket, running: dict[int, int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        number = running.pop(pid, None)
        if number is not None:
            channel.send(ENDED.pack(number, os.waitstatus_to_exitcode(status)))


def _start(request: dict[str, Any], fds: Sequence[int], places: dict[str, _Place]) -> int:
    """Fork the command; for the first command of a place, keep the namespaces that it makes."""
    place = places.get(request["place"])
    ours, theirs = socket.socketpair()
    netns, text, *outputs = fds
    fed = os.pipe2(os.O_CLOEXEC) if request["fed"] else None
    pid = os.fork()
    if pid == 0:
        ours.close()
        try:
            _become(request, (netns, text if fed is None else fed[0], *outputs), place, theirs)
        except BaseException as error:
            why = error.strerror if isinstance(error, OSError) else error
            os.write(fds[3], f"{request['argv'][0]}: {why}\n".encode())
            os._exit(127 if isinstance(error, FileNotFoundError) else 126)
    theirs.close()
    if not request["terminal"]:  # a leader of a group could lead no session
        with contextlib.suppress(OSError):  # it may have run and ended already
            os.setpgid(pid, pid)
    if place is None and ours.recv(1):
        places[request["place"]] = _Place(
            os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC),
            os.open(f"/proc/{pid}/ns/uts", os.O_RDONLY | os.O_CLOEXEC),
        )
        ours.send(b".")
    ours.close()
    if fed is not None:
        _fork_feeder(pid, text, fed)
    return pid


def _fork_feeder(pid: int, text: int, pipe: tuple[int, int]) -> None:
    """Let a child write ``text`` into the pipe, as slowly as the command reads it; then, it ends."""
    reading, writing = pipe
    feeder = os.fork()
    os.close(reading)
    if feeder == 0:
        signal.set_wakeup_fd(-1)
        die_with_parent()
        try:
            feed(pid, text, writing)
        finally:
            os._exit(0)
    os.close(writing)


def _become(request: dict[str, Any], fds: Sequence[int], place: _Place | None, launcher: socket.socket) -> NoReturn:
    """Turn this fresh child into the command."""
    signal.set_wakeup_fd(-1)
    # Python ignores SIGPIPE and SIGXFSZ; without the latter RLIMIT_FSIZE would end no command that floods its output.
    for number in _RESTORED:
        signal.signal(number, signal.SIG_DFL)
    netns, *standard = fds
    if request["terminal"]:
        os.setsid()
        fcntl.ioctl(standard[0], termios.TIOCSCTTY, 0)
    else:
        os.setpgid(0, 0)
    die_with_parent()
    if place is None:
        unshare(CLONE_NEWNS | CLONE_NEWUTS)
        socket.sethostname(request["hostname"])
    else:
        setns(place.mounts, CLONE_NEWNS)
        setns(place.names, CLONE_NEWUTS)
    setns(netns, CLONE_NEWNET)
    if place is None:
        furnish(request["resolv_conf"])
        launcher.send(b".")
        launcher.recv(1)  # the launcher opens our namespaces by our pid; until then we must not end
    for target, fd in enumerate(standard):
        os.dup2(fd, target, inheritable=True)
    if not request["attached"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (_OUTPUT_LIMIT, _OUTPUT_LIMIT))
    _go_to(request["directory"])
    os.execvpe(request["argv"][0], request["argv"], request["environment"])  # noqa: S606 - a shell is not wanted


def _go_to(directory: str) -> None:
    """Work in that directory, which this place may not have."""
    try:
        os.chdir(directory)
    except OSError:
        os.chdir("/")
