"""Debian's kernels by version, for ``--kernel debian:VERSION``: from the package into the cache, once.

apt downloads the package that the machine's own configuration offers, and checks it. dpkg-deb unpacks it in the cache,
so nothing is installed, and no privilege is needed. Only the modules that a lab could use are kept, a tenth of all; and
a static busybox, which the guest's first steps need (``guest.qemu``).
"""

import os
import re
import shutil
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from proxylab.binaries.cache import Cache
from proxylab.binaries.commands import output_of
from proxylab.errors import CapabilityError

_FLAVOUR: Final = "amd64"
_PACKAGE: Final = re.compile(rf"linux-image-(\d[\w.+~]*(?:-\d+)?)-{_FLAVOUR}")
_KEPT: Final = re.compile(
    r"\./(?:boot/vmlinuz-[^/]+|(?:usr/)?lib/modules/[^/]+/(?:modules\..+|kernel/"
    r"(?:arch|crypto|fs/(?:9p|overlayfs|netfs|fscache|nls)|lib|net|drivers/(?:block|char|net|virtio))/.+))"
)
_TOOLS: Final = ("apt-get", "apt-cache", "dpkg-deb")
_SBIN: Final = ":/usr/sbin:/sbin"


def debian_kernel(version: str, folder: Path) -> Path:
    """The image of Debian's kernel of that version in the cache ``folder``; downloads it where it is missing.

    Args:
        version: as the package's name has it, or the beginning of that: ``6.1.0-56``, or ``6.1`` for its newest, or
            nothing for the newest of all.
        folder: of the cache.

    Raises:
        CapabilityError: the machine lacks a tool, or apt offers no such package.
    """
    cached = {path.parent.name: path for path in folder.glob("debian-*/vmlinuz")}
    if (found := newest_package(version, (name.removeprefix("debian-") for name in cached))) is not None:
        return cached[f"debian-{found}"]
    lacking = [tool for tool in _TOOLS if shutil.which(tool) is None]
    depmod = shutil.which("depmod", path=os.environ.get("PATH", os.defpath) + _SBIN)
    if lacking or depmod is None:
        raise CapabilityError(
            f"{', '.join([*lacking, *([] if depmod else ['depmod'])])}, to get Debian's kernel {version}",
            "install apt and kmod, or give --kernel the path of a kernel",
        )
    offered = output_of(("apt-cache", "pkgnames", "linux-image-")).split()
    package = newest_package(version, offered)
    if package is None:
        known = ", ".join(sorted({name[1] for each in offered if (name := _PACKAGE.fullmatch(each))})) or "none"
        raise CapabilityError(
            f"a package linux-image-{version}…-{_FLAVOUR}; apt offers {known}",
            "run 'apt-get update', or choose another",
        )
    cache, target = Cache(folder), folder / f"debian-{package}"
    with cache.workspace("debian") as workspace:
        if not target.exists():
            output_of(("apt-get", "-qq", "download", package, "busybox-static"), workspace)
            made = workspace / "kernel"
            _unpack(next(workspace.glob("linux-image-*.deb")), made)
            busybox = workspace / "busybox"
            output_of(("dpkg-deb", "-x", str(next(workspace.glob("busybox-*.deb"))), str(busybox)))
            shutil.copy(next(path for path in busybox.glob("**/bin/busybox")), made / "busybox")
            (modules,) = (made / "lib/modules").iterdir()
            output_of((depmod, "-b", str(made), modules.name))
            made.replace(target)
    return target / "vmlinuz"


def newest_package(version: str, names: Iterable[str]) -> str | None:
    """The package of the newest kernel of that version among these names; none for clouds, none with symbols alone."""
    found = {each: name[1] for each in names if (name := _PACKAGE.fullmatch(each))}
    fitting = [
        each for each, own in found.items() if not version or re.fullmatch(re.escape(version) + r"(?:[.-].*)?", own)
    ]
    return max(fitting, key=lambda each: [int(number) for number in re.findall(r"\d+", found[each])], default=None)


def _unpack(package: Path, target: Path) -> None:
    """Unpack the image, as ``vmlinuz``, and the modules that a lab may use, below ``lib/modules``."""
    archive = package.with_suffix(".tar")
    output_of(("sh", "-c", 'exec dpkg-deb --fsys-tarfile "$1" >"$2"', "sh", str(package), str(archive)))
    with tarfile.open(archive) as members:
        for member in members:
            content = members.extractfile(member) if _KEPT.fullmatch(member.name) else None
            if content is not None:
                name = "vmlinuz" if "/boot/" in member.name else member.name.removeprefix("./").removeprefix("usr/")
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                (target / name).write_bytes(content.read())
    archive.unlink()
