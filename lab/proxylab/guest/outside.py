"""The machine's side of a guest: it starts the kernel, and relays between the guest's line and the clients.

It runs in a sandbox of its own, in the place of a lab process. So the guest's kernel, a program with many processes,
ends like a lab: when its client goes, and when any process above it is killed. Its memory is a file without a name, in
a tmpfs of that sandbox, or qemu's own. Its command line names no file that has to be made first: the kernel starts
Python as its init, and passes on what follows ``--``.

Where an ordinary user may make no namespaces, a guest runs without that sandbox, if its kernel ends its own processes.
A kernel that root starts gives up its rights over the machine (``guest.rights``); this process keeps them.
"""

import os
import random
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from proxylab.accepting import REST_SECONDS, has_no_room
from proxylab.encoding import Record, encode
from proxylab.errors import GUEST_ENDED, CapabilityError
from proxylab.guest.console import end_of_console
from proxylab.guest.kernels import Kernel
from proxylab.guest.line import CLIENT, FrameKind, Line, LineClosedError
from proxylab.guest.qemu import boot_in_qemu
from proxylab.guest.rights import KernelRights
from proxylab.kernel.sandbox.linux import MS_NODEV, MS_NOSUID, die_with_parent, mount
from proxylab.protocol.channel import user_of
from proxylab.timing import Deadline

_MEBIBYTES: Final = 1024
_MARGIN: Final = 64
_LINE: Final = "/dev/ttyS0"
_SINGLE: Final = ("PYTHONPATH", "PYTHONHOME")
"""What Python needs before the relay inside can read ``Start``."""
_LIMIT: Final = 2000
"""A little less than COMMAND_LINE_SIZE, beyond which the kernel cuts the line without a word."""


class Start(Record, frozen=True):
    """What the relay outside tells the one inside.

    Attributes:
        environment: of the lab process.
        modules: the folder with the kernel's modules, or empty.
        standing: whether the lab process has a control socket.
        confined: whether the guest's kernel was to give up root's rights over the machine, and did.
        refused: why it did not.
    """

    environment: dict[str, str]
    modules: str = ""
    standing: bool = False
    confined: bool = False
    refused: str = ""


def stay_on_one_cpu() -> socket.socket | None:
    """Run on one CPU from now on, with all children; prefer one that no other guest uses.

    The guest's kernel and the process that it runs take turns. On two CPUs, every turn would wake the other one, and
    the guest would be five times slower. An abstract Unix socket claims the CPU as long as it is open; the caller
    keeps it. It belongs to the network namespace that this process is in.
    """
    cpus = sorted(os.sched_getaffinity(0))
    random.shuffle(cpus)
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    for cpu in cpus:
        with suppress(OSError):
            claim.bind(f"\0proxylab-guest-cpu-{cpu}")
            os.sched_setaffinity(0, {cpu})
            return claim
    claim.close()
    os.sched_setaffinity(0, {cpus[0]})
    return None


def run_guest(
    kernel: Kernel,
    client: socket.socket,
    control_socket: socket.socket | None,
    rights: KernelRights,
    *,
    sandboxed: bool,
) -> int:
    """Boot the guest, and relay until its lab process has ended. Returns its exit status, or ``GUEST_ENDED``.

    Raises:
        CapabilityError: the guest's kernel does not boot here. ``client`` is still open, to report it.
    """
    guest, ours = _boot(kernel, rights, sandboxed=sandboxed)
    line = Line(ours.fileno())
    _watch(guest, line)
    try:
        line.hear(Deadline.after(kernel.boot_seconds))
    except (LineClosedError, TimeoutError) as error:
        guest.kill()
        how = "it ended" if isinstance(error, LineClosedError) else f"no sign of life in {kernel.boot_seconds:.0f} s"
        raise CapabilityError(
            f"a guest of the kernel {kernel.binary} that boots ({how}; {end_of_console(2)})",
            "try another kernel, or --kernel host",
        ) from error
    environment = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
    start = Start(
        environment,
        kernel.modules,
        standing=control_socket is not None,
        confined=rights.user_namespace is not None,
        refused=rights.refused,
    )
    line.say(FrameKind.START, content=encode(start))
    line.add(CLIENT, client)
    if control_socket is not None:
        accept_later_clients(control_socket, line)
    try:
        return int(line.hear()[1])
    except LineClosedError:
        return GUEST_ENDED
    finally:
        guest.kill()


def _memory_folder(owner: int, *, sandboxed: bool) -> str:
    """A folder whose file system allows execution, which the guest's memory needs, and has room for it.

    The kernel makes a file there and removes its name at once, so nothing is left of it. ``owner`` may write there.
    """
    if sandboxed:
        folder = "/run/guest"
        Path(folder).mkdir()
        options = f"mode=0700,uid={owner},size={_MEBIBYTES + _MARGIN}m"
        mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV, options)
        return folder
    for folder in ("/dev/shm", tempfile.gettempdir()):  # noqa: S108 - see above
        with suppress(OSError):
            found = os.statvfs(folder)
            if not found.f_flag & os.ST_NOEXEC and found.f_bavail * found.f_frsize >= (_MEBIBYTES + _MARGIN) << 20:
                return folder
    raise CapabilityError(
        f"a folder for a guest's memory: {_MEBIBYTES + _MARGIN} MiB on a file system without noexec",
        "enlarge /dev/shm, or set TMPDIR",
    )


def _boot(kernel: Kernel, rights: KernelRights, *, sandboxed: bool) -> tuple["subprocess.Popen[bytes]", socket.socket]:
    """A guest that boots, and the machine's end of its line."""
    environment = {name: os.environ[name] for name in _SINGLE if name in os.environ}
    init = (sys.executable, "-P", "-B", "-m", "proxylab.guest.inside")
    start = partial(_start, rights=rights, sandboxed=sandboxed)
    if kernel.is_image:
        return boot_in_qemu(kernel, init, environment, _MEBIBYTES, start)
    ours, line = socket.socketpair()
    with line:
        command = uml_command(
            kernel.binary, (*init, _LINE), environment=environment, line=line.fileno(), mebibytes=_MEBIBYTES
        )
        return start(command, [line.fileno()], TMPDIR=_memory_folder(rights.owner, sandboxed=sandboxed)), ours


def _start(
    command: Sequence[str], descriptors: Sequence[int], *, rights: KernelRights, sandboxed: bool, **environment: str
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=2,
        pass_fds=descriptors,
        env={"PATH": os.defpath, **environment},
        cwd="/",
        start_new_session=True,  # a panic sends SIGTERM to the process group of a user-mode Linux
        preexec_fn=rights.take if sandboxed else die_with_parent,  # noqa: PLW1509 - this process has one thread
    )


def _watch(guest: "subprocess.Popen[bytes]", line: Line) -> None:
    """End the relay with the guest's kernel. Before 6.16, its processes live on and keep the line open."""

    def ended() -> None:
        raise LineClosedError("the guest's kernel has ended")

    line.watch(os.pidfd_open(guest.pid), ended)


def accept_later_clients(control_socket: socket.socket, line: Line) -> None:
    """Open a stream for every further client with the lab's own user id; in the guest, every client is root."""

    def accept() -> None:
        try:
            connection, _ = control_socket.accept()
        except OSError as error:  # or the client has gone
            if has_no_room(error):
                line.rest(control_socket, Deadline.after(REST_SECONDS))
            return
        with suppress(OSError):
            if user_of(connection) == os.getuid():
                line.open(connection)
            else:
                connection.close()

    control_socket.setblocking(False)
    line.watch(control_socket, accept)


def uml_command(
    binary: str,
    init: Sequence[str],
    *,
    environment: Mapping[str, str],
    line: int,
    mebibytes: int,
) -> list[str]:
    """The command that boots a user-mode Linux.

    ``init`` is the guest's first process: its path, and its arguments, which the kernel separates by blanks. ``line``
    is the descriptor that becomes the guest's first serial line.

    Raises:
        CapabilityError: the paths do not fit into the line.
    """
    parameters = [
        f"mem={mebibytes}M",
        "root=/dev/root",
        "rootfstype=hostfs",
        "rootflags=/",
        "ro",  # the machine's files; the guest writes to an overlay
        f"ssl0=fd:{line}",
        "ssl=null",
        "con0=null,fd:2",
        "con=null",
        "uml_dir=/proc/",  # where it can make no file: its pid and management console would outlive a killed guest
        "quiet",
        "loglevel=4",
        "panic=-1",  # a panic ends the process
        "seccomp=auto",  # from 6.16 on: system calls of the guest without ptrace(2), in half the time
        "nf_conntrack.hashsize=65536",  # the default goes by memory, and its 8,192 connections are fewer than a probe's
        "initcall_blacklist=raid6_select_algo",  # Debian's kernel would measure it for a second
        f"init={_quoted(init[0])}",
        *(f"{name}={_quoted(value)}" for name, value in environment.items()),
        "--",
        *init[1:],
    ]
    if len(" ".join(parameters)) > _LIMIT:
        raise CapabilityError(
            f"room for the guest's command line (the paths to Python and proxylab exceed {_LIMIT} characters)",
            "install proxylab at a shorter path",
        )
    return [binary, *parameters]


def _quoted(value: str) -> str:
    """A value as parse_args() in kernel/params.c reads it: quotes keep blanks together, and nothing can quote a quote.

    Raises:
        CapabilityError: the value has a quote.
    """
    if '"' in value:
        raise CapabilityError(f"a path without a double quote: {value}", "install proxylab elsewhere")
    return f'"{value}"' if " " in value else value
