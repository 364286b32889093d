"""What a command finds around itself in a node, pod or host, but for the network.

Owns: the private /run, the /sys of the place's own network namespace, and /etc/resolv.conf.
Must not: touch a file of the machine. Everything is mounted over it, in a mount namespace that the caller has made.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from proxylab.kernel.sandbox.linux import MS_BIND, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_RDONLY, MS_REC, mount

__all__ = ["furnish"]

_RUN: Final = Path("/run")
_RESOLV_CONF: Final = Path("/etc/resolv.conf")
_NO_NAME_SERVER: Final = "# This place has no name server.\n"


def furnish(resolv_conf: str = "") -> None:
    """Mount a place's own /run, /sys and /etc/resolv.conf in the calling process's mount and network namespace.

    Without ``resolv_conf`` the place has no name server.

    Raises:
        OSError: the kernel refused a mount that any root of a user namespace may make.
    """
    mount("tmpfs", str(_RUN), "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=64m")
    _mount_sys()
    _place_resolv_conf(resolv_conf or _NO_NAME_SERVER)


def _mount_sys() -> None:
    """Show the place's own devices below /sys/class/net: a sysfs shows those of the namespace it was mounted in.

    A container that masks parts of /sys may mount no other (mount_too_revealing, fs/namespace.c). Then there is
    nothing: better than the machine's devices.
    """
    try:
        mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    except PermissionError:
        mount("tmpfs", "/sys", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY, "mode=0555,size=0")


def _place_resolv_conf(text: str) -> None:
    """Put ``text`` where /etc/resolv.conf leads.

    It is often a symbolic link into /run (systemd-resolved), where the private /run leaves it dangling, and a file can
    only be mounted over a file. So it is made anew in /run, mounted over the file it leads to, or, where it leads
    nowhere, /etc gets a stand-in.
    """
    target = Path(os.path.realpath(_RESOLV_CONF))
    if target.is_relative_to(_RUN):
        with suppress(OSError):  # it leads through something that is no directory here
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
            return
    own = _RUN / ".resolv.conf"
    own.write_text(text, encoding="utf-8")
    if not target.is_file():
        _stand_in_for_etc()
        target = _RESOLV_CONF
    mount(str(own), str(target), "", MS_BIND)


def _stand_in_for_etc() -> None:
    """An /etc of links to everything in the real one, with an empty resolv.conf."""
    etc, kept = _RESOLV_CONF.parent, _RUN / ".etc"
    kept.mkdir()
    mount(str(etc), str(kept), "", MS_BIND | MS_REC)
    names = [each.name for each in etc.iterdir()]
    mount("tmpfs", str(etc), "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m")
    for name in names:
        if name != _RESOLV_CONF.name:
            (etc / name).symlink_to(kept / name)
    _RESOLV_CONF.touch()
