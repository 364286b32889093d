"""Flows that send an HTTP request and report the response.

``Fetches`` sends one request on each connection and judges nothing.

The server may be a process of its own, or a task of the lab's event loop. So a flow waits for its answer until a
deadline, and only after that sentinel packets show whether an answer can still be under way.
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
"""Flows under way at once: an unanswered flow waits for all of its seconds. As many as fit the smallest of taps."""
_LONGEST_BODY: Final = 64 * 1024
_PATH: Final = "/healthz"


class Fetches:
    """The flows of one probe, a bounded number at once: GET /healthz, which every health-check node port serves."""

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
        """Whether an answer may still come. The flows advance by themselves as the event loop runs."""
        if self._task is None:
            self._task = asyncio.create_task(self._request_all())
        if self._over:
            self._task.result()
        return not self._over

    def abandon(self) -> bool:
        """Report every flow that got no answer in time. Returns whether there was any."""
        unanswered, self._unanswered = self._unanswered, []
        for flow in unanswered:
            self._report(flow, "timeout", 0, b"")
        return bool(unanswered)

    def close(self) -> None:
        """Cancel what is under way."""
        if self._task is not None:
            self._task.cancel()

    async def _request_all(self) -> None:
        waiting = enumerate(self._ports)
        await together(self._request_each(waiting) for _ in range(min(_AT_ONCE, len(self._ports))))

    async def _request_each(self, waiting: Iterator[tuple[int, int]]) -> None:
        """Take one flow after the other from the shared iterator."""
        for flow, port in waiting:
            self.sent += 1
            error, status, body = await _get(self._netns, self._resolved, port)
            if error == "timeout":
                self._unanswered.append(flow)
            else:
                self._report(flow, error, status, body)

    def _report(self, flow: int, error: str, status: int, body: bytes) -> None:
        document = _document(body)
        endpoints = document.get("localEndpoints")
        self.answers.append(HttpReport(flow, status, endpoints if isinstance(endpoints, int) else None, error))
        self.reports.append(_report(self._resolved, flow, self._ports[flow], error, document))


async def _get(netns: NetNs, resolved: ResolvedProbe, port: int) -> tuple[str, int, bytes]:
    """An errno's name, ``timeout`` or nothing; then the status, and the body."""
    family = socket.AF_INET if resolved.destination.version == 4 else socket.AF_INET6
    with inside(netns):
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    with sock:
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            sock.bind((str(resolved.sender.address), port))
            async with asyncio.timeout(_SECONDS):
                return "", *await _exchange(sock, resolved)
        except TimeoutError as error:
            return (error_name(error.errno) if error.errno else "timeout"), 0, b""
        except OSError as error:
            return error_name(error.errno), 0, b""


async def _exchange(sock: socket.socket, resolved: ResolvedProbe) -> tuple[int, bytes]:
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
            raise OSError(71, "the answer is not HTTP") from error  # EPROTO
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
    """Whether the text is an address: the server need not be a responder of the lab, and its JSON may say anything."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _document(body: bytes) -> dict[str, object]:
    """The JSON object in a body; empty for any other body."""
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _report(resolved: ResolvedProbe, flow: int, port: int, error: str, document: dict[str, object]) -> ConnectReport:
    """The socket's report: from a pod, its name and the peer it saw; from another server, only that it answered."""
    local = resolved.sender.address
    if error:
        return ConnectReport(flow, local, port, error)
    match document:
        case {"pod": str(backend), "peer": str(peer), "port": int(peer_port)} if _is_address(peer):
            return ConnectReport(flow, local, port, "", backend, ip_address(peer), peer_port)
    dialled = (resolved.destination, resolved.port)
    names = [each.name for each in resolved.receivers if each.ports and (each.address, each.ports[0]) == dialled]
    return ConnectReport(flow, local, port, "", names[0] if names else "", local, port)
