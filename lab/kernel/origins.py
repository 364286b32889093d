"""Where things of this process were made, for whoever finds one that should be gone.

Owns: the line of code that made a socket, the one that a thread is at, and ``here``, the line for anything else.
Must not: keep alive what it knows; it forgets a thing with the thing.

A descriptor that is left over says what it is and not who made it, and the maker has long returned. So the makers are
noted while they make: the interpreter announces every socket to its audit hooks (PEP 578; ``socket.__new__``), which
costs some microseconds. A hook cannot be taken out again, so a process has one, from its start.
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

__all__ = ["Origins", "here", "whereabouts"]

_STANDARD: Final = str(Path(os.__file__).parent) + os.sep
_INSTALLED: Final = ("/site-packages/", "/dist-packages/")
_PACKAGE: Final = str(Path(__file__).resolve().parents[1]) + os.sep
_ROOT: Final = str(Path(__file__).resolve().parents[2]) + os.sep
_BETWEEN: Final = frozenset({__file__, str(Path(__file__).with_name("netns.py"))})
"""Modules through which everything is made, and which therefore say nothing."""


class Origins:
    """Who made the sockets that this process has, and what its threads do."""

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[socket.socket, tuple[str, int]] = WeakKeyDictionary()

    def watch(self) -> None:
        """Note what is made from now on, for the rest of the process's life."""
        sys.addaudithook(self._note)

    def of_descriptor(self, number: int) -> str:
        """The line that made the socket with that descriptor; empty when it is not known."""
        return next((_words(*line) for made, line in list(self._made.items()) if made.fileno() == number), "")

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "socket.__new__":
            self._made[arguments[0]] = _line(_caller())


def whereabouts(thread: threading.Thread) -> str:
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
    """The line that called the caller, such as ``lab/kernel/realise.py:72``."""
    return _words(*_line(_caller(2)))


def _line(frame: FrameType | None) -> tuple[str, int]:
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
