"""The confinement of commands in a lab of the machine's root: they run as a user who owns nothing of the machine.

The lab process of root stays root, since it reads the kernel's drop reasons and asks for large socket buffers. It runs
no code but proxylab's. Commands, proxies and programs of pods run below a launcher that has given that up:

* It is root of a user namespace, in which the users 0 to 65,535 are users of the machine that exist nowhere else. The
  namespaces of nodes, pods and hosts belong to that user namespace. So its root has every right over the lab's network,
  and over the machine those of an ordinary user.
* Its mounts are read-only, but for folders in which every user may write. A mount namespace that a new user namespace
  makes locks what it copies: no command can make a mount writable, nor remove it (mount_namespaces(7)).
* The home of root and other folders that only root may enter, in which Python, proxylab or its cache lie, are mounted
  once more with other owners, and read-only. So what lies there can be read and executed.

A kernel or a container may refuse any of this. Then nothing has changed in the calling process that matters: it ends,
and its parent makes a launcher without confinement.
"""

import errno
import os
import socket
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from proxylab.errors import LabEndedError
from proxylab.kernel.sandbox.linux import (
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_REC,
    die_with_parent,
    forgo_machine_capabilities,
    fork_sibling,
    make_mount_writable,
    make_mounts_read_only,
    mount,
    mount_with_mapped_owners,
    setns,
    show_to_own_user,
    unshare,
)
from proxylab.kernel.sandbox.own_proc import mount_proc

FIRST_ID: Final = 0x7000_0000
"""The machine's user that root of a confined lab is: the first one behind those that systemd gives to containers."""

_IDS: Final = 65_536
_WRITABLE: Final = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - every user may write there
_OF_THE_KERNEL: Final = ("proc", "sysfs")
"""File systems that a user namespace mounts writable only where it sees them so (mount_too_revealing, fs/namespace.c).
"""


def make_user_namespace() -> int:
    """A descriptor of a new user namespace with the users and groups of the lab.

    A child makes it, since a process cannot leave one again. Raises ``OSError``, or ``LabEndedError`` if it is killed.
    """
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        number = errno.EIO
        try:
            ours.close()
            unshare(CLONE_NEWUSER)
            number = 0
        except OSError as error:
            number = error.errno or errno.EIO
        finally:
            theirs.send(bytes([number]))
            theirs.recv(1)  # end-of-file: the parent has a descriptor
            os._exit(0)
    theirs.close()
    try:
        said = ours.recv(1)
        if not said:
            raise LabEndedError("the process that makes a user namespace ended")
        if number := said[0]:
            raise OSError(number, f"unshare: {os.strerror(number)}")
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{child}/{name}").write_text(f"0 {FIRST_ID} {_IDS}", encoding="ascii")
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        ours.close()
        os.waitpid(child, 0)


def closed_folders(paths: Iterable[Path]) -> list[Path]:
    """The topmost folders on the way to ``paths`` that only their owner and group may enter or read."""
    found: dict[Path, None] = {}
    for path in paths:
        for folder in (*reversed(path.parents), path):
            with suppress(OSError):  # no such folder
                if folder.is_dir() and folder.stat().st_mode & (stat.S_IROTH | stat.S_IXOTH) != 0o005:
                    found[folder] = None
                    break
    return list(found)


def confine(user_namespace: int, paths: Sequence[Path]) -> None:
    """Confine the calling process, a child of the lab process with one thread; returns in a copy of it.

    The copy is another child of the lab process, and process 1 of a pid namespace, and the caller ends. ``paths`` stay
    readable. Raises ``OSError`` in the caller, or in the copy.
    """
    unshare(CLONE_NEWNS)
    for folder in closed_folders(paths):
        with suppress(OSError):  # its file system allows no other owners: what lies there stays root's alone
            mount_with_mapped_owners(str(folder), user_namespace)
    # A user namespace may mount a /proc only where it sees one without mounts upon it (mount_too_revealing).
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    _make_read_only()
    os.setgroups([])
    setns(user_namespace, CLONE_NEWUSER)
    os.close(user_namespace)
    unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWPID)
    if fork_sibling():
        os._exit(0)
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    show_to_own_user()
    die_with_parent()
    forgo_machine_capabilities()
    mount_proc()
    mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=64m")


def become_owner_of_nothing(user_namespace: int, paths: Sequence[Path], groups: Sequence[int] = ()) -> None:
    """Become the user that commands of labs are to the machine, with no capability, for a program that needs none.

    ``paths`` stay readable, but nothing else that only root may enter. Raises ``OSError``.
    """
    unshare(CLONE_NEWNS)
    for folder in closed_folders(paths):
        with suppress(OSError):  # see ``confine``
            mount_with_mapped_owners(str(folder), user_namespace)
    os.setgroups(groups)
    os.setresgid(FIRST_ID, FIRST_ID, FIRST_ID)
    os.setresuid(FIRST_ID, FIRST_ID, FIRST_ID)


def _make_read_only() -> None:
    """Make all mounts read-only but those of the kernel's own files and the folders that are every user's."""
    for folder in _WRITABLE:
        with suppress(OSError):
            if Path(folder).stat().st_mode & stat.S_IWOTH:
                mount(folder, folder, "", MS_BIND | MS_REC)
    writable = [*_writable_mounts()]
    make_mounts_read_only("/")
    for path in writable:
        with suppress(OSError):  # another mount covers it
            make_mount_writable(path)


def _writable_mounts() -> Iterator[str]:
    """The mounts that stay writable, if they are so now (/proc/PID/mountinfo, proc(5))."""
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        fields, _, rest = line.partition(" - ")
        path, options = fields.split()[4:6]
        kind = rest.split()[0]
        if "rw" in options.split(",") and (kind in _OF_THE_KERNEL or path in _WRITABLE):
            yield path
