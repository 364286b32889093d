"""kube-proxy built from a user's checkout of kubernetes.

The checkout stays unchanged: ``go build`` writes nothing into it, and the linker sets the version.
"""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from msgspec import Struct

from proxylab.binaries.binary import Binary
from proxylab.binaries.cache import Cache
from proxylab.binaries.go import BUILD_SECONDS, linker_flags, run_go

__all__ = ["CheckoutSource", "is_checkout"]

_GIT_SECONDS: Final = 60.0
_DESCRIBED: Final = re.compile(r"v\d+\.\d+\.\d+(?:-\S+)?")


def is_checkout(path: Path) -> bool:
    """Whether a folder is a checkout of kubernetes."""
    return (path / "cmd" / "kube-proxy" / "proxy.go").is_file() and (path / "go.mod").is_file()


class CheckoutSource(Struct, frozen=True):
    """Builds a work tree, with its uncommitted changes."""

    folder: Path
    go: str = "go"

    def obtain(self, cache: Cache) -> Binary:
        """Build it. Go's own build cache makes the second build quick.

        Go caches no linked binary, but by the build ID it leaves an up-to-date output file as it is. So this puts the
        last built binary at the output path first. Raises ``CapabilityError``.
        """
        folder = self.folder.absolute()
        with cache.workspace(f"checkout {folder}") as working:
            built, origin = working / "kube-proxy", f"built in {folder}"
            if (last := cache.of_origin(origin)) is not None:
                shutil.copy(last.path, built)
            version = self._version(folder)
            flags = ("-trimpath", "-ldflags", linker_flags(version), "-o", str(built), "./cmd/kube-proxy")
            run_go(self.go, folder, ("build", *flags), BUILD_SECONDS)
            return cache.keep(built, origin)

    def _version(self, folder: Path) -> str:
        """The version as Kubernetes' build derives it from git (hack/lib/version.sh); without git, only the minor."""
        described = _git(folder, "describe", "--tags", "--match=v*", "--abbrev=14", "HEAD")
        if not _DESCRIBED.fullmatch(described):
            return _without_git(folder)
        # Commits after a tag extend a prerelease by a number, or make a prerelease; their hash becomes metadata.
        if described.count("-") >= 3:
            described = re.sub(r"-([0-9]+)-g([0-9a-f]{14})$", r".\1+\2", described)
        else:
            described = re.sub(r"-g([0-9a-f]{14})$", r"+\1", described)
        return described + ("-dirty" if _git(folder, "status", "--porcelain", "--untracked-files=no") else "")


def _git(folder: Path, *words: str) -> str:
    """The output of a git command; empty where it fails."""
    try:
        done = subprocess.run(
            ["git", "-C", folder, *words], capture_output=True, text=True, timeout=_GIT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _without_git(folder: Path) -> str:
    try:
        text = (folder / "staging/src/k8s.io/component-base/version/base.go").read_text(encoding="utf-8")
    except OSError:
        text = ""
    found = re.search(r'DefaultKubeBinaryVersion\s*=\s*"(\d+\.\d+)"', text)
    return f"v{found[1]}.0-unknown" if found else "v1.0.0-unknown"
