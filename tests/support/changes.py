"""What changed, and since which commit: what ``./dev test`` chooses its tests by.

A branch is compared with where it left the main branch. The main branch is compared with its last commit where a file
differs from it, and else with the commit before: of a merge, with main before it. ``PROXYLAB_TESTS_SINCE`` names
another commit, such as the one that a push of several commits began with. Where there is none of these, as in a clone
of one commit, all tests run.
"""

import os
import subprocess
from functools import cache
from pathlib import Path

__all__ = ["ROOT", "base_of", "changed_files", "changed_scenarios", "changed_since", "names_a_changed_scenario"]

ROOT = Path(__file__).resolve().parents[2]
_SUFFIX = ".lab.yaml"
_FEW = 12


def base_of(root: Path) -> str | None:
    """The commit to compare with."""
    if (named := os.environ.get("PROXYLAB_TESTS_SINCE")) and (since := _commit(root, named)):
        return since
    head = _commit(root, "HEAD")
    for main in ("origin/HEAD", "origin/main", "main"):
        if (left := _git(root, "merge-base", "HEAD", main)) and left != head:
            return left
    if _git(root, "status", "--porcelain", "--untracked-files=no"):
        return head
    return _commit(root, "HEAD^")


def changed_since(base: str, root: Path) -> list[str]:
    listed = (
        _git(root, "diff", "--name-only", "--no-renames", base),
        _git(root, "ls-files", "--others", "--exclude-standard"),
    )
    return [line for lines in listed for line in (lines or "").splitlines()]


@cache
def changed_files(root: Path = ROOT) -> tuple[str, ...]:
    """The files that changed; none where there is nothing to compare with."""
    base = base_of(root)
    return tuple(changed_since(base, root)) if base else ()


@cache
def changed_scenarios(root: Path = ROOT) -> frozenset[str]:
    """The folders and names of the scenarios that changed: of a folder all, where another file in it has changed."""
    found = set[str]()
    for file in changed_files(root):
        folder, _, place = file.partition("/")
        if folder == "scenarios" and (root / file).exists():
            theme = root / folder / place.partition("/")[0]
            files = [root / file] if file.endswith(_SUFFIX) else theme.glob(f"*{_SUFFIX}")
            found |= {each.relative_to(root / folder).as_posix().removesuffix(_SUFFIX) for each in files}
    return frozenset(found)


def names_a_changed_scenario(name: str, changed: frozenset[str] | None = None) -> bool:
    """Whether the name of a test has the folder and name of a scenario that changed.

    Where many have changed at once it has not: all that is said of them would take longer than everything else.
    """
    places = changed_scenarios() if changed is None else changed
    return len(places) <= _FEW and any(place in name for place in places)


def _commit(root: Path, name: str) -> str | None:
    return _git(root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")


def _git(root: Path, *arguments: str) -> str | None:
    """What git answers; nothing without git, outside of a clone, and where there is no such commit."""
    try:
        done = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=False, timeout=60)
    except FileNotFoundError:
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
