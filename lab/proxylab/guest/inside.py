"""The guest's side: the first process of a guest, which lays out its files and starts the lab process.

The machine's files are the guest's, by hostfs or 9p, but read-only: an overlay keeps in memory what the guest writes.
The lab process (``proxylab.server.main``) cannot tell that its client is outside.
"""

import os
import platform
import resource
import signal
import socket
import subprocess
import sys
import tty
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from proxylab.encoding import decode
from proxylab.guest.line import CLIENT, FrameKind, Line, LineClosedError
from proxylab.guest.outside import Start
from proxylab.guest.rights import CONFINED
from proxylab.kernel.sandbox.linux import MS_BIND, MS_MOVE, MS_NODEV, MS_NOSUID, mount

_DESCRIPTORS: Final = 1 << 20
_CONTROL_SOCKET: Final = "/run/proxylab.sock"
_MODULE_SECONDS: Final = 20.0

_MODULES: Final = ("br_netfilter", "ip_tables", "ip6_tables")
"""What neither the kernel loads by itself nor a program in the sandbox may: the rest comes as rules and links need it.

A sysctl of br_netfilter asks for no module, and iptables-legacy calls modprobe(8) for its first one.
"""


def main() -> None:
    """Be the guest's init: relay until the lab process has ended, and say so. Never returns: that would be a panic.

    The argument is the path of the guest's line.
    """
    os.environ["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    if not Path("/dev").is_mount():  # most kernels have mounted it (CONFIG_DEVTMPFS_MOUNT)
        mount("devtmpfs", "/dev", "devtmpfs")
    number = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY)
    if os.isatty(number):
        tty.setraw(number)
    line = Line(number, _connect)
    ours, theirs = socket.socketpair()
    line.add(CLIENT, ours)
    line.say(FrameKind.READY)
    start = decode(line.hear()[1], Start)
    _lay_out_files(start.modules)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_DESCRIPTORS, _DESCRIPTORS))
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    lab_process = _start_lab_process(theirs, start)
    line.watch(wake_read, lambda: _reap(wake_read, lab_process, line))
    with suppress(LineClosedError):
        line.hear()
    os._exit(0)


def _lay_out_files(modules: str) -> None:
    """Make the overlay the root, with the file systems that the kernel provides."""
    mount("proc", "/proc", "proc")
    mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV)
    for name in ("root", "upper", "work"):
        Path("/run", name).mkdir()
    if "\toverlay\n" not in Path("/proc/filesystems").read_text(encoding="ascii"):
        subprocess.run(
            ["insmod", Path(modules, platform.release(), "kernel/fs/overlayfs/overlay.ko")],
            check=True,
            timeout=_MODULE_SECONDS,
        )
    mount("overlay", "/run/root", "overlay", 0, "lowerdir=/,upperdir=/run/upper,workdir=/run/work")
    for name in ("dev", "proc"):
        mount(f"/{name}", f"/run/root/{name}", "", MS_MOVE)
    os.chdir("/run/root")
    mount(".", "/", "", MS_MOVE)
    os.chroot(".")
    mount("sysfs", "/sys", "sysfs")
    mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV)
    Path("/dev/pts").mkdir(exist_ok=True)
    mount("devpts", "/dev/pts", "devpts", 0, "ptmxmode=666")
    Path("/dev/shm").mkdir(exist_ok=True)  # noqa: S108
    mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV)  # noqa: S108
    for name, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        with suppress(FileExistsError):
            Path("/dev", name).symlink_to(f"/proc/self/{target}")
    Path("/lib/modules").mkdir(parents=True, exist_ok=True)
    if modules:
        mount(modules, "/lib/modules", "", MS_BIND)
        subprocess.run(["modprobe", "--all", *_MODULES], check=False, timeout=_MODULE_SECONDS)


def _start_lab_process(client: socket.socket, start: Start) -> int:
    given = [client.fileno()]
    if start.standing:
        control_socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        control_socket.bind(_CONTROL_SOCKET)
        control_socket.listen()
        given += [control_socket.fileno(), os.open("/run", os.O_RDONLY | os.O_DIRECTORY)]
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # for the lab process, as outside of a guest
    with client:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "proxylab.server.main", *_how(start), *map(str, given)],
            stdin=subprocess.DEVNULL,
            pass_fds=given,
            env=start.environment,
            start_new_session=True,
        )
    for number in given[1:]:
        os.close(number)
    return child.pid


def _how(start: Start) -> list[str]:
    """What the lab process is told of the guest's kernel, whose rights over the machine it cannot see."""
    return ["--in-guest", CONFINED if start.confined else start.refused]


def _connect() -> socket.socket:
    """A connection to the lab process's control socket, where it waits until the lab is detached."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(_CONTROL_SOCKET)
    return connection


def _reap(wake: int, lab_process: int, line: Line) -> None:
    """Reap every process that has ended. After the lab process, tell its status and wait for the end of the guest."""
    with suppress(BlockingIOError):
        os.read(wake, 4096)
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == lab_process:
                _end(line, os.waitstatus_to_exitcode(status) & 0xFF)
            if pid == 0:
                return


def _end(line: Line, status: int) -> NoReturn:
    line.say(FrameKind.OVER, content=str(status).encode())
    line.flush()
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
