"""The control sockets of standing labs: Unix sockets with names, in a folder that only its owner can enter.

A lab process listens on its control socket, a file in the folder. File and folder belong to the owner alone, so the
kernel lets no other user connect (unix(7)). A client claims the name before the lab is built, so it is taken from the
first moment, and a connection waits until the lab accepts it. A name with a socket that no process has open refuses
connections: its lab is gone. The lab's supervisor removes the name when the lab is over, and notes beside it how a lab
ended that was not asked to; only a killed supervisor cannot. The first client that asks reads the note and removes it.
A lock on the folder keeps a client that removes stale names from removing one that is just being claimed.
"""

import errno
import fcntl
import os
import re
import signal
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self

from proxylab.client.process_states import ASKED_TO_END, StuckProcess, how_it_ended, stuck_process
from proxylab.errors import CapabilityError
from proxylab.timing import Deadline

SUPERVISOR_SUFFIX: Final = ".supervisor"
"""The suffix of the file that names a control socket's supervisor, which removes both (``kernel.sandbox``)."""

ENDED_SUFFIX: Final = ".ended"
"""The suffix of the file in which a supervisor notes its own exit status, if the lab was not asked to end."""

_PAUSE: Final = 0.005
_SUFFIX: Final = ".sock"
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_MOST_WAITING: Final = 256


class NameTakenError(Exception):
    """A lab of that name is running."""


class NoSuchLabError(Exception):
    """No lab of that name is running."""


def is_name(text: str) -> bool:
    """Whether a lab can have this name: up to 63 lower-case letters, digits, dots and hyphens, as a scenario's name."""
    return _NAME.fullmatch(text) is not None


class ControlSocket:
    """The socket with which a lab process starts. It has no name until one is claimed for it."""

    def __init__(self, control_sockets: "ControlSockets") -> None:
        self._control_sockets = control_sockets
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.folder = os.open(control_sockets.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.name = ""

    def claim(self, name: str) -> None:
        """Give it a name, and queue connections to it. Raises ``NameTakenError``."""
        with self._control_sockets.locked():
            self._control_sockets.remove_if_stale(name)
            self._control_sockets.how_it_ended(name)  # the note is about an earlier lab of that name
            os.fchmod(self.socket.fileno(), 0o600)  # bind(2) gives this mode to the file
            try:
                # The folder's path may be long, and sun_path has room for 107 bytes only.
                self.socket.bind(f"/proc/self/fd/{self.folder}/{name}{_SUFFIX}")
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    raise NameTakenError(name) from None
                raise
            self.socket.listen(_MOST_WAITING)
        self.name = name

    def tell_supervisor(self, pid: int) -> None:
        """Note beside the name which process can end the lab if the lab itself does not answer."""
        with suppress(OSError):
            self._control_sockets.supervisor_file(self.name).write_text(f"{pid} {_began(pid)}\n", encoding="ascii")

    def close(self) -> None:
        """Close this process's copy of the socket; the lab process has its own."""
        self.socket.close()
        if self.folder >= 0:
            os.close(self.folder)
            self.folder = -1

    def give_up(self) -> None:
        """Close it and remove its name: no lab was detached."""
        if self.name:
            with suppress(OSError):
                os.unlink(self.name + _SUFFIX, dir_fd=self.folder)
        self.close()


_CURE: Final = "set XDG_RUNTIME_DIR to a directory of your own with mode 0700"


class ControlSockets:
    """The control sockets of one user's labs."""

    def __init__(self, folder: Path) -> None:
        """Use ``folder``, which is made if need be. Raises ``CapabilityError`` if another user can enter it."""
        self.folder = folder
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except FileExistsError:  # it is no folder
            pass
        except OSError as error:
            raise CapabilityError(f"a directory for standing labs ({folder}: {error.strerror})", _CURE) from None
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise CapabilityError(
                f"a private directory for standing labs ({folder} belongs to another user, or is open to others)",
                f"remove it, or {_CURE}",
            )

    @classmethod
    def of_user(cls) -> Self:
        """Those of the current user: below XDG_RUNTIME_DIR, or else below the directory for temporary files."""
        runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
        if runtime.is_absolute() and runtime.is_dir() and runtime.stat().st_uid == os.geteuid():
            return cls(runtime / "proxylab")
        try:
            return cls(Path(tempfile.gettempdir()) / f"proxylab-{os.geteuid()}")
        except FileNotFoundError as error:
            raise CapabilityError(f"a directory for standing labs ({error.strerror})", _CURE) from None

    def names(self) -> list[str]:
        """The names of standing labs; names of killed ones are removed on the way."""
        with self.locked():
            found = sorted(each.name.removesuffix(_SUFFIX) for each in self.folder.glob(f"*{_SUFFIX}"))
            return [name for name in found if not self.remove_if_stale(name)]

    def ended(self) -> list[tuple[str, str]]:
        """The labs that ended without being asked to since the last call, each with how it ended."""
        names = sorted(each.name.removesuffix(ENDED_SUFFIX) for each in self.folder.glob(f"*{ENDED_SUFFIX}"))
        return [(name, how) for name in names if (how := self.how_it_ended(name))]

    def connect(self, name: str, seconds: float = 5.0) -> socket.socket:
        """A connection to the lab of that name. Raises ``NoSuchLabError``, or ``TimeoutError`` if it takes none."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(seconds)
        deadline = Deadline.after(seconds)
        try:
            with self._opened() as folder:
                while True:
                    try:
                        connection.connect(f"/proc/self/fd/{folder}/{name}{_SUFFIX}")
                    except BlockingIOError:  # EAGAIN: the queue is full (connect(2)), whatever the timeout
                        if deadline.passed:
                            raise TimeoutError(f"the lab {name} takes no more connections") from None
                        time.sleep(_PAUSE)
                    else:
                        return connection
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            raise NoSuchLabError(name) from None
        except BaseException:
            connection.close()
            raise

    def is_taken(self, name: str) -> bool:
        """Whether the name still exists."""
        return (self.folder / f"{name}{_SUFFIX}").exists()

    def remove_if_stale(self, name: str) -> bool:
        """Remove a name without a lab behind it; returns whether it was one. The caller holds the folder's lock."""
        probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        probe.setblocking(False)
        with probe, self._opened() as folder:
            try:
                probe.connect(f"/proc/self/fd/{folder}/{name}{_SUFFIX}")
            except FileNotFoundError:
                return False
            except ConnectionRefusedError:
                for each in (name + SUPERVISOR_SUFFIX, name + _SUFFIX):  # the name last: clients wait until it is gone
                    with suppress(FileNotFoundError):
                        os.unlink(each, dir_fd=folder)
                return True
            except BlockingIOError:
                return False  # its queue is full, so a lab listens
        return False

    def supervisor_file(self, name: str) -> Path:
        """The file that names the supervisor of a lab."""
        return self.folder / f"{name}{SUPERVISOR_SUFFIX}"

    def supervisor_of(self, name: str) -> int | None:
        """The pid of a lab's supervisor; ``None`` if it has ended."""
        try:
            pid, began = self.supervisor_file(name).read_text(encoding="ascii").split()
        except (OSError, ValueError):
            return None
        return int(pid) if _began(int(pid)) == began else None  # otherwise the pid belongs to another process now

    def stuck_process_of(self, name: str) -> StuckProcess | None:
        """The process of a lab that does not run; ``None`` if each runs, or the lab has ended."""
        supervisor = self.supervisor_of(name)
        return None if supervisor is None else stuck_process(supervisor)

    def kill(self, name: str) -> bool:
        """Have the supervisor end by force a lab that does not answer; returns whether there was one."""
        pid = self.supervisor_of(name)
        if pid is None:
            return False
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
            os.kill(pid, signal.SIGCONT)  # a stopped process takes no other signal
        return True

    def wait_for_end(self, name: str, seconds: float) -> str | None:
        """Wait until a lab that hung up is gone; how it ended, or ``None`` if it goes on."""
        deadline = Deadline.after(seconds)
        while (supervisor := self.supervisor_of(name)) is not None and _is_alive(supervisor) and not deadline.passed:
            time.sleep(_PAUSE)
        if how := self.how_it_ended(name):
            return how
        if not self.is_taken(name):
            return ASKED_TO_END
        with self.locked():
            return "a signal ended its supervisor" if self.remove_if_stale(name) else None

    def how_it_ended(self, name: str) -> str:
        """How a lab of that name ended that was not asked to; empty if none did. The next call knows no more of it."""
        note = self.folder / f"{name}{ENDED_SUFFIX}"
        try:
            status = int(note.read_text(encoding="ascii"))
            note.unlink()
        except (OSError, ValueError):
            return ""
        return how_it_ended(status)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other process from claiming and removing names."""
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


def _is_alive(pid: int) -> bool:
    return _began(pid) != ""


def _began(pid: int) -> str:
    """When a process began, in ticks since boot: together with its pid that identifies it (proc(5))."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
