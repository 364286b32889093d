"""Builds a user-mode Linux from Debian's kernel source, once, into the cache.

Debian packages one, too, but without nf_tables for IP, and a stable release's is older than 6.16, from which on the
system calls of a guest need no ptrace(2). ``uml.config`` beside this module says what goes into this one.

apt downloads the source from the mirror that the machine has configured, and checks its signature. It does so in a
folder of its own, from the suite ``stable-backports``, which the machine's own configuration need not have. So neither
that configuration nor an installed package changes, and no privilege is needed.
"""

import hashlib
import os
import platform
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from proxylab.binaries.cache import Cache
from proxylab.binaries.commands import output_of
from proxylab.errors import CapabilityError
from proxylab.guest.kernels import cache_folder

_CONFIG: Final = Path(__file__).with_name("uml.config")
_KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_SUITE: Final = "stable-backports"
_HEADER: Final = Path("/usr/include/stdio.h")
_TOOLS: Final = ("apt-get", "dpkg-deb", "tar", "xz", "make", "gcc", "flex", "bison", "bc", "strip")
_PACKAGES: Final = "gcc libc6-dev make flex bison bc xz-utils"
_ROOM: Final = 3 << 30
"""The source takes 1.8 GiB, and what is built from it 0.2."""


def build_kernel(tell: Callable[[str], None]) -> Path:
    """Download, configure and build the newest kernel, which takes minutes; a kernel built before is kept.

    It is kept, too, where the newest one cannot be built. ``tell`` gets a line at each stage.

    Returns:
        The kernel's path.

    Raises:
        CapabilityError: the machine lacks a tool, room or a source, or the build fails.
    """
    if platform.machine() != "x86_64":
        raise CapabilityError("a processor for user-mode Linux (x86-64)", "use --kernel host")
    cache = Cache(cache_folder())
    with cache.workspace("kernel") as folder:
        try:
            return _newest(cache.folder, folder, tell)
        except CapabilityError as error:
            if kept := built_before(cache.folder):
                tell(f"keeping {kept}, since a newer one needs {error.missing.strip()}; {error.cure}")
                return kept
            raise


def _newest(kernels: Path, folder: Path, tell: Callable[[str], None]) -> Path:
    """The newest kernel, which is built in ``folder`` unless ``kernels`` has it."""
    if built_before(kernels) is None or shutil.which("apt-get") is None:
        _check_tools()
    apt = _Apt(folder)
    package = apt.newest_source()
    built = _path_in_cache(kernels, package)
    if built.exists():
        return built
    _check_tools()
    if shutil.disk_usage(folder).free < _ROOM:
        raise CapabilityError(f"{_ROOM >> 30} GiB for the build of a kernel in {folder.parent}", "make room there")
    tell(f"downloading {package}")
    source = apt.unpack(package, folder)
    tell(f"building {source.name} with {os.cpu_count()} processes, which takes some minutes")
    candidate = _build(source, folder / "build", tell)
    built.parent.mkdir(parents=True, exist_ok=True)
    return candidate.replace(built)


def _path_in_cache(folder: Path, package: str) -> Path:
    """Where the kernel of that source and of this configuration lies in the cache."""
    digest = hashlib.sha256(package.encode() + _CONFIG.read_bytes()).hexdigest()[:12]
    return folder / f"{package.partition('=')[2]}-{digest}" / "linux"


def built_before(folder: Path) -> Path | None:
    """The kernel in the cache that was built last, of this configuration."""
    found = []
    for path in folder.glob("*/linux"):
        version = path.parent.name.rpartition("-")[0]
        series = re.match(r"\d+\.\d+", version)
        if series and path == _path_in_cache(folder, f"linux-source-{series[0]}={version}"):
            found.append(path)
    return max(found, key=lambda path: path.stat().st_mtime_ns, default=None)


def _check_tools() -> None:
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if not _HEADER.exists():
        missing.append("the headers of the C library")
    if missing:
        raise CapabilityError(
            f"{', '.join(missing)}, to build a kernel",
            f"'apt-get install {_PACKAGES}' on Debian; elsewhere build a user-mode Linux with the options in "
            f"{_CONFIG}, and give its path to --kernel",
        )


class _Apt:
    """apt-get with a configuration, package lists and downloads of its own, below ``folder``."""

    def __init__(self, folder: Path) -> None:
        targets = output_of(("apt-get", "indextargets", "--format", "$(LABEL)|$(COMPONENT)|$(REPO_URI)"))
        mirror = mirror_in(targets.splitlines())
        if mirror is None:
            raise CapabilityError(
                "a mirror of Debian in apt's sources, from which to get a kernel's source",
                "run 'apt-get update', or build a user-mode Linux by hand and give its path to --kernel",
            )
        self._folder = folder / "apt"
        for name in ("lists/partial", "archives/partial"):
            (self._folder / name).mkdir(parents=True)
        (self._folder / "sources.list").write_text(
            sources_list(mirror, _KEYRING if _KEYRING.exists() else None), encoding="utf-8"
        )
        own = {
            "Dir::Etc::SourceList": self._folder / "sources.list",
            "Dir::Etc::SourceParts": "-",
            "Dir::State::Lists": self._folder / "lists",
            "Dir::Cache": self._folder,
            "APT::Sandbox::User": "root",  # apt's own user could not write to this folder
            # Of backports, unlike of a release, apt refuses a list that a mirror has held for a week. It still checks
            # who signed the list, and an older kernel does a guest no harm.
            "Acquire::Check-Valid-Until": "false",
        }
        self._options = [word for name, value in own.items() for word in ("-o", f"{name}={value}")]

    def newest_source(self) -> str:
        """The newest package of a kernel's source, as ``linux-source-7.3=7.3.4-1``."""
        output_of(("apt-get", "-qq", *self._options, "update"))
        newest = output_of(("apt-cache", *self._options, "show", "--no-all-versions", "linux-source"))
        found = re.search(r"^Depends: (linux-source-\S+)", newest, re.MULTILINE)
        if found is None:
            raise CapabilityError(f"a package linux-source in Debian's {_SUITE}", "try again later")
        shown = output_of(("apt-cache", *self._options, "show", "--no-all-versions", found[1]))
        version = re.search(r"^Version: (\S+)$", shown, re.MULTILINE)
        return f"{found[1]}={version[1] if version else ''}"

    def unpack(self, package: str, folder: Path) -> Path:
        """Download a package, and unpack the source in it. Returns the source's folder."""
        output_of(("apt-get", "-qq", *self._options, "download", package), folder)
        (downloaded,) = folder.glob("*.deb")
        output_of(("dpkg-deb", "-x", str(downloaded), "package"), folder)
        downloaded.unlink()
        (archive,) = (folder / "package/usr/src").glob("*.tar.xz")
        output_of(("tar", "-xJf", str(archive)), folder)
        archive.unlink()
        return folder / archive.name.removesuffix(".tar.xz")


def mirror_in(lines: Iterable[str]) -> str | None:
    """The first mirror of Debian's main archive among lines of ``LABEL|COMPONENT|URI``."""
    for line in lines:
        label, component, address = line.split("|", 2)
        if (label, component) == ("Debian", "main"):
            return address
    return None


def sources_list(mirror: str, keyring: Path | None) -> str:
    """The line of sources.list(5) for the suite at that mirror."""
    return f"deb {f'[signed-by={keyring}] ' if keyring else ''}{mirror} {_SUITE} main\n"


def _build(source: Path, target: Path, tell: Callable[[str], None]) -> Path:
    make = ("make", "-s", "ARCH=um", f"O={target}")
    target.mkdir()
    output_of((*make, f"KCONFIG_ALLCONFIG={_CONFIG}", "allnoconfig"), source)
    fragment, config = (path.read_text(encoding="utf-8") for path in (_CONFIG, target / ".config"))
    if lost := lost_options(fragment, config):
        tell(f"this kernel's configuration does not take {', '.join(lost)}")
    output_of((*make, f"-j{os.cpu_count()}", "linux"), source)
    kernel = target / "linux"
    output_of(("strip", str(kernel)), target)
    return kernel


def lost_options(fragment: str, config: str) -> list[str]:
    """The options of the fragment that the configuration does not have: renamed, or short of another option."""
    made = set(config.splitlines())
    return [line for line in fragment.splitlines() if line.startswith("CONFIG_") and line not in made]
