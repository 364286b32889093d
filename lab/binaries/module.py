"""kube-proxy built from Go modules.

Owns: ``ModuleSource``: which versions a Go module proxy has, and building one of them.
Must not: install Go, or keep what it has built.

k8s.io/kubernetes is made to be built in its own checkout: its go.mod replaces some thirty modules by folders beside it,
and a module that depends on it does not inherit that. So the main package here replaces each of them by the version
that was published with it (v0.34.2 for v1.34.2). The version, by which kube-proxy resolves its feature gates too, is
set by the linker as Kubernetes' own build does (hack/lib/version.sh).
"""

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lab.binaries.binary import Binary, order
from lab.binaries.cache import Cache
from lab.errors import CapabilityError

__all__ = ["ModuleSource"]

_MODULE: Final = "k8s.io/kubernetes"
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
_ASK_SECONDS: Final = 60.0
_BUILD_SECONDS: Final = 45 * 60.0
_RELEASE: Final = re.compile(r"v1\.\d+\.\d+")
_TAIL: Final = 20


@dataclass(frozen=True, slots=True)
class ModuleSource:
    """Builds by a ``go`` command.

    Args:
        go: the command; ``GOPROXY`` and the rest of its environment are the user's.
    """

    go: str = "go"

    def versions(self) -> list[str]:
        """The releases that can be built, oldest first.

        Raises:
            CapabilityError: there is no Go, or no module proxy answers.
        """
        said = self._go(Path("/"), "list", "-m", "-versions", "-json", _MODULE, seconds=_ASK_SECONDS)
        try:
            versions = json.loads(said).get("Versions", [])
        except ValueError:
            versions = []
        return sorted((each for each in versions if _RELEASE.fullmatch(each)), key=order)

    def obtain(self, version: str, cache: Cache) -> Binary:
        """Build one version, which takes minutes.

        Raises:
            CapabilityError: with the last lines of what Go said.
        """
        with cache.workspace(f"module {version}") as folder:
            known = [each for each in cache.binaries() if each.version == version]
            if known:  # somebody else has built it while we waited
                return known[-1]
            self._write(folder, version)
            built = folder / "kube-proxy"
            flags = ("-mod=mod", "-trimpath", "-ldflags", _linker_flags(version), "-o", str(built), ".")
            self._go(folder, "build", *flags, seconds=_BUILD_SECONDS)
            return cache.keep(built, f"Go module {_MODULE}@{version}")

    def _write(self, folder: Path, version: str) -> None:
        (folder / "go.mod").write_text("module proxylab.invalid/kube-proxy\n", encoding="utf-8")
        said = json.loads(self._go(folder, "mod", "download", "-json", f"{_MODULE}@{version}", seconds=_BUILD_SECONDS))
        described = json.loads(self._go(folder, "mod", "edit", "-json", said["GoMod"], seconds=_ASK_SECONDS))
        (folder / "go.mod").write_text(_go_mod(described, version), encoding="utf-8")
        (folder / "main.go").write_text(_MAIN, encoding="utf-8")

    def _go(self, folder: Path, *words: str, seconds: float) -> str:
        return run_go(self.go, folder, words, seconds)


def run_go(go: str, folder: Path, words: Sequence[str], seconds: float, extra: Mapping[str, str] | None = None) -> str:
    """What a go command prints. Raises ``CapabilityError``, with its last words."""
    what = f"go {' '.join(words[:2])}"
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", **(extra or {})}
    try:
        done = subprocess.run(
            [go, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
    except FileNotFoundError:
        raise CapabilityError("Go, by which kube-proxy is built", "install Go 1.24 or newer") from None
    except subprocess.TimeoutExpired:
        raise CapabilityError(f"a kube-proxy: {what!r} did not end in {seconds:.0f} s", "try again") from None
    if done.returncode != 0:
        said = "\n  ".join((done.stderr or done.stdout).strip().splitlines()[-_TAIL:])
        raise CapabilityError(f"a kube-proxy built by Go: {what!r} failed:\n  {said}\n", "mend what it says")
    return done.stdout


def _go_mod(kubernetes: Mapping[str, Any], version: str) -> str:
    """The go.mod of the main package, from that of kubernetes as ``go mod edit -json`` prints it."""
    published = "v0" + version.removeprefix("v1")
    staging = [each["Old"]["Path"] for each in kubernetes.get("Replace") or ()]
    lines = [
        "module proxylab.invalid/kube-proxy",
        f"go {kubernetes['Go']}",
        f"require {_MODULE} {version}",
        f"require k8s.io/component-base {published}",
        *(f"replace {path} => {path} {published}" for path in staging),
    ]
    return "\n".join(lines) + "\n"


def _linker_flags(version: str) -> str:
    major, minor, _ = version.removeprefix("v").split(".", 2)
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return "-s -w " + " ".join(f"-X {package}.{name}={value}" for package in packages for name, value in values.items())
