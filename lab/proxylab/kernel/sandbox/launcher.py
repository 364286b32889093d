"""Commands inside nodes, pods and hosts: the lab process's side.

Owns: ``Launcher``, by which the lab process has commands run, and ``Completed``.
Must not: fork or start anything itself; the launcher child (``kernel.launcher_child``) does.

Standard input and output are memfds (memfd_create(2)): a command never blocks on a full pipe, and its whole answer is
read when it has ended. One that runs on (``kernel.running``) speaks through a pipe instead.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from proxylab.errors import InternalError, LabEndedError
from proxylab.frozen import dataclass
from proxylab.kernel.sandbox.chosen_tools import PATH
from proxylab.kernel.sandbox.commands import MARK, Command
from proxylab.kernel.sandbox.launcher_child import ENDED, MESSAGE_LIMIT
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.kernel.sandbox.origins import here
from proxylab.kernel.sandbox.running import Attached, Running
from proxylab.timing import Deadline

__all__ = ["Completed", "Launcher"]

_ENVIRONMENT: Final = {"PATH": PATH, "LC_ALL": "C.UTF-8"}


_GONE: Final = "the lab's launcher, which starts commands, has ended"
_AT_ONCE: Final = 32
_LONGEST_WORDS: Final = 200


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that has ended. ``status`` is its exit code, or minus the number of the signal that ended it."""

    argv: tuple[str, ...]
    status: int
    stdout: bytes
    stderr: bytes


class Launcher:
    """The lab process's handle on the launcher child. Bound to the running event loop by ``attach``."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._waiting: dict[int, asyncio.Future[int]] = {}
        self._number = 0
        self._resolv_confs: dict[str, str] = {}
        # More at once would fill the channel, or the descriptors that an ordinary user may have in flight (unix(7)).
        self._room = asyncio.Semaphore(_AT_ONCE)
        self.gone: asyncio.Event = asyncio.Event()

    def attach(self) -> None:
        """Begin to read the launcher's answers on the running loop."""
        self._channel.setblocking(False)
        asyncio.get_running_loop().add_reader(self._channel, self._read)

    def path_of(self, command: str) -> str | None:
        """Where a command lies, if there is one of that name among those that commands find."""
        return shutil.which(command, path=PATH)

    async def run(
        self,
        netns: NetNs,
        argv: Sequence[str],
        *,
        netns_name: str,
        stdin: bytes = b"",
        fed: bool = False,
        links: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        deadline: Deadline,
    ) -> Completed:
        """Run one command in ``netns`` and wait for its end.

        What is to be ``fed`` gets its standard input by a pipe, and not before its netlink sockets have all the room to
        send that this machine allows.

        Raises:
            TimeoutError: when it has not ended by the deadline; it and all that it has started are killed.
            LabEndedError: when the launcher is gone.
        """
        made_by = here()
        files = [os.memfd_create(name, os.MFD_CLOEXEC) for name in ("stdin", "stdout", "stderr")]
        try:
            _write_all(files[0], stdin)
            os.lseek(files[0], 0, os.SEEK_SET)
            request = _request(netns, argv, netns_name, environment, links=links, fed=fed)
            status = await self._start_and_wait(request, made_by, (netns.fd, *files), deadline)
            return Completed(tuple(argv), status, _contents(files[1]), _contents(files[2]))
        finally:
            for fd in files:
                os.close(fd)

    async def start(
        self,
        netns: NetNs,
        argv: Sequence[str],
        *,
        netns_name: str,
        heard: Callable[[str], None],
        stdin: bytes = b"",
        files: Mapping[str, str] | None = None,
        links: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Running:
        """Start one command in ``netns`` that runs on.

        Args:
            netns: the namespace it runs in.
            argv: the command.
            netns_name: whose mount and UTS namespaces it runs in.
            heard: called with each line that it says, on standard output or standard error.
            stdin: what it may read.
            files: texts that it finds in its place, by path, which must lie in the place's own /run.
            links: what symbolic links there lead to, by path.
            environment: on top of the launcher's own.

        Raises:
            LabEndedError: when the launcher is gone.
        """
        made_by = here()
        given = os.memfd_create("stdin", os.MFD_CLOEXEC)
        reading, writing = os.pipe2(os.O_CLOEXEC)
        try:
            _write_all(given, stdin)
            os.lseek(given, 0, os.SEEK_SET)
            request = _request(netns, argv, netns_name, environment, files=files, links=links)
            number = self._numbered(request, made_by)
            async with self._room:
                self._send({"run": number, **request}, (netns.fd, given, writing, writing))
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(given)
            os.close(writing)
        return Running(reading, heard, *self._awaited(number))

    def _awaited(self, number: int) -> tuple["asyncio.Future[int]", Callable[[int], None]]:
        """The end of a command that was just started, and what sends it signals until then."""
        ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting[number] = ended
        ended.add_done_callback(lambda _: self._waiting.pop(number, None))

        def send_signal(which: int) -> None:
            if not ended.done():
                self._signal(number, which)

        return ended, send_signal

    async def start_attached(
        self,
        netns: NetNs,
        argv: Sequence[str],
        *,
        netns_name: str,
        standard: Sequence[int],
        terminal: bool = False,
        directory: str = "/",
        links: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Attached:
        """Start one command in ``netns`` on somebody else's standard streams.

        Args:
            netns: the namespace it runs in.
            argv: the command.
            netns_name: whose mount and UTS namespaces it runs in.
            standard: descriptors of its standard input, output and error; they stay the caller's.
            terminal: they are a terminal, which shall be the command's own: it leads a session there.
            directory: where it works, if the place has that directory.
            links: what symbolic links in its place's own /run lead to, by path.
            environment: on top of the launcher's own.

        Raises:
            LabEndedError: when the launcher is gone.
        """
        made_by = here()
        request = _request(
            netns, argv, netns_name, environment, links=links, attached=True, terminal=terminal, directory=directory
        )
        number = self._numbered(request, made_by)
        async with self._room:
            self._send({"run": number, **request}, (netns.fd, *standard))
        ended, send_signal = self._awaited(number)
        return Attached(ended, send_signal)

    def furnish(self, netns_name: str, resolv_conf: str) -> None:
        """Say what the commands of a place are to find as /etc/resolv.conf; to be said before the first of them."""
        self._resolv_confs[netns_name] = resolv_conf

    def forget(self, netns_names: Sequence[str]) -> None:
        """Let go of the mount and UTS namespaces of ``netns_names``.

        One message names all of them: a thousand messages fill the channel faster than the launcher reads it.
        """
        for netns_name in netns_names:
            self._resolv_confs.pop(netns_name, None)
        self._send({"forget": list(netns_names)}, ())

    def close(self) -> None:
        """End the launcher, and with it the commands that still run."""
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop().remove_reader(self._channel)
        self._channel.close()

    async def _start_and_wait(
        self, request: dict[str, Any], made_by: str, fds: Sequence[int], deadline: Deadline
    ) -> int:
        number = self._numbered(request, made_by)
        ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting[number] = ended
        try:
            async with asyncio.timeout(deadline.remaining), self._room:
                self._send({"run": number, **request}, fds)
                try:
                    return await ended
                except asyncio.CancelledError:  # of the deadline, or of whoever wanted this command
                    self._signal(number, signal.SIGKILL)
                    raise
        except TimeoutError:
            command = " ".join(request["argv"])
            raise TimeoutError(f"{command} in {request['hostname']} did not end in time and was killed") from None
        finally:
            self._waiting.pop(number, None)

    def _numbered(self, request: dict[str, Any], made_by: str) -> int:
        """Give a command its number, the mark by which its children are known, and its place's resolv.conf."""
        self._number += 1
        words = " ".join(request["argv"])[:_LONGEST_WORDS].partition("\0")[0]
        request["resolv_conf"] = self._resolv_confs.get(request["place"], "")
        request["environment"][MARK] = str(Command(self._number, request["place"], made_by, words))
        return self._number

    def _signal(self, number: int, which: int) -> None:
        """Send a signal to a command. Without the launcher there is none to send it: the lab is about to end."""
        with contextlib.suppress(LabEndedError):
            self._send({"kill": number, "signal": which}, ())

    def _send(self, message: dict[str, Any], fds: Sequence[int]) -> None:
        data = json.dumps(message).encode()
        if len(data) > MESSAGE_LIMIT:
            raise InternalError(f"a command line of {len(data)} bytes; the launcher takes {MESSAGE_LIMIT}")
        try:
            socket.send_fds(self._channel, [data], list(fds))
        except OSError as error:
            raise LabEndedError(_GONE) from error

    def _read(self) -> None:
        try:
            message = self._channel.recv(MESSAGE_LIMIT)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if not message:
            asyncio.get_running_loop().remove_reader(self._channel)
            self.gone.set()
            for ended in tuple(self._waiting.values()):
                if not ended.done():
                    ended.set_exception(LabEndedError(_GONE))
            return
        number, status = ENDED.unpack(message)
        ended_now = self._waiting.get(number)
        if ended_now is not None and not ended_now.done():
            ended_now.set_result(status)


def _request(
    netns: NetNs,
    argv: Sequence[str],
    netns_name: str,
    environment: Mapping[str, str] | None,
    *,
    files: Mapping[str, str] | None = None,
    links: Mapping[str, str] | None = None,
    fed: bool = False,
    attached: bool = False,
    terminal: bool = False,
    directory: str = "/",
) -> dict[str, Any]:
    for path in (*(files or {}), *(links or {})):
        if not path.startswith("/run/") or ".." in path:
            raise InternalError(f"{path} does not lie in the /run of {netns_name}: it would be the machine's")
    return {
        "argv": list(argv),
        "place": netns_name,
        "hostname": netns.name,
        "files": dict(files or {}),
        "links": dict(links or {}),
        "fed": fed,
        "attached": attached,
        "terminal": terminal,
        "directory": directory,
        "environment": {**_ENVIRONMENT, **(environment or {})},
    }


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _contents(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)
