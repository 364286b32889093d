"""The kernels that a lab can run on, besides the machine's: what ``--kernel`` names, and where it is.

A user-mode Linux is a program whose ``--version`` prints its release. Debian's has its modules in a folder of its own;
one that proxylab built has everything built in. The image of a kernel for real machines, a bzImage, has its release in
its header; qemu boots it.
"""

import os
import platform
import re
import shutil
import struct
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from proxylab.binaries.commands import run_guarded
from proxylab.encoding import Record
from proxylab.errors import CapabilityError
from proxylab.scenario.words import DEBIAN, HOST, UML

_PROGRAM: Final = "linux.uml"
_SECONDS: Final = 30.0
_MOST_PRINTED: Final = 1 << 20
_HEAD_BYTES: Final = 0x10400
_HEADER_END: Final = 0x210
_RELEASE: Final = re.compile(r"(\d+)\.(\d+)\S*")
_OBTAIN: Final = "build one with `proxylab kernels --obtain`, or 'apt-get install user-mode-linux'"
_OTHER_KERNEL: Final = "build a kernel that has it with `proxylab kernels --obtain`, which --kernel uml then means"
_FOR_THE_MACHINE: Final = re.compile(r"modprobe|kernel'?s? modules?|--kernel uml")
_ENDS_ITS_PROCESSES: Final = (6, 16)


class Kernel(Record, frozen=True):
    """A user-mode Linux, or an image that qemu boots.

    Attributes:
        release: as ``uname -r`` prints it in the guest.
        modules: the folder that holds the folder ``release`` with its modules; empty if everything is built in.
        is_image: whether qemu boots it.
    """

    binary: str
    release: str
    modules: str = ""
    is_image: bool = False

    @property
    def boot_seconds(self) -> float:
        """How long a boot may take. qemu without KVM runs a processor's work at a tenth of its speed."""
        return 240.0 if self.is_image else 60.0

    @property
    def has_nftables(self) -> bool:
        """Whether nf_tables has tables for IP. Debian's kernels have nf_tables as a module, and nft_nat not even so."""
        folder = Path(self.modules, self.release, "kernel/net/netfilter")
        return not self.modules or any(folder.glob("nft_nat.ko*"))

    @property
    def ends_its_processes(self) -> bool:
        """Whether the processes of a killed guest end with it.

        A guest's process is one of the machine, which the guest's kernel traces. Before 6.16 such a process runs on
        untraced, with the machine's kernel, once its tracer has been killed. Those of an image exist in qemu alone.
        """
        if self.is_image:
            return True
        numbers = _RELEASE.match(self.release)
        return numbers is not None and (int(numbers[1]), int(numbers[2])) >= _ENDS_ITS_PROCESSES


def cache_folder() -> Path:
    """Where built kernels lie: ``VERSION-CHECKSUM/linux``, below XDG_CACHE_HOME."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(given) if Path(given).is_absolute() else Path.home() / ".cache"
    return home / "proxylab" / "kernels"


def find_kernel(word: str) -> Kernel | None:
    """The kernel that ``word`` names: ``host`` (``None``), ``uml``, ``debian:VERSION``, or the path of one.

    ``uml`` is the newest one that proxylab has built, or else Debian's. ``debian:VERSION`` is one for real machines. It
    is downloaded if it is not in the cache. Raises ``CapabilityError``.
    """
    if word == HOST:
        return None
    if platform.machine() != "x86_64":
        raise CapabilityError(f"a guest's kernel for {platform.machine()}: there is none yet", "use --kernel host")
    if word.startswith(DEBIAN):
        from proxylab.guest.debian import debian_kernel  # noqa: PLC0415 - only this word needs it

        return _inspect(debian_kernel(word.removeprefix(DEBIAN), cache_folder()))
    if word == UML:
        for kernel in known_kernels():
            return kernel
        raise CapabilityError(f"a user-mode Linux ({_PROGRAM} is not on PATH)", _OBTAIN)
    return _inspect(Path(word).absolute())


def cure_in_guest(cure: str) -> str:
    """A cure that helps in a guest, whose kernel takes no modules of the machine's."""
    return _OTHER_KERNEL if _FOR_THE_MACHINE.search(cure) else cure


def known_kernels() -> Iterator[Kernel]:
    """Built kernels, the newest first, and then the one on PATH. One that does not start is left out."""
    found = shutil.which(_PROGRAM)
    yield from _inspected([*_cached("*/linux"), *([Path(found)] if found else [])])


def known_images() -> Iterator[Kernel]:
    """The images of Debian's kernels in the cache, the latest first."""
    yield from _inspected(_cached("debian-*/vmlinuz"))


def _cached(pattern: str) -> list[Path]:
    try:
        return sorted(cache_folder().glob(pattern), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    except OSError:  # another user's cache, under sudo
        return []


def _inspected(paths: Iterable[Path]) -> Iterator[Kernel]:
    for path in paths:
        with suppress(CapabilityError):
            yield _inspect(path)


def _inspect(path: Path) -> Kernel:
    """The kernel at ``path``. Raises ``CapabilityError`` if it is none."""
    if release := _release_of_image(path):
        return Kernel(str(path), release, _modules_of(path, release), is_image=True)
    try:
        done = run_guarded((path, "--version"), seconds=_SECONDS, most=_MOST_PRINTED)
    except (OSError, subprocess.SubprocessError) as error:
        raise CapabilityError(f"the kernel {path} ({error})", "name a user-mode Linux that runs here") from error
    release = done.output.decode(errors="replace").strip()
    if done.status != 0 or not _RELEASE.fullmatch(release):
        raise CapabilityError(
            f"the kernel {path}: it is no bzImage, and no user-mode Linux, which prints its release for --version",
            _OBTAIN,
        )
    modules = _modules_of(path, release)
    if modules and shutil.which("modprobe", path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin") is None:
        raise CapabilityError(f"modprobe(8), which loads the modules of {path}", "'apt-get install kmod'")
    return Kernel(str(path), release, modules)


def _release_of_image(path: Path) -> str:
    """The release in the header of a bzImage (Documentation/arch/x86/boot.rst), or an empty string."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return ""
    if len(head) < _HEADER_END or head[0x202:0x206] != b"HdrS":
        return ""
    (offset,) = struct.unpack_from("<H", head, 0x20E)
    return head[offset + 0x200 :].partition(b" ")[0].decode("ascii", errors="replace")


def _modules_of(path: Path, release: str) -> str:
    """The folder of the modules: beside the kernel, or where Debian's packages have it."""
    own = path.resolve().parent
    for folder in (own.parent / "lib/uml/modules", own / "modules", own / "lib/modules", own.parent / "lib/modules"):
        if (folder / release / "modules.dep").exists():
            return str(folder)
    return ""
