"""A program built from Go modules: which versions a module proxy has, and the build of one.

Each program has a main package of its own, which imports the module. The go.mod of k8s.io/kubernetes replaces some
thirty modules by folders of its own checkout, and dependent modules do not inherit that. So the main package of its
programs, which lies beside this module, replaces each of them by the version published with it (v0.34.2 for v1.34.2).
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from proxylab.binaries.binary import KUBE_PROXY, Binary, BinaryProgram
from proxylab.binaries.cache import Cache
from proxylab.binaries.go import BUILD_SECONDS, linker_flags, load_module, module_versions, run_go

KUBERNETES: Final = "k8s.io/kubernetes"
RELEASE: Final = re.compile(r"v1\.\d+\.\d+")


class MainPackage(Struct, frozen=True):
    """The main package of a build.

    Attributes:
        go_mod: its go.mod.
        main: its main.go.
        flags: of the linker.
    """

    go_mod: str
    main: str
    flags: str = "-s -w"


Prepare = Callable[[str, str, Path, Mapping[str, Any]], MainPackage]
"""Makes a main package: of that name, for a version, by the module's files and its go.mod (``go mod edit -json``)."""


def _of_kubernetes(main: str, name: str, version: str, _there: Path, described: Mapping[str, Any]) -> MainPackage:
    text = files("proxylab.binaries").joinpath(main).read_text(encoding="utf-8")
    return MainPackage(_pinned_go_mod(name, described, version), text, linker_flags(version))


def _pinned_go_mod(name: str, kubernetes: Mapping[str, Any], version: str) -> str:
    """The go.mod of a main package, from that of kubernetes as ``go mod edit -json`` prints it."""
    published = "v0" + version.removeprefix("v1")
    replaced = {each["Old"]["Path"]: each["New"] for each in kubernetes.get("Replace") or ()}
    lines = [
        f"module {name}",
        f"go {kubernetes['Go']}",
        f"require {KUBERNETES} {version}",
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


class ModuleSource(Struct, frozen=True):
    """Builds with a ``go`` command in the user's environment (``GOPROXY`` and the rest).

    Attributes:
        program: what it builds.
        module: the Go module that has it.
        release: the versions that count.
        prepare: makes the main package.
    """

    go: str = "go"
    program: BinaryProgram = KUBE_PROXY
    module: str = KUBERNETES
    release: re.Pattern[str] = RELEASE
    prepare: Prepare = partial(_of_kubernetes, "kube_proxy.go.txt")

    def versions(self) -> list[str]:
        """The releases that the module proxy lists, oldest first; it may have more. Raises ``CapabilityError``."""
        return module_versions(self.go, self.module, self.release, self.program)

    def origin(self, version: str) -> str:
        """The module and version that a binary is built from."""
        return f"built from {self.module}@{version}"

    def obtain(self, version: str, cache: Cache) -> Binary:
        """Build one version, which takes minutes. Raises ``CapabilityError``."""
        with cache.workspace(f"module {version}") as folder:
            known = cache.of_origin(self.origin(version))
            if known is not None:  # another process built it while this one waited
                return known
            name = f"proxylab.invalid/{self.program.name}"
            there, described = load_module(self.go, folder, name, f"{self.module}@{version}", self.program)
            package = self.prepare(name, version, there, described)
            (folder / "go.mod").write_text(package.go_mod, encoding="utf-8")
            (folder / "main.go").write_text(package.main, encoding="utf-8")
            built = folder / self.program.name
            flags = ("-mod=mod", "-trimpath", "-ldflags", package.flags, "-o", str(built), ".")
            run_go(self.go, folder, ("build", *flags), BUILD_SECONDS, self.program)
            return cache.keep(built, self.origin(version))


def module_of_kubernetes(program: BinaryProgram, main: str) -> ModuleSource:
    """The source of a program of Kubernetes whose main package is a file among the modules of this package."""
    return ModuleSource(program=program, prepare=partial(_of_kubernetes, main))
