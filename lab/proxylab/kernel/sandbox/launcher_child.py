"""Commands inside nodes, pods and hosts: the launcher child.

Owns: the child that starts commands, and the mount and UTS namespaces of the places they run in.
Must not: import anything that a command's start does not need; a command on a terminal is a fork of this process.

Why a child: whoever starts a command must be in its namespaces for that moment, and a fork of the lab process, with its
event loop and its hundreds of descriptors, is slow and full of traps. The launcher has one thread and nothing else to
do. It enters the network namespace that it is given, and the mount and UTS namespaces of the place: the hostname is the
place's name, /run is private to the place (iptables keeps its lock there), /sys and resolv.conf are the place's
(``kernel.place``). There it calls posix_spawn(3), which copies no page tables, where a fork of this process and the
pages that the child touches would cost more than iptables takes; and it comes back to its own namespaces. The command
leads a process group. A place's two namespaces are made for its first command and kept open here.

If the launcher dies, the lab process sees end-of-file and closes the lab; if the lab process dies, init ends, and the
kernel ends the launcher and every command with it.
"""

import contextlib
import errno
import fcntl
import json
import os
import resource
import select
import signal
import socket
import struct
import termios
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from proxylab.frozen import dataclass
from proxylab.kernel.sandbox.command_environment import furnish
from proxylab.kernel.sandbox.commands import family_of
from proxylab.kernel.sandbox.feeding import feed
from proxylab.kernel.sandbox.linux import (
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWUTS,
    die_with_parent,
    setns,
    unshare,
)

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
class _Environment:
    """Mount and UTS namespaces, held open."""

    mounts: int
    names: int

    @classmethod
    def here(cls) -> "_Environment":
        """Those that this process is in."""
        return cls(*(os.open(f"/proc/self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in ("mnt", "uts")))

    def enter(self) -> None:
        setns(self.mounts, CLONE_NEWNS)
        setns(self.names, CLONE_NEWUTS)

    def close(self) -> None:
        os.close(self.mounts)
        os.close(self.names)


class _Environments:
    """Where commands run, and the way there and back."""

    def __init__(self) -> None:
        self._own = _Environment.here()
        self._own_netns = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._known: dict[str, _Environment] = {}

    @contextlib.contextmanager
    def entered(self, request: Mapping[str, Any], netns: int) -> Iterator[None]:
        """Be in the place of a command, which is made if there is none of its name. Raises ``OSError``."""
        try:
            known = self._known.get(request["place"])
            if known is not None:
                known.enter()
                setns(netns, CLONE_NEWNET)
            else:
                unshare(CLONE_NEWNS | CLONE_NEWUTS)
                socket.sethostname(request["hostname"])
                setns(netns, CLONE_NEWNET)
                furnish(request["resolv_conf"])
                self._known[request["place"]] = _Environment.here()
            yield
        finally:
            try:
                setns(self._own_netns, CLONE_NEWNET)
                self._own.enter()
            except OSError:
                os._exit(1)  # whatever came next would happen in the wrong place; the end of this process ends the lab

    def forget(self, name: str) -> None:
        """Let go of the namespaces of a place, if it has any."""
        netns_name = self._known.pop(name, None)
        if netns_name is not None:
            netns_name.close()


def _serve(channel: socket.socket) -> NoReturn:
    """Start commands, reap them and report how they ended, until the channel is closed."""
    _bound_output(_OUTPUT_LIMIT)
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    environments = _Environments()
    running: dict[int, int] = {}
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    poll.register(wake_read, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd == wake_read:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_read, 4096)
            elif not _obey(channel, environments, running):
                os._exit(0)
        _reap(channel, running)


def _obey(channel: socket.socket, environments: _Environments, running: dict[int, int]) -> bool:
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
            try:
                running[_start(request, fds, environments)] = number
            except (OSError, ValueError) as error:
                running[_fork_to_tell(error, request, fds[3])] = number
        case {"kill": int(number), "signal": int(which)}:
            _kill(number, which, running)
        case {"forget": [*names]}:
            for name in names:
                environments.forget(name)
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


def _start(request: Mapping[str, Any], fds: Sequence[int], environments: _Environments) -> int:
    """Start the command in its place. Raises ``OSError``, as execve(2) would there, or ``ValueError`` for its words."""
    netns, text, *outputs = fds
    fed = os.pipe2(os.O_CLOEXEC) if request["fed"] else None
    standard = (text if fed is None else fed[0], *outputs)
    try:
        with environments.entered(request, netns):
            _lay_out(request)
            _go_to(request["directory"])
            pid = _fork_on_terminal(request, standard) if request["terminal"] else _spawn(request, standard)
    except BaseException:
        for fd in fed or ():
            os.close(fd)
        raise
    if fed is not None:
        _fork_feeder(pid, text, fed)
    return pid


def _spawn(request: Mapping[str, Any], standard: Sequence[int]) -> int:
    """Start the command as the leader of a process group of its own, looked for as execvpe(3) looks for it."""
    argv, environment = request["argv"], request["environment"]
    there = [path for path in _paths(argv[0], environment) if path.exists()]
    if request["attached"]:
        _bound_output(resource.RLIM_INFINITY)
    try:
        for path in there:
            if path.is_file() and os.access(path, os.X_OK):
                return os.posix_spawn(
                    path,
                    argv,
                    environment,
                    file_actions=[(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate(standard)],
                    setpgroup=0,
                    setsigdef=_RESTORED,
                )
    finally:
        if request["attached"]:
            _bound_output(_OUTPUT_LIMIT)
    number = errno.EACCES if there else errno.ENOENT
    raise OSError(number, os.strerror(number))


def _paths(command: str, environment: Mapping[str, str]) -> list[Path]:
    """Where a command may be found."""
    if "/" in command:
        return [Path(command)]
    return [Path(directory, command) for directory in os.get_exec_path(environment)]


def _bound_output(most: int) -> None:
    """Let the commands that are started now write no larger files, in bytes; RLIMIT_FSIZE bounds memfds too."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _fork_on_terminal(request: Mapping[str, Any], standard: Sequence[int]) -> int:
    """Start the command as the leader of a session on a terminal, which posix_spawn(3) cannot give it."""
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.set_wakeup_fd(-1)
        # Python ignores SIGPIPE and SIGXFSZ; without the latter RLIMIT_FSIZE would end no command that floods it.
        for number in _RESTORED:
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        fcntl.ioctl(standard[0], termios.TIOCSCTTY, 0)
        for target, fd in enumerate(standard):
            os.dup2(fd, target, inheritable=True)
        _bound_output(resource.RLIM_INFINITY)
        os.execvpe(request["argv"][0], request["argv"], request["environment"])  # noqa: S606 - a shell is not wanted
    except BaseException as error:
        _end_telling(error, request, standard[2])


def _fork_to_tell(error: Exception, request: Mapping[str, Any], stderr: int) -> int:
    """Let a child stand for a command that did not start: whoever reads its words may be slow, or gone."""
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        _end_telling(error, request, stderr)
    return pid


def _end_telling(error: BaseException, request: Mapping[str, Any], stderr: int) -> NoReturn:
    """End this child with the words and the status of a shell that could not start a command."""
    try:
        why = error.strerror if isinstance(error, OSError) else error
        os.write(stderr, f"{request['argv'][0]}: {why}\n".encode(errors="replace"))
    finally:
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


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


def _lay_out(request: Mapping[str, Any]) -> None:
    """Put files and links where the command looks for them, in its place."""
    for path in (*request["files"], *request["links"]):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    for path, text in request["files"].items():
        Path(path).write_text(text, encoding="utf-8")
    for path, target in request["links"].items():
        # What leads there already stays: another command of this place may be looking for it at this moment.
        if not (Path(path).is_symlink() and str(Path(path).readlink()) == target):
            Path(path).unlink(missing_ok=True)
            Path(path).symlink_to(target)


def _go_to(directory: str) -> None:
    """Work in that directory, which this place may not have."""
    try:
        os.chdir(directory)
    except OSError:
        os.chdir("/")
