"""The sandbox: private user, mount, network, pid and UTS namespaces around a lab process.

    client ── socketpair ──────────────────────────┐        (in the user's namespaces)
      └─ supervisor        holds the lifeline pipe │        (outside the pid namespace)
          └─ init          pid 1: reaps            │        (inside, as everything below)
              └─ lab process ──────────────────────┘        enter() returns here, and only here
                  └─ launcher, commands, engines

No process of a lab outlives another one above it. The client's death is end-of-file on the socketpair, and SIGKILL to
the supervisor (PR_SET_PDEATHSIG). The supervisor's death is SIGKILL to init, and end-of-file on the lifeline pipe for
the moment before init has asked for that signal. When init dies, the kernel kills every process in its pid namespace
(pid_namespaces(7)). When the lab process dies, init exits. Only these processes hold the namespaces, links, rules and
mounts, so all of them go with the last process.

A lab that may be detached (``proxylab.server.event_loop``) has a control socket, a Unix socket that listens at once or
later. Its supervisor does not die with the client: only the socketpair says that the client has gone, and that ends the
lab process unless the client has detached the lab. The supervisor is then the last process to end, so it removes the
socket's name. For the same reason it removes the control groups of commands.

The kernel forgets PR_SET_PDEATHSIG whenever credentials grow (commit_creds() in kernel/cred.c), as they do on entering
a user namespace: the supervisor asks again after unshare(2). Pid 1 sees no parent (getppid() is 0), so only the
lifeline pipe shows that its parent has died already.

Three processes carry a copy of every module loaded here, so this module imports nothing heavy.
"""

import errno
import os
import select
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from msgspec import Struct

from proxylab.errors import CapabilityError
from proxylab.kernel.sandbox.control_groups import ControlGroup, remove
from proxylab.kernel.sandbox.linux import (
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    MS_NODEV,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    die_with_parent,
    forgo_machine_capabilities,
    mount,
    unshare,
)
from proxylab.kernel.sandbox.own_proc import mount_proc

_SPACES = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWUTS
_HOSTNAME = "proxylab"


class InheritedControlSocket(Struct, frozen=True):
    """The socket for later clients of a detached lab, and a descriptor of the directory that holds its name.

    The supervisor sees the sandbox's private /run, and reaches the directory by this descriptor alone.
    """

    socket: socket.socket
    folder: int

    def take_away(self, status: int) -> None:
        """Remove the socket's name, if it has one, and the supervisor's beside it (``client.control_sockets``).

        A ``status`` other than 0 is noted there. The name goes last: a client that waits for the end of a lab watches
        the name.
        """
        bound = Path(str(self.socket.getsockname()))
        if bound.name and status:
            with suppress(OSError):
                note = os.open(bound.stem + ".ended", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=self.folder)
                os.write(note, str(status).encode())
                os.close(note)
        for name in (bound.stem + ".supervisor", bound.name) if bound.name else ():
            with suppress(OSError):
                os.unlink(name, dir_fd=self.folder)


def enter(
    client: socket.socket,
    control_socket: InheritedControlSocket | None = None,
    groups: Sequence[ControlGroup] = (),
    *,
    in_guest: bool = False,
) -> None:
    """Build the sandbox around the calling process's future child; return in that child, the lab process.

    The calling process becomes the supervisor and never returns. The supervisor and init close ``client``, so that only
    the lab process keeps it open. With a ``control_socket``, the supervisor is detached. When all has ended, it removes
    those of the ``groups`` that are empty. In a guest the lab process stays in the kernel's first network namespace,
    which alone can write some sysctls: nothing else is there.

    Raises:
        CapabilityError: the machine allows no sandbox. ``client`` is still open in the process that raises this, to
            report it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if control_socket is None:
        die_with_parent()
    _exit_if_closed(client.fileno())
    _unshare(_SPACES & ~CLONE_NEWNET if in_guest else _SPACES)
    if control_socket is None:
        die_with_parent()
    lifeline_read, lifeline_write = os.pipe()
    init = os.fork()
    if init:
        os.close(lifeline_read)
        _supervise(init, client, lifeline_write, control_socket, groups)
    os.close(lifeline_write)
    die_with_parent()
    _exit_if_closed(lifeline_read)
    _mount_private()
    if control_socket is not None:
        os.close(control_socket.folder)
    lab_process = os.fork()
    if lab_process:
        client.close()
        if control_socket is not None:
            control_socket.socket.close()
        _init(lab_process, lifeline_read)
    os.close(lifeline_read)
    die_with_parent()


def _unshare(spaces: int) -> None:
    """Enter new namespaces: directly as root, otherwise through a user namespace in which this user is root."""
    if os.geteuid() == 0:
        try:
            unshare(spaces)
        except PermissionError:
            pass  # root without CAP_SYS_ADMIN, as in most containers: try what an ordinary user would
        else:
            return
    user, group = os.geteuid(), os.getegid()
    try:
        unshare(CLONE_NEWUSER | spaces)
        # user_namespaces(7): setgroups must be denied before an unprivileged process may map its group.
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1", encoding="ascii")
    except OSError as error:
        raise _no_namespaces(error) from error


def _mount_private() -> None:
    """Mount a /proc of the sandbox's own pids and a private /run (netns names, xtables.lock); set the hostname."""
    try:
        mount("none", "/", "", MS_REC | MS_PRIVATE)
        mount_proc()
        mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=64m")
        socket.sethostname(_HOSTNAME)
        forgo_machine_capabilities()
    except OSError as error:
        raise _no_namespaces(error) from error


def _no_namespaces(error: OSError) -> CapabilityError:
    """Name the switch of this machine that forbids a sandbox, where it can be read."""
    reasons = (
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            (
                "AppArmor restricts unprivileged user namespaces (Ubuntu 23.10 and later): "
                "run as root, or 'sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0'"
            ),
        ),
        (
            "/proc/sys/kernel/unprivileged_userns_clone",
            "0",
            (
                "unprivileged user namespaces are switched off: "
                "run as root, or 'sudo sysctl -w kernel.unprivileged_userns_clone=1'"
            ),
        ),
        (
            "/proc/sys/user/max_user_namespaces",
            "0",
            "no user namespace is allowed: run as root, or 'sudo sysctl -w user.max_user_namespaces=15000'",
        ),
    )
    for path, forbidding, cure in reasons:
        with suppress(OSError):
            if Path(path).read_text(encoding="ascii").strip() == forbidding:
                return CapabilityError(f"a way into a sandbox ({error})", cure)
    if error.errno in (errno.EPERM, errno.EACCES):
        cure = (
            "run as root; in a container start it with '--privileged', or with "
            "'--cap-add SYS_ADMIN --cap-add NET_ADMIN --security-opt seccomp=unconfined "
            "--security-opt apparmor=unconfined --security-opt systempaths=unconfined'"
        )
    elif error.errno == errno.EINVAL:
        cure = (
            "the root directory of a chroot must be a mount point: 'mount --bind DIR DIR' before entering it, "
            "or use a container"
        )
    else:
        cure = "the kernel needs CONFIG_USER_NS, CONFIG_NET_NS, CONFIG_PID_NS and CONFIG_UTS_NS"
    return CapabilityError(f"a way into a sandbox ({error})", cure)


def _exit_if_closed(fd: int) -> None:
    """End the process if the other end of ``fd`` is closed already."""
    poll = select.poll()
    poll.register(fd, select.POLLHUP)
    if any(event & select.POLLHUP for _, event in poll.poll(0)):
        os._exit(0)


def _supervise(
    init: int,
    client: socket.socket,
    lifeline: int,
    control_socket: InheritedControlSocket | None,
    groups: Sequence[ControlGroup],
) -> NoReturn:
    """Be the supervisor: hold the lifeline pipe until init has ended, and pass its status on.

    A signal that ended init adds 128 to its number; one that ended the lab process is 256 less its number.

    On SIGTERM and SIGHUP the supervisor kills init, and so everything in its pid namespace. The kernel lets init be
    reaped only when all of that has ended (zap_pid_ns_processes), so the supervisor's own end means that nothing is
    left.
    """
    asked = False

    def end(*_: object) -> None:
        nonlocal asked
        asked = True
        os.kill(init, signal.SIGKILL)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    client.close()
    _, status = os.waitpid(init, 0)
    os.close(lifeline)
    remove(groups)
    code = os.waitstatus_to_exitcode(status)
    code = 128 - code if code < 0 else code  # a signal ended init
    if control_socket is not None:
        control_socket.take_away(0 if asked else code)
    os._exit(code)


def _init(lab_process: int, lifeline: int) -> NoReturn:
    """Be pid 1: reap every orphan, pass SIGTERM on, and end with the lab process or with the supervisor.

    Except for SIGKILL from outside, pid 1 receives only signals that it has a handler for (pid_namespaces(7)).
    """
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(lab_process, signal.SIGTERM))
    poll = select.poll()
    poll.register(lifeline, select.POLLIN)
    poll.register(wake_read, select.POLLIN)
    while True:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                os._exit(0)
            if pid == lab_process:
                os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
            if pid == 0:
                break
        if any(fd == lifeline for fd, _ in poll.poll()):
            os._exit(0)
        with suppress(BlockingIOError):
            os.read(wake_read, 4096)
