"""kube-proxy built from Go modules: which versions a module proxy has, and the build of one.

The go.mod of k8s.io/kubernetes replaces some thirty modules by folders of its own checkout, and dependent modules do
not inherit that. So the main package here replaces each of them by the version published with it (v0.34.2 for v1.34.2).
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from proxylab.binaries.binary import Binary
from proxylab.binaries.cache import Cache
from proxylab.binaries.go import BUILD_SECONDS, linker_flags, load_module, module_versions, run_go

MODULE: Final = "k8s.io/kubernetes"
_NAME: Final = "proxylab.invalid/kube-proxy"
_MAIN: Final = """\
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-proxy/app"
)

func main() { os.Exit(cli.Run(app.NewProxyCommand())) }
"""
RELEASE: Final = re.compile(r"v1\.\d+\.\d+")


class ModuleSource(Struct, frozen=True):
    """Builds with a ``go`` command in the user's environment (``GOPROXY`` and the rest)."""

    go: str = "go"

    def versions(self) -> list[str]:
        """The releases that the module proxy lists, oldest first; it may have more. Raises ``CapabilityError``."""
        return module_versions(self.go, MODULE, RELEASE)

    def origin(self, version: str) -> str:
        """The module and version that a binary is built from."""
        return f"built from {MODULE}@{version}"

    def obtain(self, version: str, cache: Cache) -> Binary:
        """Build one version, which takes minutes. Raises ``CapabilityError``."""
        with cache.workspace(f"module {version}") as folder:
            known = cache.of_origin(self.origin(version))
            if known is not None:  # another process built it while this one waited
                return known
            self._write(folder, version)
            built = folder / "kube-proxy"
            flags = ("-mod=mod", "-trimpath", "-ldflags", linker_flags(version), "-o", str(built), ".")
            run_go(self.go, folder, ("build", *flags), BUILD_SECONDS)
            return cache.keep(built, self.origin(version))

    def _write(self, folder: Path, version: str) -> None:
        _, described = load_module(self.go, folder, _NAME, f"{MODULE}@{version}")
        (folder / "go.mod").write_text(pinned_go_mod(_NAME, described, version), encoding="utf-8")
        (folder / "main.go").write_text(_MAIN, encoding="utf-8")


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
