"""Commands inside nodes, pods and hosts: the launcher child.

A process must be in a command's namespaces at the moment it starts the command. A fork of the lab process, with its
event loop and its hundreds of descriptors, would be slow and full of traps. So a child starts all commands. It has one
thread and does nothing else, and it imports nothing that the start of a command does not need: a command on a terminal
is a fork of this process.

For each command the launcher enters the network namespace of the request, and the mount and UTS namespaces of the node,
pod or host. There the hostname is the node's name, /run is private (iptables keeps its lock there), and /sys and
resolv.conf are the node's (``kernel.sandbox.command_environment``). The launcher makes these two namespaces for the
first command and keeps them open. It calls posix_spawn(3), which copies no page tables: a fork and the pages that the
child touches cost more than iptables takes. Then it returns to its own namespaces. The command leads a process group.

If the launcher dies, the lab process sees end-of-file and closes the lab. If the lab process dies, init ends, and the
kernel kills the launcher and every command.
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

from msgspec import Struct

from proxylab.kernel.sandbox.command_environment import furnish
from proxylab.kernel.sandbox.command_input import feed
from proxylab.kernel.sandbox.commands import family_of
from proxylab.kernel.sandbox.linux import (
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWUTS,
    die_with_parent,
    setns,
    unshare,
)

MESSAGE_LIMIT: Final = 128 * 1024  # a request; SEQPACKET keeps it whole
# Signals that nohup(1) and background shells ignore, and those that Python handles or ignores.
_RESTORED: Final = tuple(
    getattr(signal, f"SIG{name}") for name in ("HUP", "INT", "QUIT", "TERM", "CHLD", "PIPE", "XFSZ")
)
ENDED: Final = struct.Struct("=qi")  # an answer: the request's number, and the exit code or minus the signal
_KILL_ROUNDS: Final = 100
_OUTPUT_LIMIT: Final = 256 * 1024 * 1024  # RLIMIT_FSIZE, which bounds memfds too


def fork_launcher(client: socket.socket, *others: socket.socket) -> socket.socket:
    """Fork the launcher child; return the lab process's end of the channel to it.

    The child closes ``client``: only the lab process may hold it, so that end-of-file there means the end of the lab.
    The child also closes ``others``.
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


class _Environment(Struct, frozen=True):
    """Open descriptors of a mount and a UTS namespace."""

    mounts: int
    names: int

    @classmethod
    def here(cls) -> "_Environment":
        """The namespaces of this process."""
        return cls(*(os.open(f"/proc/self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in ("mnt", "uts")))

    def enter(self) -> None:
        setns(self.mounts, CLONE_NEWNS)
        setns(self.names, CLONE_NEWUTS)

    def close(self) -> None:
        os.close(self.mounts)
        os.close(self.names)


class _Environments:
    """The mount and UTS namespaces of nodes, pods and hosts; enters them and returns."""

    def __init__(self) -> None:
        self._own = _Environment.here()
        self._own_netns = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._known: dict[str, _Environment] = {}

    @contextlib.contextmanager
    def entered(self, request: Mapping[str, Any], netns: int) -> Iterator[None]:
        """Be in the namespaces of a command; the first command of a name makes them. Raises ``OSError``."""
        try:
            known = self._known.get(request["netns_name"])
            if known is not None:
                known.enter()
                setns(netns, CLONE_NEWNET)
            else:
                unshare(CLONE_NEWNS | CLONE_NEWUTS)
                socket.sethostname(request["hostname"])
                setns(netns, CLONE_NEWNET)
                furnish(request["resolv_conf"])
                self._known[request["netns_name"]] = _Environment.here()
            yield
        finally:
            try:
                setns(self._own_netns, CLONE_NEWNET)
                self._own.enter()
            except OSError:
                os._exit(1)  # the next command would run in the wrong namespaces; this exit ends the lab

    def forget(self, name: str) -> None:
        """Close the namespaces of a node, pod or host, if there are any."""
        environment = self._known.pop(name, None)
        if environment is not None:
            environment.close()


def _serve(channel: socket.socket) -> NoReturn:
    """Start commands, reap them and report their status, until the lab process closes the channel."""
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
            elif not _serve_request(channel, environments, running):
                os._exit(0)
        _reap(channel, running)


def _serve_request(channel: socket.socket, environments: _Environments, running: dict[int, int]) -> bool:
    """Carry out one request. False when the lab process has ended."""
    try:
        data, fds, flags, _ = socket.recv_fds(channel, MESSAGE_LIMIT, 4)
    except OSError:
        return False
    if not data or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):  # end-of-file, or another protocol
        return False
    for fd in fds:
        os.set_inheritable(fd, False)  # recv_fds drops its flags argument, MSG_CMSG_CLOEXEC too (cpython 3.11)
    match json.loads(data):
        case {"run": int(number)} as request:
            try:
                running[_start(request, fds, environments)] = number
            except (OSError, ValueError) as error:
                running[_fork_to_report(error, request, fds[3])] = number
        case {"kill": int(number), "signal": int(which)}:
            _kill(number, which, running)
        case {"forget": [*names]}:
            for name in names:
                environments.forget(name)
    for fd in fds:
        os.close(fd)
    return True


def _kill(number: int, which: int, running: dict[int, int]) -> None:
    """Send a signal to one command and all its children, if it still runs.

    A dying process may start others meanwhile, which the next round finds.
    """
    for pid in [pid for pid, other in running.items() if other == number]:
        killed: set[int] = set()
        for _ in range(_KILL_ROUNDS):
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
    """Start the command in its namespaces. Raises ``OSError`` as execve(2) does, or ``ValueError`` for a bad argv."""
    netns, text, *outputs = fds
    fed = os.pipe2(os.O_CLOEXEC) if request["fed"] else None
    standard = (text if fed is None else fed[0], *outputs)
    try:
        with environments.entered(request, netns):
            _write_files(request)
            _change_directory(request["directory"])
            pid = _fork_on_terminal(request, standard) if request["terminal"] else _spawn(request, standard)
    except BaseException:
        for fd in fed or ():
            os.close(fd)
        raise
    if fed is not None:
        _fork_feeder(pid, text, fed)
    return pid


def _spawn(request: Mapping[str, Any], standard: Sequence[int]) -> int:
    """Start the command as the leader of its own process group. Searches PATH as execvpe(3) does."""
    argv, environment = request["argv"], request["environment"]
    existing = [path for path in _paths(argv[0], environment) if path.exists()]
    if request["attached"]:
        _bound_output(resource.RLIM_INFINITY)
    try:
        for path in existing:
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
    number = errno.EACCES if existing else errno.ENOENT
    raise OSError(number, os.strerror(number))


def _paths(command: str, environment: Mapping[str, str]) -> list[Path]:
    """The paths to try for a command."""
    if "/" in command:
        return [Path(command)]
    return [Path(directory, command) for directory in os.get_exec_path(environment)]


def _bound_output(most: int) -> None:
    """Bound the size in bytes of files that commands write from now on; RLIMIT_FSIZE bounds memfds too."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _fork_on_terminal(request: Mapping[str, Any], standard: Sequence[int]) -> int:
    """Start the command as the leader of a session on a terminal, which posix_spawn(3) cannot do."""
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.set_wakeup_fd(-1)
        # Python ignores SIGPIPE and SIGXFSZ; without SIGXFSZ, RLIMIT_FSIZE ends no command that exceeds it.
        for number in _RESTORED:
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        fcntl.ioctl(standard[0], termios.TIOCSCTTY, 0)
        for target, fd in enumerate(standard):
            os.dup2(fd, target, inheritable=True)
        _bound_output(resource.RLIM_INFINITY)
        os.execvpe(request["argv"][0], request["argv"], request["environment"])  # noqa: S606 - a shell is not wanted
    except BaseException as error:
        _report_and_exit(error, request, standard[2])


def _fork_to_report(error: Exception, request: Mapping[str, Any], stderr: int) -> int:
    """Fork a child in the place of a command that did not start: the reader of its message may be slow, or gone."""
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        _report_and_exit(error, request, stderr)
    return pid


def _report_and_exit(error: BaseException, request: Mapping[str, Any], stderr: int) -> NoReturn:
    """End this child with the message and the status of a shell that could not start a command."""
    try:
        why = error.strerror if isinstance(error, OSError) else error
        os.write(stderr, f"{request['argv'][0]}: {why}\n".encode(errors="replace"))
    finally:
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _fork_feeder(pid: int, text: int, pipe: tuple[int, int]) -> None:
    """Fork a child that writes ``text`` into the pipe, as slowly as the command reads it, and then ends."""
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


def _write_files(request: Mapping[str, Any]) -> None:
    """Write the files and links of the request, in the command's mount namespace."""
    for path in (*request["files"], *request["links"]):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    for path, text in request["files"].items():
        Path(path).write_text(text, encoding="utf-8")
    for path, target in request["links"].items():
        # A right link stays: another command may resolve it at this moment.
        if not (Path(path).is_symlink() and str(Path(path).readlink()) == target):
            Path(path).unlink(missing_ok=True)
            Path(path).symlink_to(target)


def _change_directory(directory: str) -> None:
    """Change to a directory, or to / where it does not exist."""
    try:
        os.chdir(directory)
    except OSError:
        os.chdir("/")
