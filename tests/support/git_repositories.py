"""Small repositories of git."""

import subprocess
from pathlib import Path

__all__ = ["git", "make_repository"]

_AUTHOR = ("-c", "user.name=a test", "-c", "user.email=test@invalid", "-c", "commit.gpgsign=false")


def git(folder: Path, *words: str) -> str:
    """What a git command prints."""
    done = subprocess.run(["git", "-C", folder, *_AUTHOR, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def make_repository(folder: Path, tag: str = "") -> None:
    """Commit every file of a folder to a new repository."""
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "A release")
    if tag:
        git(folder, "tag", tag)
