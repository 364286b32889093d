"""Where things of this process were made, for whoever finds one that should be gone.

Owns: the line of code that made a socket or opened a file, the one that a thread is at, and ``here``, the line for
anything else.
Must not: keep alive what it knows; it forgets a thing with the thing, and all but the last files.

A descriptor that is left over says what it is and not who made it, and the maker has long returned. So the makers are
noted while they make: the interpreter announces every socket and file to its audit hooks (PEP 578;
``socket.__new__``, ``open``), which costs some microseconds. Files below /proc are left alone, since a lab writes its
thousand sysctls there; pipes and threads are announced to nobody. A hook cannot be taken out
again, so a process has one, from its start.
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

__all__ = ["Origins", "current_line", "here"]

_Line = tuple[str, int]
"""A file and the number of a line in it."""

_STANDARD: Final = str(Path(os.__file__).parent) + os.sep
_INSTALLED: Final = ("/site-packages/", "/dist-packages/")
_PACKAGE: Final = str(Path(__file__).resolve().parents[1]) + os.sep
_ROOT: Final = str(Path(__file__).resolve().parents[2]) + os.sep
_MOST_FILES: Final = 256
_BETWEEN: Final = frozenset({__file__, str(Path(__file__).with_name("netns.py"))})
"""Modules through which everything is made, and which therefore say nothing."""


class Origins:
    """Who made the sockets that this process has, and who opened files."""

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[socket.socket, _Line] = WeakKeyDictionary()
        self._opened: dict[str, _Line] = {}

    def watch(self) -> None:
        """Note what is made from now on, for the rest of the process's life."""
        sys.addaudithook(self._note)

    def of_descriptor(self, number: int, target: str) -> str:
        """The line that made a descriptor; empty when it is not known.

        Args:
            number: the descriptor.
            target: what it is by /proc/self/fd: of a file its path, which somebody was the last to open.
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
    """Whether a path is one that /proc/self/fd would tell, of a file whose opening is worth a note."""
    return isinstance(path, str) and path.startswith("/") and not path.startswith("/proc/")


def current_line(thread: threading.Thread) -> str:
    """The line that a thread is at, which tells what keeps it; empty when it has ended."""
    frame = None if thread.ident is None else sys._current_frames().get(thread.ident)  # noqa: SLF001 - the one way
    return "" if frame is None else _words(*_line(frame))


def _caller(above: int = 1) -> FrameType | None:
    """The frame that called the caller of this function, or one further up."""
    frame = inspect.currentframe()
    for _ in range(above + 1):
        frame = None if frame is None else frame.f_back
    return frame


def here() -> str:
    """The line that called the caller, such as ``lab/proxylab/kernel/netlink/build.py:72``."""
    return _words(*_line(_caller(2)))


def _line(frame: FrameType | None) -> _Line:
    """The nearest line that is neither the standard library's nor one through which everything is made."""
    nearest = frame
    while frame is not None:
        file = frame.f_code.co_filename
        if file not in _BETWEEN and not file.startswith("<") and not _is_borrowed(file):
            return file, frame.f_lineno
        frame = frame.f_back
    return ("", 0) if nearest is None else (nearest.f_code.co_filename, nearest.f_lineno)


def _is_borrowed(file: str) -> bool:
    """Whether it is the standard library's, or another package's."""
    if file.startswith(_PACKAGE):
        return False
    return file.startswith(_STANDARD) or any(each in file for each in _INSTALLED)


def _words(file: str, line: int) -> str:
    return f"{file.removeprefix(_ROOT)}:{line}"
