"""CoreDNS as it is released on GitHub, or built from Go modules; and the choice of one from the cache.

A release is ``coredns_VERSION_linux_ARCHITECTURE.tgz`` with its SHA-256 beside it. A build has a main package of its
own, which imports the plugins in the module's ``plugin.cfg`` (https://coredns.io/2017/07/25/compile-time-enabling-or-disabling-plugins/).
It leaves out those of cloud providers and a few more, which have half of all modules and answer nothing in a lab.
"""

import io
import platform
import re
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from proxylab.binaries.binary import COREDNS, Binary, inspect
from proxylab.binaries.cache import Cache
from proxylab.binaries.choose import Sources, newest_kept
from proxylab.binaries.download import leads_to, load
from proxylab.binaries.module import MainPackage, ModuleSource
from proxylab.errors import CapabilityError

_SITE: Final = "https://github.com/coredns/coredns/releases"
_MODULE: Final = "github.com/coredns/coredns"
_LEFT_OUT: Final = frozenset({"azure", "clouddns", "etcd", "geoip", "nomad", "route53", "trace"})
_ASK_SECONDS: Final = 60.0
_VERSION: Final = re.compile(r"v\d+\.\d+\.\d+")
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le", "s390x": "s390x"}


def coredns_sources() -> Sources:
    """The sources of this user on this machine."""
    return Sources(Cache.of_user(COREDNS), {"release": CorednsRelease(), "module": COREDNS_MODULE})


def find_coredns(name: str, cache: Cache) -> Binary:
    """The CoreDNS that ``--name-server`` names; nothing is downloaded or built.

    ``name`` is ``coredns`` or nothing for the newest of the cache, ``coredns@VERSION``, or a path.
    Raises ``CapabilityError``.
    """
    if "/" in name:
        return inspect(Path(name).expanduser(), name, COREDNS)
    program, _, wanted = name.partition("@")
    if program not in ("", COREDNS.name):
        raise CapabilityError(
            f"a name server {name!r}", "name embedded, coredns, coredns@VERSION, or the path of a coredns"
        )
    return newest_kept(cache, wanted, "CoreDNS")


class CorednsRelease(Struct, frozen=True):
    """Downloads from ``site``."""

    site: str = _SITE

    def versions(self) -> list[str]:
        """The newest release. Raises ``CapabilityError`` where the site does not answer."""
        newest = leads_to(f"{self.site}/latest").rpartition("/")[2]
        return [newest] if _VERSION.fullmatch(newest) else []

    def origin(self, version: str) -> str:
        """The address of one release for this machine."""
        machine = _ARCHITECTURES.get(platform.machine(), platform.machine())
        return f"{self.site}/download/{version}/coredns_{version.removeprefix('v')}_linux_{machine}.tgz"

    def obtain(self, version: str, cache: Cache) -> Binary:
        """Download and unpack one release. Raises ``CapabilityError``."""
        with cache.workspace(f"release {self.site} {version}") as folder:
            packed, candidate = folder / "coredns.tgz", folder / "coredns"
            load(self.origin(version), packed)
            try:
                with tarfile.open(packed) as members, candidate.open("wb") as file:
                    shutil.copyfileobj(members.extractfile("coredns") or io.BytesIO(), file)
            except (KeyError, tarfile.TarError) as error:
                raise CapabilityError(f"a coredns in {self.origin(version)} ({error})", "try again later") from error
            return cache.keep(candidate, self.origin(version))


def _main(plugins: str) -> str:
    """The main package, from a ``plugin.cfg``: names with packages, below ``plugin/`` except full paths."""

    def packages() -> Iterator[str]:
        for line in plugins.splitlines():
            name, colon, package = line.strip().partition(":")
            if colon and not name.startswith("#") and name not in _LEFT_OUT:
                yield package if "." in package.partition("/")[0] else f"{_MODULE}/plugin/{package}"

    imports = "".join(f'\t_ "{package}"\n' for package in packages())
    return f'package main\n\nimport (\n\t"{_MODULE}/coremain"\n{imports})\n\nfunc main() {{ coremain.Run() }}\n'


def _prepared(name: str, version: str, there: Path, described: Mapping[str, Any]) -> MainPackage:
    go_mod = f"module {name}\ngo {described['Go']}\nrequire {_MODULE} {version}\n"
    return MainPackage(go_mod, _main((there / "plugin.cfg").read_text(encoding="utf-8")))


COREDNS_MODULE: Final = ModuleSource(program=COREDNS, module=_MODULE, release=_VERSION, prepare=_prepared)
"""The build of it, which takes two minutes of one processor."""
