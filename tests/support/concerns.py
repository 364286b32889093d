"""What few changes concern, so that ``./dev test`` runs its tests only when a file of it changed, and with ``--all``.

Each concern is a marker of tests. As a command this prints the markers whose tests may be left out, one a line, and
says so on standard error. A branch is compared with where it left the main branch. The main branch is compared with its
last commit where a file differs from it, and else with the commit before: of a merge, with main before it.
``PROXYLAB_TESTS_SINCE`` names another commit, such as the one that a push of several commits began with. Where there is
none of these, as in a clone of one commit, all tests run.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from proxylab.cli.verbs import VERBS

__all__ = ["CONCERNS", "base_of", "changed_since", "is_concerned", "of_page", "unconcerned"]

ROOT = Path(__file__).resolve().parents[2]

CONCERNS = {
    "browser": (
        "lab/proxylab/report/",
        "lab/proxylab/features/graph/svg.py",
        "tests/browser/",
        "tests/support/browser.py",
    ),
    "completion": ("lab/proxylab/cli/", "lab/proxylab/features/", "tests/kernel/test_standing_lab_commands.py"),
    "dev_script": ("dev", "tests/unit/test_dev.py"),
    "editor": ("lab/proxylab/scenario/", "tests/editor/"),
    "examples": (
        "docs/how-to/add-a-verb.md",
        "lab/proxylab/cli/",
        "lab/proxylab/features/",
        "tests/docs/test_added_verb.py",
        "tests/kernel/test_examples.py",
    ),
    "wheel": (
        "pyproject.toml",
        "lab/proxylab/__init__.py",
        "lab/proxylab/catalogue",
        "lab/proxylab/cli/",
        "lab/proxylab/pytest_plugin/",
        "tests/packaging/",
        "tests/support/installed.py",
    ),
}
"""By marker, the files that its tests concern; a path that ends in a slash is a folder with all that is in it."""


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


def is_concerned(paths: Iterable[str], changed: Iterable[str]) -> bool:
    """Whether one of the changed files is one of the paths, or in one of the folders."""
    return any(file == path or (path.endswith("/") and file.startswith(path)) for file in changed for path in paths)


def unconcerned(changed: Iterable[str]) -> list[str]:
    """The concerns without a changed file."""
    files = [*changed]
    return [concern for concern, paths in CONCERNS.items() if not is_concerned(paths, files)]


def of_page(page: Path) -> list[str]:
    """The files that the commands of a page concern: the page, what types them, and the verbs that they name."""
    modules = {VERBS[verb].module for verb in re.findall(r"proxylab ([a-z]+)", page.read_text()) if verb in VERBS}
    return [
        str(page.relative_to(ROOT)),
        "tests/docs/",
        "tests/support/documents.py",
        *(
            f"lab/{module.removesuffix('.verb').replace('.', '/')}" + ("/" if module.endswith(".verb") else ".py")
            for module in sorted(modules)
        ),
    ]


def _commit(root: Path, name: str) -> str | None:
    return _git(root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")


def _git(root: Path, *arguments: str) -> str | None:
    """What git answers; nothing without git, outside of a clone, and where there is no such commit."""
    try:
        done = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=False, timeout=60)
    except FileNotFoundError:
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def main(base: str | None) -> None:
    base = base or base_of(ROOT)
    left_out = unconcerned(changed_since(base, ROOT)) if base else []
    if left_out:
        told = (
            f"dev: no file of these changed since {base[:10]}, so './dev test --all' tests them: {', '.join(left_out)}"
        )
        sys.stderr.write(f"{told}\n")
    sys.stdout.writelines(f"{each}\n" for each in left_out)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
