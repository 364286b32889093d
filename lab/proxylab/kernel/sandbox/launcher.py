"""Commands inside nodes, pods and hosts: the lab process's side.

``Launcher`` sends requests to the launcher child (``kernel.sandbox.launcher_child``), which forks and starts commands.

Standard input and output are memfds (memfd_create(2)): a command never blocks on a full pipe, and the lab reads its
whole output when it has ended. A long-running command (``kernel.sandbox.running``) writes to a pipe instead.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from msgspec import Struct

from proxylab.errors import InternalError, LabEndedError
from proxylab.kernel.sandbox.commands import MARK, Command, processes_of
from proxylab.kernel.sandbox.iptables_links import PATH
from proxylab.kernel.sandbox.launcher_child import ENDED, MESSAGE_LIMIT, NO_PROCESS, LauncherEnds
from proxylab.kernel.sandbox.netns import NetNs, make_netns
from proxylab.kernel.sandbox.origins import here
from proxylab.kernel.sandbox.running import Attached, Running
from proxylab.resource_limits import no_process_for_command
from proxylab.timing import Deadline

_ENVIRONMENT: Final = {"PATH": PATH, "LC_ALL": "C.UTF-8"}
_GONE: Final = "the lab's launcher, which starts commands, has ended"
_COMMANDS_AT_ONCE: Final = 32
_LONGEST_ARGV: Final = 200
_NETNS_SECONDS: Final = 30.0
_ANSWER_BYTES: Final = 16


class Completed(Struct, frozen=True):
    """A command that has ended. ``status`` is its exit code, or minus the number of the signal that killed it."""

    argv: tuple[str, ...]
    status: int
    stdout: bytes
    stderr: bytes


class Launcher:
    """The lab process's handle on the launcher child. ``attach`` binds it to the running event loop."""

    def __init__(self, ends: LauncherEnds) -> None:
        self._channel = ends.commands
        self._namespaces = ends.namespaces
        if self._namespaces is not None:
            self._namespaces.settimeout(_NETNS_SECONDS)
        self._waiting: dict[int, asyncio.Future[int]] = {}
        self._number = 0
        self._resolv_confs: dict[str, str] = {}
        # More at once would fill the channel, or exceed the descriptors that a user may have in flight (unix(7)).
        self._room = asyncio.Semaphore(_COMMANDS_AT_ONCE)
        self.gone: asyncio.Event = asyncio.Event()

    def attach(self) -> None:
        """Begin to read the launcher's answers on the running loop."""
        self._channel.setblocking(False)
        asyncio.get_running_loop().add_reader(self._channel, self._read)

    def make_netns(self, name: str) -> NetNs:
        """A new, empty network namespace over which commands have all rights.

        Raises:
            LabEndedError: the launcher has ended, or does not answer.
        """
        if self._namespaces is None:
            return make_netns(name)
        try:
            self._namespaces.send(b"1")
            data, descriptors, _, _ = socket.recv_fds(self._namespaces, _ANSWER_BYTES, 1)
        except (OSError, TimeoutError) as error:
            raise LabEndedError(_GONE) from error
        if not data:
            raise LabEndedError(_GONE)
        if not descriptors:
            raise OSError(int(data), f"unshare: {os.strerror(int(data))}")
        os.set_inheritable(descriptors[0], False)  # recv_fds drops its flags argument, MSG_CMSG_CLOEXEC too
        return NetNs(name, descriptors[0], here())

    def path_of(self, command: str) -> str | None:
        """The path of a program in the PATH of commands, or ``None``."""
        return shutil.which(command, path=PATH)

    async def run(
        self,
        netns: NetNs,
        argv: Sequence[str],
        *,
        netns_name: str,
        stdin: bytes = b"",
        fed: bool = False,
        files: Mapping[str, str] | None = None,
        links: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        deadline: Deadline,
    ) -> Completed:
        """Run one command in ``netns`` and wait for its end.

        With ``fed``, the command gets its standard input by a pipe once its netlink sockets have the largest send
        buffer that this machine allows (``kernel.sandbox.command_input``).

        Raises:
            TimeoutError: it has not ended by the deadline. The launcher kills it and all its children.
            LabEndedError: the launcher has ended.
            CapabilityError: a limit allows no process for it.
        """
        made_by = here()
        standard: list[int] = []
        try:
            standard.extend(os.memfd_create(name, os.MFD_CLOEXEC) for name in ("stdin", "stdout", "stderr"))
            _write_all(standard[0], stdin)
            os.lseek(standard[0], 0, os.SEEK_SET)
            request = _request(netns, argv, netns_name, environment, files=files, links=links, fed=fed)
            status = await self._start_and_wait(request, made_by, (netns.fd, *standard), deadline)
            return Completed(tuple(argv), status, _contents(standard[1]), _contents(standard[2]))
        finally:
            for fd in standard:
                os.close(fd)

    async def start(
        self,
        netns: NetNs,
        argv: Sequence[str],
        *,
        netns_name: str,
        heard: Callable[[str], None],
        files: Mapping[str, str] | None = None,
        links: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Running:
        """Start one long-running command in ``netns``. Raises ``LabEndedError``.

        Args:
            netns: the network namespace of the command.
            argv: the command.
            netns_name: the node, pod or host; it selects the mount and UTS namespaces.
            heard: called with each line of its standard output and standard error.
            files: texts by path, programs that begin with #! among them; each path must lie in the private /run.
            links: targets of symbolic links by path, likewise.
            environment: variables on top of the launcher's own.
        """
        made_by = here()
        reading, writing = os.pipe2(os.O_CLOEXEC)
        try:
            nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        except BaseException:
            os.close(reading)
            os.close(writing)
            raise
        try:
            request = _request(netns, argv, netns_name, environment, files=files, links=links)
            number = self._register(request, made_by)
            async with self._room:
                self._send({"run": number, **request}, (netns.fd, nothing, writing, writing))
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(nothing)
            os.close(writing)
        return Running(reading, heard, *self._follow(number), partial(processes_of, number))

    def _follow(self, number: int) -> tuple["asyncio.Future[int]", Callable[[int], None]]:
        """A future with the status of command ``number``, and a function that sends it signals until then."""
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
        """Start one command in ``netns`` on a client's standard streams. Raises ``LabEndedError``.

        ``standard`` has the descriptors of its standard input, output and error, which the caller closes. With
        ``terminal`` they are a terminal, and the command leads a session on it. ``directory`` is its working directory,
        if it exists there. The others are as for ``start``.
        """
        made_by = here()
        request = _request(
            netns, argv, netns_name, environment, links=links, attached=True, terminal=terminal, directory=directory
        )
        number = self._register(request, made_by)
        async with self._room:
            self._send({"run": number, **request}, (netns.fd, *standard))
        return Attached(*self._follow(number), partial(processes_of, number))

    def furnish(self, netns_name: str, resolv_conf: str) -> None:
        """Set the /etc/resolv.conf of a node, pod or host. Call it before the first command there."""
        self._resolv_confs[netns_name] = resolv_conf

    def forget(self, netns_names: Sequence[str]) -> None:
        """Close the mount and UTS namespaces of ``netns_names``.

        One message names all of them: a thousand messages fill the channel faster than the launcher reads it.
        """
        for netns_name in netns_names:
            self._resolv_confs.pop(netns_name, None)
        self._send({"forget": list(netns_names)}, ())

    def close(self) -> None:
        """End the launcher and the commands that still run."""
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop().remove_reader(self._channel)
        self._channel.close()
        if self._namespaces is not None:
            self._namespaces.close()

    async def _start_and_wait(
        self, request: dict[str, Any], made_by: str, fds: Sequence[int], deadline: Deadline
    ) -> int:
        number = self._register(request, made_by)
        ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting[number] = ended
        try:
            async with asyncio.timeout(deadline.remaining), self._room:
                self._send({"run": number, **request}, fds)
                try:
                    return await ended
                except asyncio.CancelledError:  # by the deadline or by the caller
                    self._signal(number, signal.SIGKILL)
                    raise
        except TimeoutError:
            command = " ".join(request["argv"])
            raise TimeoutError(f"{command} in {request['hostname']} did not end in time and was killed") from None
        finally:
            self._waiting.pop(number, None)

    def _register(self, request: dict[str, Any], made_by: str) -> int:
        """Number a command, and add its mark and its resolv.conf to the request."""
        self._number += 1
        argv = " ".join(request["argv"])[:_LONGEST_ARGV].partition("\0")[0]
        request["resolv_conf"] = self._resolv_confs.get(request["netns_name"], "")
        request["environment"][MARK] = str(Command(self._number, request["netns_name"], made_by, argv))
        return self._number

    def _signal(self, number: int, which: int) -> None:
        """Send a signal to a command. Once the launcher has ended, the lab is about to end with all commands."""
        with contextlib.suppress(LabEndedError):
            self._send({"kill": number, "signal": which}, ())

    def _send(self, message: dict[str, Any], fds: Sequence[int]) -> None:
        data = json.dumps(message).encode()
        if len(data) > MESSAGE_LIMIT:
            raise InternalError(f"a command request has {len(data)} bytes; the launcher takes {MESSAGE_LIMIT}")
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
            if status == NO_PROCESS:
                ended_now.set_exception(no_process_for_command())
            else:
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
            raise InternalError(f"{path} is not in the private /run of {netns_name}, but a file of the machine")
    return {
        "argv": list(argv),
        "netns_name": netns_name,
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
