"""kube-proxy built from a user's sources of kubernetes: a clone, or the source of the Go module.

The folder stays unchanged: ``go build`` writes nothing into it, and the linker sets version and commit. What is built
lies in a part of the cache for the commit, by the digest of its bytes. It never stands for a version.

The source of the module k8s.io/kubernetes lacks the staging modules, by which its go.mod replaces others. So it is
built with another go.mod, which has those that were published with it (v0.37.2 for v1.37.2).
"""

import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from proxylab.binaries.binary import Binary
from proxylab.binaries.cache import Cache
from proxylab.binaries.commands import FailedCommandError
from proxylab.binaries.go import ASK_SECONDS, BUILD_SECONDS, linker_flags, run_go
from proxylab.binaries.source_state import MAIN, SourceState, state_of
from proxylab.errors import BuildError, CapabilityError
from proxylab.evidence.words import amount

_STAGED: Final = re.compile(r"(?P<path>\S+)(?P<old> v\S+)? => (?P<folder>\./\S+)")
_OF_MODULE: Final = re.compile(r"kubernetes@(v1\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?)")
_CURE: Final = (
    "clone https://github.com/kubernetes/kubernetes, which has them; the source of the Go module lacks all, and is "
    "built where its folder says its version, such as kubernetes@v1.37.2"
)
_NO_STAMP: Final = "-buildvcs=false"
"""No information of version control: the linker sets what kube-proxy prints, and the folder may be in no repository."""


def is_checkout(path: Path) -> bool:
    """Whether a folder has the sources of kubernetes."""
    return (path / MAIN).is_file() and (path / "go.mod").is_file()


class _Recipe(Struct, frozen=True):
    """How sources are built: what they are, further flags, and the environment besides the user's own.

    ``settings`` are those of Go by which the build has more than the folder and its commit say, in words.
    """

    sources: SourceState
    settings: str
    flags: Sequence[str] = ()
    environment: Mapping[str, str] = {}


class CheckoutSource(Struct, frozen=True):
    """Builds a work tree with its uncommitted changes, in the user's environment: ``GOFLAGS``, go.work and the rest."""

    folder: Path
    go: str = "go"

    def obtain(self, cache: Cache, tell: Callable[[str], None]) -> Binary:
        """Build it. Go's own build cache makes the second build quick.

        Go caches no linked binary, but by the build ID it leaves an up-to-date output file as it is. So this puts the
        last built binary at the output path first.

        Args:
            cache: of binaries.
            tell: gets a line when the build begins.

        Raises:
            BuildError: the sources do not build, or what they build does not run.
            CapabilityError: there is no Go, or no room for a binary.
        """
        folder = self.folder.absolute()
        with cache.workspace(f"checkout {folder}") as working:
            recipe = self._recipe(folder, working)
            sources, origin = recipe.sources, f"built in {folder}{recipe.settings}"
            kept = cache.part(f"checkouts/{sources.commit or 'unknown'}")
            built = working / "kube-proxy"
            if (last := kept.of_origin(origin)) is not None:
                shutil.copy(last.path, built)
            where = origin.removeprefix("built ")
            tell(f"building kube-proxy {sources.version} {where}; Go's cache makes the next time quick")
            flags = linker_flags(sources.version, sources.commit, dirty=sources.dirty)
            words = ("build", *recipe.flags, _NO_STAMP, "-trimpath", "-ldflags", flags, "-o", str(built))
            self._run(folder, (*words, "./cmd/kube-proxy"), BUILD_SECONDS, recipe.environment)
            try:
                return kept.keep(built, origin, sources.commit, dirty=sources.dirty)
            except CapabilityError as error:
                raise BuildError(str(folder), "what they build does not run", error.missing) from error

    def _run(self, folder: Path, words: Sequence[str], seconds: float, environment: Mapping[str, str]) -> str:
        """The output of a go command in the folder. Raises ``BuildError``, and ``CapabilityError`` without Go."""
        try:
            return run_go(self.go, folder, words, seconds, environment=environment)
        except FailedCommandError as error:
            raise BuildError(str(folder), f"'go {words[0]}' failed", error.printed) from None

    def _recipe(self, folder: Path, working: Path) -> _Recipe:
        """How to build the sources. Raises ``BuildError`` if they cannot be built."""
        found = json.loads(self._run(folder, ("env", "-json", "GOFLAGS", "GOWORK"), ASK_SECONDS, {}))
        flags = " ".join(each for each in found["GOFLAGS"].split() if each != _NO_STAMP)
        work = "" if found["GOWORK"] == "off" or Path(found["GOWORK"]).is_relative_to(folder) else found["GOWORK"]
        named = (f" with GOFLAGS={flags}" if flags else "", f" with the workspace {work}" if work else "")
        settings = "".join(named)

        go_mod = (folder / "go.mod").read_text(encoding="utf-8")
        staged = {each["path"]: folder / each["folder"] for each in _STAGED.finditer(go_mod)}
        missing = [each for each in staged.values() if not (each / "go.mod").is_file()]
        version = _OF_MODULE.search(folder.name)
        if not missing or work:  # a workspace around the folder may have what it lacks
            return _Recipe(state_of(folder, version[1] if missing and version else ""), settings)
        if len(missing) < len(staged) or version is None:
            lacks = f"their go.mod needs {amount(len(missing), 'folder')} that they lack, such as {missing[0]}"
            raise BuildError(str(folder), lacks, _CURE)
        published = "v0" + version[1].removeprefix("v1")
        (working / "go.mod").write_text(_STAGED.sub(rf"\g<path>\g<old> => \g<path> {published}", go_mod), "utf-8")
        shutil.copyfile(folder / "go.sum", working / "go.sum")
        # Go takes no other go.mod in a workspace. That of kubernetes names the staging modules, too.
        other = (f"-modfile={working / 'go.mod'}", "-mod=mod")
        return _Recipe(state_of(folder, version[1]), settings, other, {"GOWORK": "off"})
