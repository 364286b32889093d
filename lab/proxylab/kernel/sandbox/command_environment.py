"""The files a command finds in a node, pod or host: a private /run, the /sys of its namespace, and /etc/resolv.conf.

The module changes no file of the machine. It mounts over files, in a mount namespace that the caller has made.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from proxylab.kernel.sandbox.linux import MS_BIND, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_RDONLY, MS_REC, mount

_RUN: Final = Path("/run")
_RESOLV_CONF: Final = Path("/etc/resolv.conf")
_NO_NAME_SERVER: Final = (
    "# This node, pod or host has no name server. With `dns: true` in its scenario's `spec`, pods have one.\n"
)


def furnish(resolv_conf: str = "") -> None:
    """Mount a private /run, /sys and /etc/resolv.conf in the calling process's mount and network namespace.

    An empty ``resolv_conf`` means no name server.

    Raises:
        OSError: the kernel refused a mount that any root of a user namespace may make.
    """
    mount("tmpfs", str(_RUN), "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=64m")
    _mount_sys()
    _write_resolv_conf(resolv_conf or _NO_NAME_SERVER)


def _mount_sys() -> None:
    """Show the namespace's own devices below /sys/class/net: a sysfs shows those of the namespace that mounted it.

    A container that masks parts of /sys may mount no other (mount_too_revealing, fs/namespace.c). Then /sys is
    empty, which is better than the machine's devices.
    """
    try:
        mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    except PermissionError:
        mount("tmpfs", "/sys", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY, "mode=0555,size=0")


def _write_resolv_conf(text: str) -> None:
    """Make /etc/resolv.conf read as ``text``.

    It is often a symbolic link into /run (systemd-resolved), and dangles there once /run is private. A bind mount of a
    file needs a file under it. So the function writes the link's target in /run, or mounts over the target, or, where
    there is none, replaces /etc by a copy of links.
    """
    target = Path(os.path.realpath(_RESOLV_CONF))
    if target.is_relative_to(_RUN):
        with suppress(OSError):  # a component of the path is no directory here
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
            return
    own = _RUN / ".resolv.conf"
    own.write_text(text, encoding="utf-8")
    if not target.is_file():
        _replace_etc()
        target = _RESOLV_CONF
    mount(str(own), str(target), "", MS_BIND)


def _replace_etc() -> None:
    """Mount a new /etc: links to everything in the real one, and an empty resolv.conf."""
    etc, kept = _RESOLV_CONF.parent, _RUN / ".etc"
    kept.mkdir()
    mount(str(etc), str(kept), "", MS_BIND | MS_REC)
    names = [each.name for each in etc.iterdir()]
    mount("tmpfs", str(etc), "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m")
    for name in names:
        if name != _RESOLV_CONF.name:
            (etc / name).symlink_to(kept / name)
    _RESOLV_CONF.touch()
