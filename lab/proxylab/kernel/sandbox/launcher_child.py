"""Commands inside nodes, pods and hosts: the launcher child.

A process must be in a command's namespaces at the moment it starts the command. A fork of the lab process, with its
event loop and its hundreds of descriptors, would be slow and full of traps. So a child starts all commands. It has one
thread and does nothing else, and it imports nothing that the start of a command does not need: a command on a terminal
is a fork of this process.

For each command the launcher enters the network namespace of the request, and the other namespaces of the node, pod or
host (``kernel.sandbox.command_namespaces``). There the hostname is the node's name, /run is private (iptables keeps its
lock there), /proc has the node's processes, and /sys and resolv.conf are the node's. Then it calls posix_spawn(3),
which copies no page tables: a fork and the pages that the child touches cost more than iptables takes. Then it returns
to its own namespaces. The command leads a process group.

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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from msgspec import Struct

from proxylab.errors import LabEndedError
from proxylab.kernel.sandbox.command_input import feed, serve_feeds
from proxylab.kernel.sandbox.command_namespaces import CommandNamespaces, NamespaceOwner
from proxylab.kernel.sandbox.commands import family_of
from proxylab.kernel.sandbox.confinement import confine, make_user_namespace
from proxylab.kernel.sandbox.control_groups import ControlGroup
from proxylab.kernel.sandbox.limits import bound_commands
from proxylab.kernel.sandbox.linux import die_with_parent
from proxylab.kernel.sandbox.netns import make_netns

MESSAGE_LIMIT: Final = 128 * 1024  # a request; SEQPACKET keeps it whole
# Signals that nohup(1) and background shells ignore, and those that Python handles or ignores.
_RESTORED: Final = tuple(
    getattr(signal, f"SIG{name}") for name in ("HUP", "INT", "QUIT", "TERM", "CHLD", "PIPE", "XFSZ")
)
ENDED: Final = struct.Struct("=qi")  # an answer: the request's number, and the exit code or minus the signal
NO_PROCESS: Final = 1 << 16  # or this, if the kernel allows no process for it
_CONFINED: Final = b"confined"
_KILL_ROUNDS: Final = 100
_OUTPUT_LIMIT: Final = 256 * 1024 * 1024  # RLIMIT_FSIZE, which bounds memfds too


class LauncherEnds(Struct, frozen=True):
    """The lab process's ends of its sockets to a launcher child.

    Attributes:
        commands: takes requests for commands, and returns how they end.
        namespaces: takes requests for network namespaces; ``None`` where the lab process makes them itself.
        confined: whether commands have no right over the machine although its root started the lab.
        refused: why they have, where that was not wanted, or empty.
        bounds: what bounds all commands together, in words.
    """

    commands: socket.socket
    namespaces: socket.socket | None = None
    confined: bool = False
    refused: str = ""
    bounds: str = ""


def fork_launcher(
    client: socket.socket,
    *others: socket.socket,
    confined: bool = False,
    readable: Sequence[Path] = (),
    groups: Sequence[ControlGroup] = (),
) -> LauncherEnds:
    """Fork the launcher child; return the lab process's ends of the sockets to it.

    The child closes ``client``: only the lab process may hold it, so that end-of-file there means the end of the lab.
    The child also closes ``others``. With ``confined``, which takes the machine's root, it gives up all rights over the
    machine if it can, keeps those paths readable (``kernel.sandbox.confinement``), and enters those control groups.

    Raises:
        LabEndedError: something killed it meanwhile.
    """
    if confined:
        try:
            return _fork_confined((client, *others), readable, groups)
        except OSError as error:
            refused = str(error.strerror)
    else:
        refused = ""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        for each in (ours, client, *others):
            each.close()
        die_with_parent()
        bound_commands()
        _serve(theirs)
    theirs.close()
    return LauncherEnds(ours, refused=refused)


def _fork_confined(
    closed: Sequence[socket.socket], readable: Sequence[Path], groups: Sequence[ControlGroup]
) -> LauncherEnds:
    """Fork a confined launcher, and then a process that feeds its commands. Raises ``OSError`` or ``LabEndedError``."""
    user_namespace = make_user_namespace()
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(3)]
    (commands, namespaces, meals), (channel, made, feeds) = zip(*pairs, strict=True)
    child = os.fork()
    if child == 0:
        try:
            for each in (commands, namespaces, meals, *closed):
                each.close()
            bounds = bound_commands(groups)
            confine(user_namespace, readable)
        except OSError as error:
            channel.send(f"{error.errno} {error.strerror}".encode())
            os._exit(1)
        channel.send(_CONFINED + bounds.encode())
        _serve(channel, made, feeds)
    for each in (channel, made, feeds):
        each.close()
    os.close(user_namespace)
    os.waitpid(child, 0)
    said = commands.recv(MESSAGE_LIMIT)
    if not said.startswith(_CONFINED):
        for each in (commands, namespaces, meals):
            each.close()
        if not said:
            raise LabEndedError("the launcher ended before it was confined")
        number, _, words = said.decode(errors="replace").partition(" ")
        raise OSError(int(number), words)
    if os.fork() == 0:
        for each in (commands, namespaces, *closed):
            each.close()
        die_with_parent()
        serve_feeds(meals)
    meals.close()
    return LauncherEnds(commands, namespaces, confined=True, bounds=said.removeprefix(_CONFINED).decode())


def _serve(channel: socket.socket, made: socket.socket | None = None, feeds: socket.socket | None = None) -> NoReturn:
    """Start commands, reap them and report their status, until the lab process closes the channel.

    ``made`` takes requests for network namespaces, and ``feeds`` leads to a process that feeds commands.
    """
    _bound_output(_OUTPUT_LIMIT)
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    namespaces = CommandNamespaces()
    running: dict[int, int] = {}
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    poll.register(wake_read, select.POLLIN)
    if made is not None:
        poll.register(made, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd == wake_read:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_read, 4096)
            elif made is not None and fd == made.fileno():
                if not _make_netns(made):
                    os._exit(0)
            elif not _serve_request(channel, namespaces, running, feeds):
                os._exit(0)
        _reap(channel, namespaces, running)


def _make_netns(asked: socket.socket) -> bool:
    """Make a network namespace, and send a descriptor of it, or the number of the error. False at end-of-file."""
    if not asked.recv(1):
        return False
    try:
        netns = make_netns("")
    except OSError as error:
        asked.send(str(error.errno).encode())
        return True
    socket.send_fds(asked, [b"0"], [netns.fd])
    netns.close()
    return True


def _serve_request(
    channel: socket.socket, namespaces: CommandNamespaces, running: dict[int, int], feeds: socket.socket | None
) -> bool:
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
                running[_start_or_report(request, fds, namespaces, feeds)] = number
            except BlockingIOError:  # fork(2) and posix_spawn(3) at a limit: there is no child to report it, either
                channel.send(ENDED.pack(number, NO_PROCESS))
        case {"kill": int(number), "signal": int(which)}:
            _kill(number, which, running)
        case {"forget": [*names]}:
            for name in names:
                namespaces.forget(name)
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


def _reap(channel: socket.socket, namespaces: CommandNamespaces, running: dict[int, int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = found
            number = running.pop(pid, None)
            if number is None:
                namespaces.notice_end(pid)
            else:
                channel.send(ENDED.pack(number, os.waitstatus_to_exitcode(status)))


def _start_or_report(
    request: Mapping[str, Any], fds: Sequence[int], namespaces: CommandNamespaces, feeds: socket.socket | None
) -> int:
    """The pid of the command, or of a child that says why it did not start. Raises ``BlockingIOError``."""
    try:
        return _start(request, fds, namespaces, feeds)
    except BlockingIOError:
        raise
    except (OSError, ValueError) as error:
        return _fork_to_report(error, request, fds[3])


def _start(
    request: Mapping[str, Any], fds: Sequence[int], namespaces: CommandNamespaces, feeds: socket.socket | None
) -> int:
    """Start the command in its namespaces. Raises ``OSError`` as execve(2) does, or ``ValueError`` for a bad argv."""
    netns, text, *outputs = fds
    fed = os.pipe2(os.O_CLOEXEC) if request["fed"] else None
    standard = (text if fed is None else fed[0], *outputs)
    owner = NamespaceOwner(request["netns_name"], request["hostname"], request["resolv_conf"])
    try:
        with namespaces.entered(owner, netns):
            _write_files(request)
            _change_directory(request["directory"])
            pid = _fork_on_terminal(request, standard) if request["terminal"] else _spawn(request, standard)
    except BaseException:
        for fd in fed or ():
            os.close(fd)
        raise
    if fed is not None:
        _feed(pid, text, fed, feeds)
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


def _feed(pid: int, text: int, pipe: tuple[int, int], feeds: socket.socket | None) -> None:
    """Let another process write ``text`` into the pipe, as slowly as the command reads it.

    That is the one behind ``feeds``, which has more rights than a confined launcher, or else a child.
    """
    reading, writing = pipe
    try:
        os.close(reading)
        process = os.pidfd_open(pid)
        try:
            if feeds is not None:
                try:
                    socket.send_fds(feeds, [b"0"], [process, text, writing])
                except OSError:
                    os._exit(1)  # it is gone; no further command would get its input, and this exit ends the lab
            elif os.fork() == 0:
                signal.set_wakeup_fd(-1)
                die_with_parent()
                try:
                    feed(process, text, writing)
                finally:
                    os._exit(0)
        finally:
            os.close(process)
    finally:
        os.close(writing)


def _write_files(request: Mapping[str, Any]) -> None:
    """Write the files and links of the request, in the command's mount namespace."""
    for path in (*request["files"], *request["links"]):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    for path, text in request["files"].items():
        Path(path).write_text(text, encoding="utf-8")
        if text.startswith("#!"):
            Path(path).chmod(0o755)
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
