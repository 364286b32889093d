"""The rights over the machine of a guest's kernel that root starts: it gives them up before it begins.

A guest's kernel is a program of the machine, and its root reaches the machine's files by it: a user-mode Linux mounts
any folder anew, and writable. So the program becomes the user who commands of labs are to the machine
(``kernel.sandbox.confinement``), with their bounds. Then a guest of root can do what one of an ordinary user can.

It keeps the group of /dev/kvm, where that is not root's: it needs no other right. Where Python or the kernel lies in a
folder that only root may enter, and its file system allows no other owners, the guest would not boot. Then it keeps
root's rights, and the client says so.
"""

import os
import stat
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

import proxylab
from proxylab.errors import LabEndedError
from proxylab.guest.kernels import Kernel
from proxylab.kernel.sandbox.confinement import FIRST_ID, become_owner_of_nothing, make_user_namespace
from proxylab.kernel.sandbox.control_groups import ControlGroup
from proxylab.kernel.sandbox.launcher_child import LauncherEnds
from proxylab.kernel.sandbox.limits import bound_commands

CONFINED: Final = "confined"
"""What the lab process in a guest is told whose kernel has given up root's rights."""

_KVM: Final = Path("/dev/kvm")
_FAILED: Final = 255


class KernelRights(Struct, frozen=True):
    """Which rights the program of a guest's kernel takes.

    Attributes:
        user_namespace: it names the owner of nothing; ``None`` where the program keeps the rights of its user.
        readable: what that owner has to read.
        groups: the control groups that bound it.
        refused: why a program of root keeps root's rights although it is to give them up, or empty.
    """

    user_namespace: int | None = None
    readable: tuple[Path, ...] = ()
    groups: tuple[ControlGroup, ...] = ()
    refused: str = ""

    @property
    def owner(self) -> int:
        """The machine's number of the user that the program is."""
        return os.geteuid() if self.user_namespace is None else FIRST_ID

    def take(self) -> None:
        """Give up the rest, in the process that becomes the program. Raises ``OSError``."""
        if self.user_namespace is not None:
            bound_commands(self.groups)
            become_owner_of_nothing(self.user_namespace, self.readable, _groups_of_kvm())


def confined_rights(kernel: Kernel, own_files: Sequence[Path], groups: Sequence[ControlGroup]) -> KernelRights:
    """Those of a program that root starts for this kernel, which a child tries."""
    needed = (Path(kernel.binary), Path(sys.executable), Path(proxylab.__file__))
    readable = (*own_files, *needed, *([Path(kernel.modules)] if kernel.modules else []))
    try:
        rights = KernelRights(make_user_namespace(), readable, tuple(groups))
    except (OSError, LabEndedError) as error:
        return KernelRights(refused=str(error))
    child = os.fork()
    if child == 0:
        status = _FAILED
        with suppress(OSError):
            rights.take()
            status = next((1 + number for number, each in enumerate(needed) if not os.access(each, os.R_OK)), 0)
        os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == 0:
        return rights
    return KernelRights(
        refused=f"only root may read {needed[status - 1]}" if 0 < status < _FAILED else "the kernel refuses it"
    )


def of_guest(ends: LauncherEnds, rights: str) -> LauncherEnds:
    """The launcher in a guest, with what the relay outside says of the rights of the guest's kernel."""
    return replace(ends, confined=rights == CONFINED, refused="" if rights == CONFINED else rights)


def _groups_of_kvm() -> list[int]:
    with suppress(OSError):
        found = _KVM.stat()
        if found.st_gid and found.st_mode & (stat.S_IRGRP | stat.S_IWGRP) == stat.S_IRGRP | stat.S_IWGRP:
            return [found.st_gid]
    return []
