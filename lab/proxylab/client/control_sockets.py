"""Where the doors of standing labs are: sockets by name, in a folder that is its owner's alone.

Owns: the folder, claiming and finding names in it, and clearing away what a lab that was killed has left there.
Must not: know what is said at a door.

Theory of operation. A door is a Unix socket that the lab process listens on, and its name is a file in the folder,
which both must be for its owner only: the kernel then lets nobody else connect (unix(7)). Who starts a lab claims the
name before anything is built; so it is taken from the first moment, and a connection waits until somebody accepts it.
A name whose socket nobody has open refuses connections, and belongs to nobody any more. Its keeper takes a name away
when its lab is over; only a keeper that was killed cannot. A lock on the folder keeps those who look for such names
from taking one away that is just being claimed.
"""

import errno
import fcntl
import os
import re
import signal
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self

from proxylab.errors import CapabilityError

__all__ = ["SUPERVISOR_SUFFIX", "ControlSocket", "ControlSockets", "NameTakenError", "NoSuchLabError", "is_name"]

SUPERVISOR_SUFFIX: Final = ".keeper"
"""Of the file that names the supervisor of a control socket; the supervisor takes both away (``kernel.sandbox``)."""

_SUFFIX: Final = ".sock"
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_WAITING: Final = 64


class NameTakenError(Exception):
    """A lab of that name stands."""


class NoSuchLabError(Exception):
    """No lab of that name stands."""


def is_name(text: str) -> bool:
    """Whether a lab can be called so: up to 63 lower-case letters, digits, dots and hyphens, as a scenario's name."""
    return _NAME.fullmatch(text) is not None


class ControlSocket:
    """A socket that a lab process is born with. It has no name until one is claimed for it."""

    def __init__(self, control_sockets: "ControlSockets") -> None:
        self._control_sockets = control_sockets
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.folder = os.open(control_sockets.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.name = ""

    def claim(self, name: str) -> None:
        """Give it a name, and let connections wait. Raises ``NameTakenError``."""
        with self._control_sockets.locked():
            self._control_sockets.clear(name)
            os.fchmod(self.socket.fileno(), 0o600)  # which bind(2) gives to the file
            try:
                # A path of any length: sun_path has room for 107 bytes only.
                self.socket.bind(f"/proc/self/fd/{self.folder}/{name}{_SUFFIX}")
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    raise NameTakenError(name) from None
                raise
            self.socket.listen(_WAITING)
        self.name = name

    def tell_supervisor(self, pid: int) -> None:
        """Note beside the name which process can end the lab, should the lab itself not answer."""
        with suppress(OSError):
            self._control_sockets.supervisor_file(self.name).write_text(f"{pid} {_began(pid)}\n", encoding="ascii")

    def close(self) -> None:
        """Let go of the socket; the lab process has its own."""
        self.socket.close()
        if self.folder >= 0:
            os.close(self.folder)
            self.folder = -1

    def give_up(self) -> None:
        """Let go of it together with its name: no lab came to stay."""
        if self.name:
            with suppress(OSError):
                os.unlink(self.name + _SUFFIX, dir_fd=self.folder)
        self.close()


class ControlSockets:
    """The doors of one user's labs."""

    def __init__(self, folder: Path) -> None:
        """Those in ``folder``, which is made if need be. Raises ``CapabilityError`` if it is not this user's alone."""
        self.folder = folder
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise CapabilityError(
                f"a private directory for standing labs ({folder} is not this user's alone)",
                "remove it, or set XDG_RUNTIME_DIR to a directory of your own with mode 0700",
            )

    @classmethod
    def of_user(cls) -> Self:
        """Those of whoever asks: below XDG_RUNTIME_DIR, or else below the directory for temporary files."""
        runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
        if runtime.is_absolute() and runtime.is_dir() and runtime.stat().st_uid == os.geteuid():
            return cls(runtime / "proxylab")
        return cls(Path(tempfile.gettempdir()) / f"proxylab-{os.geteuid()}")

    def names(self) -> list[str]:
        """The labs that stand; what killed ones have left is cleared away on the way."""
        with self.locked():
            found = sorted(each.name.removesuffix(_SUFFIX) for each in self.folder.glob(f"*{_SUFFIX}"))
            return [name for name in found if not self.clear(name)]

    def connect(self, name: str, seconds: float = 5.0) -> socket.socket:
        """A connection to the lab of that name. Raises ``NoSuchLabError``, or ``TimeoutError`` if it takes none."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(seconds)
        try:
            with self._opened() as folder:
                connection.connect(f"/proc/self/fd/{folder}/{name}{_SUFFIX}")
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            raise NoSuchLabError(name) from None
        except BlockingIOError:  # EAGAIN: the queue of those that wait is full (connect(2)); a timeout does not count
            connection.close()
            raise TimeoutError(f"the lab {name} takes no more connections") from None
        except BaseException:
            connection.close()
            raise
        return connection

    def is_taken(self, name: str) -> bool:
        """Whether the name is still there."""
        return (self.folder / f"{name}{_SUFFIX}").exists()

    def clear(self, name: str) -> bool:
        """Take a name away that nobody answers to; whether it was one. To be called while the folder is ``locked``."""
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        probe.setblocking(False)
        with probe, self._opened() as folder:
            try:
                probe.connect(f"/proc/self/fd/{folder}/{name}{_SUFFIX}")
            except FileNotFoundError:
                return False
            except ConnectionRefusedError:
                for each in (name + SUPERVISOR_SUFFIX, name + _SUFFIX):  # the name last, for which others wait
                    with suppress(FileNotFoundError):
                        os.unlink(each, dir_fd=folder)
                return True
            except BlockingIOError:
                return False  # so many wait there already that somebody must be meant to answer
        return False

    def supervisor_file(self, name: str) -> Path:
        """Where it is noted which process keeps a lab."""
        return self.folder / f"{name}{SUPERVISOR_SUFFIX}"

    def kill(self, name: str) -> bool:
        """Have the keeper of a lab that does not answer end it by force; whether there was one."""
        try:
            pid, began = self.supervisor_file(name).read_text(encoding="ascii").split()
        except (OSError, ValueError):
            return False
        if _began(int(pid)) != began:
            return False  # another process by now
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGTERM)
        return True

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep everybody else from claiming and clearing."""
        with self._opened() as folder:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _opened(self) -> Iterator[int]:
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield folder
        finally:
            os.close(folder)


def _began(pid: int) -> str:
    """When a process began, in ticks since boot: with its number it is that process and no other (proc(5))."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
