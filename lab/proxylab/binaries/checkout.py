"""kube-proxy built from somebody's checkout of kubernetes.

Owns: ``CheckoutSource``.
Must not: change the checkout. ``go build`` writes nothing into it, and the version is set by the linker.
"""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from proxylab.binaries.binary import Binary
from proxylab.binaries.cache import Cache
from proxylab.binaries.go import BUILD_SECONDS, linker_flags, run_go
from proxylab.frozen import dataclass

__all__ = ["CheckoutSource", "is_checkout"]

_GIT_SECONDS: Final = 60.0
_DESCRIBED: Final = re.compile(r"v\d+\.\d+\.\d+(?:-\S+)?")


def is_checkout(path: Path) -> bool:
    """Whether a folder is a checkout of kubernetes."""
    return (path / "cmd" / "kube-proxy" / "proxy.go").is_file() and (path / "go.mod").is_file()


@dataclass(frozen=True, slots=True)
class CheckoutSource:
    """Builds what is in a work tree, with what is not committed in it."""

    folder: Path
    go: str = "go"

    def obtain(self, cache: Cache) -> Binary:
        """Build it. Go's own build cache makes the second time quick.

        What Go has linked it keeps nowhere but where the last output lies: found there, a binary that is up to date
        stays as it is, by the build ID in it.

        Raises:
            CapabilityError: with the last lines of what Go said.
        """
        folder = self.folder.absolute()
        with cache.workspace(f"checkout {folder}") as working:
            built, origin = working / "kube-proxy", f"built in {folder}"
            if (last := _last_of(cache, origin)) is not None:
                shutil.copy(last, built)
            version = self._version(folder)
            flags = ("-trimpath", "-ldflags", linker_flags(version), "-o", str(built), "./cmd/kube-proxy")
            run_go(self.go, folder, ("build", *flags), BUILD_SECONDS)
            return cache.keep(built, origin)

    def _version(self, folder: Path) -> str:
        """As Kubernetes' own build derives it from git (hack/lib/version.sh); without git, the minor and no more."""
        described = _git(folder, "describe", "--tags", "--match=v*", "--abbrev=14", "HEAD")
        if not _DESCRIBED.fullmatch(described):
            return _without_git(folder)
        # Commits after a tag are a further number of a prerelease, or a prerelease themselves; their hash is metadata.
        if described.count("-") >= 3:
            described = re.sub(r"-([0-9]+)-g([0-9a-f]{14})$", r".\1+\2", described)
        else:
            described = re.sub(r"-g([0-9a-f]{14})$", r"+\1", described)
        return described + ("-dirty" if _git(folder, "status", "--porcelain", "--untracked-files=no") else "")


def _last_of(cache: Cache, origin: str) -> Path | None:
    """What was built last in a folder, as far as it is still there."""
    built = [binary.path for binary in cache.binaries() if binary.origin == origin]
    return max(built, key=lambda path: path.stat().st_mtime_ns, default=None)


def _git(folder: Path, *words: str) -> str:
    """What a git command prints; nothing where it fails."""
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
