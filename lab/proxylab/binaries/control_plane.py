"""The control plane of a lab: etcd, API server, controllers, scheduler and kubectl, in one program of proxylab's own.

Kubernetes releases them as programs of their own, which together are three times as big and start later. So the program
is built from Go modules, as kube-proxy is where no release is at hand; its main package lies beside this module.
"""

from importlib.resources import files
from pathlib import Path
from typing import Final

from msgspec import Struct

from proxylab.binaries.binary import CONTROL_PLANE, Binary, inspect
from proxylab.binaries.cache import Cache
from proxylab.binaries.choose import Sources, fits
from proxylab.binaries.go import BUILD_SECONDS, linker_flags, load_module, module_versions, run_go
from proxylab.binaries.module import MODULE, RELEASE, pinned_go_mod
from proxylab.errors import CapabilityError

_NAME: Final = "proxylab.invalid/control-plane"
_MAIN: Final = "control_plane.go.txt"
REAL: Final = "real"
"""The word for a control plane of real Kubernetes, in ``--control-plane``."""


def control_plane_sources() -> Sources:
    """The sources of this user on this machine."""
    return Sources(Cache.of_user(CONTROL_PLANE), {"module": ControlPlaneModule()})


def find_control_plane(name: str, cache: Cache) -> Binary:
    """The control plane that ``--control-plane`` names; nothing is built.

    ``name`` is ``real`` for the newest of the cache, ``real@VERSION``, or a path. Raises ``CapabilityError``.
    """
    if "/" in name:
        return inspect(Path(name).expanduser(), name, CONTROL_PLANE)
    word, _, wanted = name.partition("@")
    if word != REAL:
        raise CapabilityError(
            f"a control plane {name!r}", "name embedded, real, real@VERSION, or the path of a control-plane"
        )
    fitting = [each for each in cache.binaries() if fits(each.version, wanted)]
    if not fitting:
        named = f"control-plane@{wanted}" if wanted else "control-plane"
        raise CapabilityError(
            f"a control plane of Kubernetes {wanted}".strip(), f"type `proxylab engines --obtain {named}`, once"
        )
    return fitting[-1]


class ControlPlaneModule(Struct, frozen=True):
    """Builds with a ``go`` command in the user's environment (``GOPROXY`` and the rest)."""

    go: str = "go"

    def versions(self) -> list[str]:
        """The releases that the module proxy lists, oldest first. Raises ``CapabilityError`` where none answers."""
        return module_versions(self.go, MODULE, RELEASE, CONTROL_PLANE)

    def origin(self, version: str) -> str:
        """The module and version that a binary is built from."""
        return f"built from {MODULE}@{version}"

    def obtain(self, version: str, cache: Cache) -> Binary:
        """Build one version, which takes eleven minutes of one processor. Raises ``CapabilityError``."""
        with cache.workspace(f"module {version}") as folder:
            known = cache.of_origin(self.origin(version))
            if known is not None:  # another process built it while this one waited
                return known
            _, described = load_module(self.go, folder, _NAME, f"{MODULE}@{version}", CONTROL_PLANE)
            (folder / "go.mod").write_text(pinned_go_mod(_NAME, described, version), encoding="utf-8")
            main = files("proxylab.binaries").joinpath(_MAIN).read_text(encoding="utf-8")
            (folder / "main.go").write_text(main, encoding="utf-8")
            built = folder / CONTROL_PLANE.name
            words = ("build", "-mod=mod", "-trimpath", "-ldflags", linker_flags(version), "-o", str(built), ".")
            run_go(self.go, folder, words, BUILD_SECONDS, CONTROL_PLANE)
            return cache.keep(built, self.origin(version))
