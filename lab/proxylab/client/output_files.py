"""Writes the files that a user asked for: a whole one, or none and the reason.

A regular file is written beside its place and renamed, so a full disk or a killed process leaves the earlier file and
no half of a new one. What is no regular file, such as /dev/stdout or a FIFO of another program, is written directly.
"""

import os
import select
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from proxylab.errors import OutputError

_READER_SECONDS: Final = 60.0
"""For how long a program may read nothing of a FIFO."""

_PART: Final = 65536


def write_whole(file: Path, text: str) -> None:
    """Write ``text`` as the content of ``file``, whose folder is made if need be.

    Raises:
        OutputError: it cannot be written. A regular file that was there stays as it was.
    """
    data = text.encode()
    with _told(file):
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(file.stat().st_mode):
                _write_to_program(file, data)
                return
        target = Path(os.path.realpath(file))  # a symbolic link stays one
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False)  # noqa: SIM115
        try:
            with beside:
                beside.write(data)
                beside.flush()
                os.fchmod(beside.fileno(), _mode(target))
            os.replace(beside.name, target)  # noqa: PTH105 - its name is a text
        except BaseException:
            with suppress(OSError):
                os.unlink(beside.name)  # noqa: PTH108
            raise


def why_unwritable(file: Path) -> str:
    """Why ``write_whole`` would fail, as far as a trial shows that now; empty if nothing keeps it from writing.

    What is no regular file says that only when it gets data.
    """
    target = Path(os.path.realpath(file))
    try:
        if target.exists() and not target.is_file():
            return "it is a folder" if target.is_dir() else ""
        folder = next(each for each in target.parents if each.exists())
        tempfile.TemporaryFile(dir=folder, prefix=f".{target.name}.").close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _mode(target: Path) -> int:
    """The mode of the file that is there, or that of a new one."""
    try:
        return stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def _write_to_program(file: Path, data: bytes) -> None:
    """Write to a device, or to a FIFO (fifo(7)) which a program must have open and must go on reading."""
    descriptor = os.open(file, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # ENXIO: no program reads the FIFO
    try:
        view = memoryview(data)
        ends_at = time.monotonic() + _READER_SECONDS
        while view:
            try:
                written = os.write(descriptor, view[:_PART])
            except BlockingIOError:
                if time.monotonic() > ends_at:
                    raise TimeoutError(None, "the program at its other end reads nothing") from None
                select.select([], [descriptor], [], max(0.0, ends_at - time.monotonic()))
                continue
            view, ends_at = view[written:], time.monotonic() + _READER_SECONDS
    finally:
        os.close(descriptor)


@contextmanager
def _told(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(str(file), error.strerror or str(error)) from error
