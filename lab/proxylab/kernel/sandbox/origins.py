"""The line of code that made a socket, opened a file or keeps a thread, for the report on leftovers.

A leftover descriptor says what it is and not which code made it, and that code has long returned. So ``Origins`` notes
the line at the moment of making: the interpreter announces every socket and file to its audit hooks (PEP 578;
``socket.__new__``, ``open``), which costs some microseconds. ``Origins`` ignores files below /proc, since a lab writes
its thousand sysctls there. The interpreter announces no pipes and threads. A hook cannot be removed, so a process
installs one at its start.

``Origins`` keeps nothing alive: it forgets a socket with the socket, and all but the latest files.
"""

import inspect
import os
import socket
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, Final
from weakref import WeakKeyDictionary

import proxylab

_Line = tuple[str, int]
"""A file and the number of a line in it."""

_STANDARD: Final = str(Path(os.__file__).parent) + os.sep
_INSTALLED: Final = ("/site-packages/", "/dist-packages/")
_PACKAGE: Final = str(Path(proxylab.__file__).resolve().parent) + os.sep
_ROOT: Final = str(Path(proxylab.__file__).resolve().parents[1]) + os.sep
_MOST_FILES: Final = 256
_SKIPPED_FILES: Final = frozenset({__file__, str(Path(__file__).with_name("netns.py"))})
"""Modules that make things for all others; a line in them says nothing."""


class Origins:
    """The lines that made this process's sockets and opened its files."""

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[socket.socket, _Line] = WeakKeyDictionary()
        self._opened: dict[str, _Line] = {}

    def watch(self) -> None:
        """Note every socket and file from now on, for the rest of the process's life."""
        sys.addaudithook(self._note)

    def of_descriptor(self, number: int, target: str) -> str:
        """The line that made a descriptor; empty when unknown.

        ``target`` is its link in /proc/self/fd: of a file its path, for which the latest opening counts.
        """
        line = next((line for made, line in list(self._made.items()) if made.fileno() == number), None)
        line = line or self._opened.get(target)
        return _words(*line) if line else ""

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "socket.__new__":
            self._made[arguments[0]] = _line(_caller())
        elif event == "open" and _is_file(arguments[0]):
            self._note_file(arguments[0], _line(_caller()))

    def _note_file(self, path: str, line: _Line) -> None:
        self._opened.pop(path, None)  # so that it goes to the end
        self._opened[path] = line
        if len(self._opened) > _MOST_FILES:
            del self._opened[next(iter(self._opened))]


def _is_file(path: object) -> bool:
    """Whether /proc/self/fd shows this path, and the file is none of /proc."""
    return isinstance(path, str) and path.startswith("/") and not path.startswith("/proc/")


def current_line(thread: threading.Thread) -> str:
    """The line that a thread executes now; empty when it has ended."""
    frame = None if thread.ident is None else sys._current_frames().get(thread.ident)  # noqa: SLF001 - the one way
    return "" if frame is None else _words(*_line(frame))


def _caller(above: int = 1) -> FrameType | None:
    """The frame that called the caller of this function, or one ``above`` that."""
    frame = inspect.currentframe()
    for _ in range(above + 1):
        frame = None if frame is None else frame.f_back
    return frame


def here() -> str:
    """The line that called the caller, such as ``proxylab/kernel/netlink/build.py:72``."""
    return _words(*_line(_caller(2)))


def _line(frame: FrameType | None) -> _Line:
    """The nearest line outside the standard library, other packages and the files of ``_SKIPPED_FILES``."""
    nearest = frame
    while frame is not None:
        file = frame.f_code.co_filename
        if file not in _SKIPPED_FILES and not file.startswith("<") and not _is_foreign_code(file):
            return file, frame.f_lineno
        frame = frame.f_back
    return ("", 0) if nearest is None else (nearest.f_code.co_filename, nearest.f_lineno)


def _is_foreign_code(file: str) -> bool:
    """Whether a file belongs to the standard library or to another package."""
    if file.startswith(_PACKAGE):
        return False
    return file.startswith(_STANDARD) or any(each in file for each in _INSTALLED)


def _words(file: str, line: int) -> str:
    return f"{file.removeprefix(_ROOT)}:{line}"
