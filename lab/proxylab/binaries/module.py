"""A program of Kubernetes built from Go modules: which versions a module proxy has, and the build of one.

The go.mod of k8s.io/kubernetes replaces some thirty modules by folders of its own checkout, and dependent modules do
not inherit that. So the main package, which lies beside this module, replaces each of them by the version published
with it (v0.34.2 for v1.34.2).
"""

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

from msgspec import Struct

from proxylab.binaries.binary import KUBE_PROXY, Binary, BinaryProgram
from proxylab.binaries.cache import Cache
from proxylab.binaries.go import BUILD_SECONDS, linker_flags, load_module, module_versions, run_go

MODULE: Final = "k8s.io/kubernetes"
RELEASE: Final = re.compile(r"v1\.\d+\.\d+")


class ModuleSource(Struct, frozen=True):
    """Builds with a ``go`` command in the user's environment (``GOPROXY`` and the rest).

    Attributes:
        program: what it builds.
        main: the file of its main package, among the modules of this package.
    """

    go: str = "go"
    program: BinaryProgram = KUBE_PROXY
    main: str = "kube_proxy.go.txt"

    def versions(self) -> list[str]:
        """The releases that the module proxy lists, oldest first; it may have more. Raises ``CapabilityError``."""
        return module_versions(self.go, MODULE, RELEASE, self.program)

    def origin(self, version: str) -> str:
        """The module and version that a binary is built from."""
        return f"built from {MODULE}@{version}"

    def obtain(self, version: str, cache: Cache) -> Binary:
        """Build one version, which takes minutes. Raises ``CapabilityError``."""
        with cache.workspace(f"module {version}") as folder:
            known = cache.of_origin(self.origin(version))
            if known is not None:  # another process built it while this one waited
                return known
            name = f"proxylab.invalid/{self.program.name}"
            _, described = load_module(self.go, folder, name, f"{MODULE}@{version}", self.program)
            (folder / "go.mod").write_text(pinned_go_mod(name, described, version), encoding="utf-8")
            main = files("proxylab.binaries").joinpath(self.main).read_text(encoding="utf-8")
            (folder / "main.go").write_text(main, encoding="utf-8")
            built = folder / self.program.name
            flags = ("-mod=mod", "-trimpath", "-ldflags", linker_flags(version), "-o", str(built), ".")
            run_go(self.go, folder, ("build", *flags), BUILD_SECONDS, self.program)
            return cache.keep(built, self.origin(version))


def pinned_go_mod(name: str, kubernetes: Mapping[str, Any], version: str) -> str:
    """The go.mod of a main package, from that of kubernetes as ``go mod edit -json`` prints it."""
    published = "v0" + version.removeprefix("v1")
    replaced = {each["Old"]["Path"]: each["New"] for each in kubernetes.get("Replace") or ()}
    lines = [
        f"module {name}",
        f"go {kubernetes['Go']}",
        f"require {MODULE} {version}",
        f"require k8s.io/component-base {published}",
        *(
            f"replace {path} => {path} {published}"
            if new["Path"].startswith("./")
            # Until v1.23 kubernetes also pins every other module this way.
            else f"replace {path} => {new['Path']} {new['Version']}"
            for path, new in replaced.items()
        ),
    ]
    return "\n".join(lines) + "\n"
