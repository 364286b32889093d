"""What the sources of kubernetes in a folder are: their version, their commit, and what was changed since.

A tag says the version, as in Kubernetes' own build (hack/lib/version.sh). Clones without tags are common: forks,
``git clone --depth 1``, unpacked archives. There the sources say the minor version: ``v1.37+COMMIT``.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from proxylab.binaries.commands import run_guarded
from proxylab.errors import BuildError

MAIN: Final = "cmd/kube-proxy/proxy.go"
"""The main package of kube-proxy, in every version."""

_GIT_SECONDS: Final = 60.0
_DIGITS: Final = 14
_DESCRIBED: Final = re.compile(r"v1\.(\d+)\.\d+(?:-\S+)?")
_BASE: Final = "staging/src/k8s.io/component-base/version/base.go"
_MINOR: Final = re.compile(r'DefaultKubeBinaryVersion\s*=\s*"1\.(\d+)"')
_ARCHIVED: Final = re.compile(r'gitCommit\s+(?:string\s+)?=\s*"([0-9a-f]{40})"')
_PUBLISHED: Final = re.compile(
    r"^\s*(?:replace |require )?k8s\.io/\S+ (?:\S+ )?(?:=> \S+ )?v0\.([1-9]\d*)\.\d+", re.MULTILINE
)
_MAIN_BRANCHES: Final = ("upstream/HEAD", "upstream/master", "origin/HEAD", "origin/master", "origin/main")
"""What work on kubernetes begins at: in clones of it, and of a fork with the original as ``upstream``."""
_MOST_AHEAD: Final = 1
"""Between a tag and the minor version in the sources: these are changed after the first tag of a new minor."""


class SourceState(Struct, frozen=True):
    """The state of the sources in a folder.

    Attributes:
        version: such as ``v1.37.2``, ``v1.37.2-dirty`` or ``v1.37+0123456789abcd``.
        commit: in hexadecimals; empty where the folder is in no repository of git.
        dirty: whether a file was changed or added since; ``None`` without a commit, or if git does not say.
    """

    version: str
    commit: str = ""
    dirty: bool | None = None


def state_of(folder: Path, version: str = "") -> SourceState:
    """The state of the sources in a folder. ``version`` is that at their commit, where it is known.

    Raises:
        BuildError: nothing says their version.
    """
    # A repository around the folder may not have it among its files.
    tracked = _git(folder, "ls-files", "--error-unmatch", MAIN) is not None
    commit = (_git(folder, "rev-parse", "HEAD") or "") if tracked else ""
    status = _git(folder, "status", "--porcelain", "--", ".") if commit else None
    dirty = None if status is None else bool(status)
    minor = max(_minors(folder), default=None)
    version = version or (_described(folder, minor) if commit else "")
    if not version:
        commit = commit or _archived(folder)
        if minor is None:
            what = "nothing says their version: no tag v1.X.Y, no staging module component-base, and not go.mod"
            raise BuildError(str(folder), what, "tag the commit, such as `git tag v1.37.0`, or clone with --tags")
        version = f"v1.{minor}+{commit[:_DIGITS] or 'unknown'}"
    return SourceState(version + ("-dirty" if dirty else ""), commit, dirty)


class Changes(Struct, frozen=True):
    """The files of a work tree that differ from its base.

    Attributes:
        base: the commit that the work began at; empty where none is known, and the files are the uncommitted ones.
        files: the paths of changed, added and deleted files below the work tree.
    """

    base: str
    files: tuple[str, ...]


def changes_of(folder: Path, base: str = "") -> Changes | None:
    """What a work tree changes: its commits since its base, what is uncommitted, and new files that git ignores not.

    ``None`` where the folder is in no repository. Without a ``base`` it is the nearest of the last tag of a release and
    the merge bases with main branches of remotes.

    Raises:
        ValueError: the work tree shares no commit with ``base``.
    """
    if _git(folder, "rev-parse", "HEAD") is None:
        return None
    if base:
        found = _git(folder, "merge-base", base, "HEAD")
        if not found:
            raise ValueError(f"{folder} has no commit {base!r} in its history; `git -C {folder} fetch` may get it")
    else:
        named = (_git(folder, "describe", "--tags", "--match=v1.*", "--abbrev=0", "HEAD"), *_MAIN_BRANCHES)
        bases = {_git(folder, "merge-base", each, "HEAD") for each in named if each} - {None, ""}
        commits = {each: _git(folder, "rev-list", "--count", f"{each}..HEAD") for each in bases if each}
        found = min(((int(number), each) for each, number in commits.items() if number), default=(0, ""))[1]
    changed = _git(folder, "diff", "--name-only", "-z", "--no-renames", "--relative", found or "HEAD", "--", ".") or ""
    added = _git(folder, "ls-files", "--others", "--exclude-standard", "-z", "--", ".") or ""
    return Changes(found, tuple(sorted({*changed.split("\0"), *added.split("\0")} - {""})))


def _described(folder: Path, minor: int | None) -> str:
    """The version by the last tag; empty if there is none of Kubernetes."""
    described = _git(folder, "describe", "--tags", "--match=v1.*", f"--abbrev={_DIGITS}", "HEAD") or ""
    found = _DESCRIBED.fullmatch(described)
    if found is None or (minor is not None and abs(int(found[1]) - minor) > _MOST_AHEAD):
        return ""  # a project around it, and a fork, may number its own releases
    # Commits after a tag extend a prerelease by a number, or make a prerelease; their hash becomes metadata.
    if described.count("-") >= 3:
        return re.sub(r"-([0-9]+)-g([0-9a-f]{14})$", r".\1+\2", described)
    return re.sub(r"-g([0-9a-f]{14})$", r"+\1", described)


def _minors(folder: Path) -> Iterator[int]:
    """The minor versions that the sources name, from the first kind of file that names one."""
    found = _MINOR.findall(_text(folder / _BASE)) or _PUBLISHED.findall(_text(folder / "go.mod"))
    if not found:  # before 1.31
        found = [each.stem.partition("-1.")[2] for each in folder.glob("CHANGELOG/CHANGELOG-1.*.md")]
    return (int(each) for each in found if each.isdecimal())


def _archived(folder: Path) -> str:
    """The commit that ``git archive`` has written into the sources."""
    found = _ARCHIVED.search(_text(folder / _BASE))
    return found[1] if found else ""


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _git(folder: Path, *words: str) -> str | None:
    """The output of a git command, which writes nothing; ``None`` where it fails."""
    try:
        done = run_guarded(
            ("git", "-C", folder, *words),
            seconds=_GIT_SECONDS,
            environment={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.output.decode(errors="replace").strip() if done.status == 0 else None
