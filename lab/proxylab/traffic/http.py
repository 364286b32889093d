"""Flows that send an HTTP request and report the response.

``Fetches`` sends one request on each connection and judges nothing. The header ``X-Request-Id`` of a request holds the
token of its flow, by which a program's own connection is recognised (``legs``).

The server may be a process of its own, or a task of the lab's event loop. So a flow waits for its answer until a
deadline, and only after that sentinel packets show whether an answer can still be under way.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct, field

from proxylab.control.http_client import fetch
from proxylab.encoding import MisfitError, decode
from proxylab.evidence.evidence import ConnectReport, HttpReport
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.resolved import ResolvedProbe
from proxylab.timing import Deadline, together
from proxylab.traffic.answer import read_document
from proxylab.traffic.connect import error_name
from proxylab.traffic.identity import Identity, Kind

__all__ = ["Fetches"]

_ANSWER_SECONDS: Final = 2.0
_REQUESTS_AT_ONCE: Final = 16
"""Flows under way at once: an unanswered flow waits for all of its seconds. As many as fit the smallest of taps."""
_PATH: Final = "/healthz"


class _Health(Struct, frozen=True):
    endpoints: int | None = field(default=None, name="localEndpoints")


class Fetches:
    """The flows of one probe, a bounded number at once: GET /healthz, which every health-check node port serves."""

    def __init__(self, netns: NetNs, resolved: ResolvedProbe, identity: Identity, ports: Sequence[int]) -> None:
        self._identity = identity
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
        await together(self._request_each(waiting) for _ in range(min(_REQUESTS_AT_ONCE, len(self._ports))))

    async def _request_each(self, waiting: Iterator[tuple[int, int]]) -> None:
        """Take one flow after the other from the shared iterator."""
        for flow, port in waiting:
            self.sent += 1
            token = self._identity.token(Kind.PROBE, flow).decode()
            error, status, body = await _get(self._netns, self._resolved, port, token)
            if error == "timeout":
                self._unanswered.append(flow)
            else:
                self._report(flow, error, status, body)

    def _report(self, flow: int, error: str, status: int, body: bytes) -> None:
        self.answers.append(HttpReport(flow, status, _local_endpoints(body), error))
        self.reports.append(_report(self._resolved, flow, self._ports[flow], error, body))


async def _get(netns: NetNs, resolved: ResolvedProbe, port: int, token: str) -> tuple[str, int, bytes]:
    """An errno's name, ``timeout`` or nothing; then the status, and the body."""
    source, deadline = (resolved.sender.address, port), Deadline.after(_ANSWER_SECONDS)
    try:
        return "", *await fetch(netns, resolved.destination, resolved.port, _PATH, deadline, source, token)
    except TimeoutError as error:
        return (error_name(error.errno) if error.errno else "timeout"), 0, b""
    except OSError as error:
        return error_name(error.errno), 0, b""


def _local_endpoints(body: bytes) -> int | None:
    """The number of local endpoints in the body of a health check; ``None`` in any other body."""
    try:
        return decode(body, _Health).endpoints
    except MisfitError:
        return None


def _report(resolved: ResolvedProbe, flow: int, port: int, error: str, body: bytes) -> ConnectReport:
    """The socket's report: from a pod, its name and the peer it saw; from another server, only that it answered."""
    local = resolved.sender.address
    if error:
        return ConnectReport(flow, local, port, error)
    answer = read_document(body)
    if answer is not None:
        return ConnectReport(flow, local, port, "", answer.backend, answer.peer, answer.peer_port)
    dialled = (resolved.destination, resolved.port)
    names = [each.name for each in resolved.receivers if each.ports and (each.address, each.ports[0]) == dialled]
    return ConnectReport(flow, local, port, "", names[0] if names else "", local, port)
