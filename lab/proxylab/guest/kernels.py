"""The kernels that a lab can run on, besides the machine's: what ``--kernel`` names, and where it is.

A user-mode Linux is a program whose ``--version`` prints its release. Debian's has its modules in a folder of its own;
one that proxylab built has everything built in.
"""

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from proxylab.encoding import Record
from proxylab.errors import CapabilityError
from proxylab.scenario.words import HOST, UML

__all__ = ["Kernel", "cache_folder", "find_kernel", "known_kernels"]

_PROGRAM: Final = "linux.uml"
_SECONDS: Final = 30.0
_RELEASE: Final = re.compile(r"(\d+)\.(\d+)\S*")
_OBTAIN: Final = "build one with `proxylab kernels --obtain`, or 'apt-get install user-mode-linux'"
_ENDS_ITS_PROCESSES: Final = (6, 16)


class Kernel(Record, frozen=True):
    """A user-mode Linux.

    Attributes:
        binary: its absolute path.
        release: as ``uname -r`` prints it in the guest.
        modules: the folder that holds the folder ``release`` with its modules; empty if everything is built in.
    """

    binary: str
    release: str
    modules: str = ""

    @property
    def has_nftables(self) -> bool:
        """Whether nf_tables has tables for IP. Debian's kernels have nf_tables as a module, and nft_nat not even so."""
        return not self.modules or Path(self.modules, self.release, "kernel/net/netfilter/nft_nat.ko").exists()

    @property
    def ends_its_processes(self) -> bool:
        """Whether the processes of a killed guest end with it.

        A guest's process is one of the machine, which the guest's kernel traces. Before 6.16 such a process runs on
        untraced, with the machine's kernel, once its tracer has been killed.
        """
        numbers = _RELEASE.match(self.release)
        return numbers is not None and (int(numbers[1]), int(numbers[2])) >= _ENDS_ITS_PROCESSES


def cache_folder() -> Path:
    """Where built kernels lie: ``VERSION-CHECKSUM/linux``, below XDG_CACHE_HOME."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(given) if Path(given).is_absolute() else Path.home() / ".cache"
    return home / "proxylab" / "kernels"


def find_kernel(word: str) -> Kernel | None:
    """The kernel that ``word`` names: ``host`` (``None``), ``uml``, or the path of a user-mode Linux.

    ``uml`` is the newest one that proxylab has built, or else Debian's.

    Raises:
        CapabilityError: there is none.
    """
    if word == HOST:
        return None
    if platform.machine() != "x86_64":
        raise CapabilityError(
            f"a user-mode Linux, which exists for x86-64 only (this is {platform.machine()})", "use --kernel host"
        )
    if word == UML:
        for kernel in known_kernels():
            return kernel
        raise CapabilityError(f"a user-mode Linux ({_PROGRAM} is not on PATH)", _OBTAIN)
    return _inspect(Path(word).absolute())


def known_kernels() -> Iterator[Kernel]:
    """Built kernels, the newest first, and then the one on PATH. One that does not start is left out."""
    built: list[Path] = []
    with suppress(OSError):  # another user's cache, under sudo
        built = sorted(cache_folder().glob("*/linux"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    found = shutil.which(_PROGRAM)
    for path in [*built, *([Path(found)] if found else [])]:
        try:
            yield _inspect(path)
        except CapabilityError:
            continue


def _inspect(path: Path) -> Kernel:
    """The kernel at ``path``. Raises ``CapabilityError`` if it is no user-mode Linux."""
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CapabilityError(f"the kernel {path} ({error})", "name a user-mode Linux that runs here") from error
    release = done.stdout.strip()
    if done.returncode != 0 or not _RELEASE.fullmatch(release):
        raise CapabilityError(
            f"the kernel {path}: it is no user-mode Linux, which prints its release for --version", _OBTAIN
        )
    modules = _modules_of(path, release)
    if modules and shutil.which("modprobe", path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin") is None:
        raise CapabilityError(f"modprobe(8), which loads the modules of {path}", "'apt-get install kmod'")
    return Kernel(str(path), release, modules)


def _modules_of(path: Path, release: str) -> str:
    """The folder of the modules: Debian's is beside the program's own folder."""
    for folder in (path.resolve().parent.parent / "lib/uml/modules", path.resolve().parent / "modules"):
        if (folder / release / "modules.dep").exists():
            return str(folder)
    return ""
