"""Flows that ask for something by HTTP and tell what they were answered.

Owns: the request, and what is read of the answer.
Must not: judge an answer, or keep a connection for a second request.

Who answers may be a process of its own, or a task of the lab's event loop. So an answer is waited for with a deadline,
and only when that has passed do fences show whether anything can have been on its way.
"""

import asyncio
import json
import socket
from collections.abc import Iterator, Sequence
from ipaddress import ip_address
from typing import Final

import h11

from proxylab.evidence.evidence import ConnectReport, HttpReport
from proxylab.kernel.sandbox.netns import NetNs, inside
from proxylab.plan.resolved import ResolvedProbe
from proxylab.timing import together
from proxylab.traffic.connect import RESET_ON_CLOSE, error_name

__all__ = ["Fetches"]

_SECONDS: Final = 2.0
_AT_ONCE: Final = 16
"""Flows under way at once: who hears nothing waits for all of its seconds. As many as fit the smallest of taps."""
_LONGEST_BODY: Final = 64 * 1024
_PATH: Final = "/healthz"


class Fetches:
    """The flows of one errand, a bounded number at once: GET /healthz, which every health-check node port serves."""

    def __init__(self, netns: NetNs, resolved: ResolvedProbe, ports: Sequence[int]) -> None:
        self.reports: list[ConnectReport] = []
        self.refused: list[str] = []
        self.answers: list[HttpReport] = []
        self.sent = 0
        self._netns = netns
        self._resolved = resolved
        self._ports = ports
        self._unanswered: list[int] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def finished(self) -> bool:
        """Whether every flow has been answered, refused or given up."""
        return self._over and not self._unanswered

    @property
    def _over(self) -> bool:
        return self._task is not None and self._task.done()

    def advance(self) -> bool:
        """Whether an answer may still come; the flows advance by themselves as the event loop goes round."""
        if self._task is None:
            self._task = asyncio.create_task(self._ask())
        if self._over:
            self._task.result()
        return not self._over

    def abandon(self) -> bool:
        """Report every flow that was not answered in time. Whether there was any."""
        unanswered, self._unanswered = self._unanswered, []
        for flow in unanswered:
            self._report(flow, "timeout", 0, b"")
        return bool(unanswered)

    def close(self) -> None:
        """Break off what is under way."""
        if self._task is not None:
            self._task.cancel()

    async def _ask(self) -> None:
        waiting = enumerate(self._ports)
        await together(self._ask_those(waiting) for _ in range(min(_AT_ONCE, len(self._ports))))

    async def _ask_those(self, waiting: Iterator[tuple[int, int]]) -> None:
        """Take one flow after the other of those that nobody has taken yet."""
        for flow, port in waiting:
            self.sent += 1
            error, status, body = await _asked(self._netns, self._resolved, port)
            if error == "timeout":
                self._unanswered.append(flow)
            else:
                self._report(flow, error, status, body)

    def _report(self, flow: int, error: str, status: int, body: bytes) -> None:
        document = _document(body)
        told = document.get("localEndpoints")
        self.answers.append(HttpReport(flow, status, told if isinstance(told, int) else None, error))
        self.reports.append(_report(self._resolved, flow, self._ports[flow], error, document))


async def _asked(netns: NetNs, resolved: ResolvedProbe, port: int) -> tuple[str, int, bytes]:
    """An errno's name or ``timeout`` or nothing, the status, and the body."""
    family = socket.AF_INET if resolved.destination.version == 4 else socket.AF_INET6
    with inside(netns):
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    with sock:
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            sock.bind((str(resolved.sender.address), port))
            async with asyncio.timeout(_SECONDS):
                return "", *await _conversation(sock, resolved)
        except TimeoutError as error:
            return (error_name(error.errno) if error.errno else "timeout"), 0, b""
        except OSError as error:
            return error_name(error.errno), 0, b""


async def _conversation(sock: socket.socket, resolved: ResolvedProbe) -> tuple[int, bytes]:
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, (str(resolved.destination), resolved.port))
    client = h11.Connection(h11.CLIENT, max_incomplete_event_size=_LONGEST_BODY)
    headers = [("Host", "proxylab"), ("Connection", "close")]
    request = client.send(h11.Request(method="GET", target=_PATH, headers=headers)) or b""
    await loop.sock_sendall(sock, request + (client.send(h11.EndOfMessage()) or b""))
    status, body = 0, b""
    while len(body) <= _LONGEST_BODY:
        try:
            event = client.next_event()
        except h11.RemoteProtocolError as error:
            raise OSError(71, "what was answered is not HTTP") from error  # EPROTO
        if event is h11.NEED_DATA:
            client.receive_data(await loop.sock_recv(sock, 1 << 16))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        else:
            break
    return status, body


def _is_address(text: str) -> bool:
    """Whether somebody's JSON names an address there: who answers need not be a responder of ours."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _document(body: bytes) -> dict[str, object]:
    """The JSON object of a body; empty for any other."""
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _report(resolved: ResolvedProbe, flow: int, port: int, error: str, document: dict[str, object]) -> ConnectReport:
    """What the socket learned: of a pod, its name and whom it saw; of others, that whoever was dialled answered."""
    local = resolved.sender.address
    if error:
        return ConnectReport(flow, local, port, error)
    match document:
        case {"pod": str(backend), "peer": str(peer), "port": int(peer_port)} if _is_address(peer):
            return ConnectReport(flow, local, port, "", backend, ip_address(peer), peer_port)
    dialled = (resolved.destination, resolved.port)
    names = [each.name for each in resolved.receivers if each.ports and (each.address, each.ports[0]) == dialled]
    return ConnectReport(flow, local, port, "", names[0] if names else "", local, port)
