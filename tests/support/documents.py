"""The project's pages as programs: files to write, commands to type, and their expected output.

A fenced block of ``yaml title="NAME"`` is a file. In a ``console`` block a line that begins with ``$ `` is a command,
and what follows up to the next one is what it prints. Numbers, chains' hashes and spaces may differ, and a line ``...``
stands for any lines; where a page shows nothing of what is printed, the command has to succeed.
"""

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "ROOT",
    "Command",
    "File",
    "clone_of_a_reader",
    "matches",
    "needs_a_checkout",
    "pages",
    "play",
    "steps",
    "untyped",
    "with_outputs",
]

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```(\w*) ?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'title="([^"]+)"')
_NUMBER = re.compile(r"\d[\d,.]*")
_HASH = re.compile(r"-([A-Z0-9]{16}\b|[A-Z0-9]{6}…)")  # of a chain: which endpoint comes first is up to chance
_ANYTHING = "..."
_CHECKOUT = re.compile(r"[~.]/kubernetes\b")
_DEV = """#!/bin/sh
exec "$@"
"""


@dataclass(frozen=True)
class File:
    """A file that the reader writes."""

    name: str
    text: str


@dataclass(frozen=True)
class Command:
    """A command and its output on the page; ``span`` is the position of that output."""

    line: int
    text: str
    output: tuple[str, ...]
    span: tuple[int, int]

    @property
    def words(self) -> str:
        """The command without the remark behind it."""
        return self.text.partition("  #")[0].rstrip()


def pages() -> list[Path]:
    """Every page for users, and the one for contributors."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def clone_of_a_reader(folder: Path) -> None:
    """Give the folder what a page expects of a clone; everything is installed already."""
    (folder / "docs").symlink_to(ROOT / "docs")
    (folder / "dev").write_text(_DEV)
    (folder / "dev").chmod(0o755)


def needs_a_checkout(command: Command) -> bool:
    """Whether the command needs a checkout of kubernetes. ``tests/engines/test_checkout.py`` has one, and types it."""
    return _CHECKOUT.search(command.text) is not None


def steps(text: str) -> Iterator[File | Command]:
    """The files to write and the commands to type, in order."""
    for block in _BLOCK.finditer(text):
        language, info, body = block.groups()
        title = _TITLE.search(info)
        if title:
            yield File(title[1], body)
        elif language == "console":
            yield from _commands(text, block.start(3), body)


def untyped(text: str) -> Iterator[tuple[str, str]]:
    """Blocks without commands: the language of each, and its text."""
    for block in _BLOCK.finditer(text):
        language, info, body = block.groups()
        if language != "console" and not _TITLE.search(info):
            yield language, body


def _commands(text: str, start: int, body: str) -> Iterator[Command]:
    at = start
    command: str | None = None
    output: list[str] = []
    begin = line = 0
    for each in body.splitlines(keepends=True):
        continued = command is not None and command.endswith("\\") and not output
        if each.startswith("$ ") and not continued:
            if command is not None:
                yield Command(line, command, tuple(output), (begin, at))
            command, output, line = each[2:].rstrip("\n"), [], text.count("\n", 0, at) + 1
            begin = at + len(each)
        elif continued:
            command = f"{command}\n{each.rstrip()}"
            begin = at + len(each)
        else:
            output.append(each.rstrip("\n"))
        at += len(each)
    if command is not None:
        yield Command(line, command, tuple(output), (begin, at))


def play(
    command: Command, folder: Path, environment: dict[str, str], *, seconds: float = 100
) -> subprocess.CompletedProcess[str]:
    """Type a command there; both of its outputs come in the order in which it printed them."""
    return subprocess.run(
        ["bash", "-c", command.text],
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )


def matches(expected: Sequence[str], printed: Sequence[str]) -> bool:
    """Whether the words are those of the page, apart from numbers and what ``...`` stands for.

    Numbers of other length wrap lines elsewhere, so the ends of lines do not count. The golden screens hold these.
    """
    return re.fullmatch("".join(map(_pattern, expected)), "".join(map(_words, printed))) is not None


def _words(line: str) -> str:
    return "".join(f"{word} " for word in _NUMBER.sub("0", _HASH.sub("-HASH", line)).split())


def _pattern(line: str) -> str:
    return r"(?:\S+ )*?" if line.strip() == _ANYTHING else re.escape(_words(line))


def with_outputs(text: str, outputs: Sequence[tuple[Command, str]]) -> str:
    """The page with the real output of its commands; outputs with ``...`` stay as they are."""
    for command, printed in reversed(outputs):
        if command.output and _ANYTHING not in (line.strip() for line in command.output):
            begin, end = command.span
            text = text[:begin] + printed.rstrip("\n") + "\n" + text[end:]
    return text
