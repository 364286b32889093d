"""Flows that send an HTTP request and report the response.

``Fetches`` sends one request on each connection and judges nothing. The header ``X-Request-Id`` of a request holds the
token of its flow, by which a program's own connection is recognised (``legs``).

The server may be a process of its own, or a task of the lab's event loop. So a flow waits for its answer until a
deadline, and only after that sentinel packets show whether an answer can still be under way.
"""

import asyncio
import json
import ssl
from collections.abc import Iterator, Sequence
from ipaddress import ip_address
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from proxylab.control.http_client import HttpAnswer, request
from proxylab.control.ingress.nginx_conf import PEER_HEADER, POD_HEADER
from proxylab.encoding import MisfitError, decode
from proxylab.evidence.evidence import Altered, ConnectReport, HttpReport, Leg, Observation, Packet
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.syntax import is_address
from proxylab.timing import Deadline, together
from proxylab.traffic.answer import ResponderAnswer, read_document
from proxylab.traffic.connect import error_name
from proxylab.traffic.identity import Identity, TokenKind

_ANSWER_SECONDS: Final = 2.0
_REQUESTS_AT_ONCE: Final = 16
"""Flows under way at once: an unanswered flow waits for all of its seconds. As many as fit the smallest of taps."""
_PATH: Final = "/healthz"
_MOST_BODY: Final = 4096
"""The bytes of the longest body that a report repeats. A health check answers with two hundred."""


class _Health(Struct, frozen=True):
    endpoints: int | None = field(default=None, name="localEndpoints")


class Fetches:
    """The flows of one probe, a bounded number at once.

    They get what the probe requests, or else /healthz, which every health-check node port serves.
    """

    def __init__(
        self, netns: NetNs, resolved: ResolvedProbe, identity: Identity, ports: Sequence[int], trusted: str = ""
    ) -> None:
        """Flows that are not yet sent.

        Args:
            netns: of the sender.
            resolved: the probe.
            identity: of the run, whose tokens name the requests.
            ports: the source port of each flow.
            trusted: the certificates that TLS accepts, in PEM.
        """
        self._identity = identity
        self.reports: list[ConnectReport] = []
        self.altered: list[Altered] = []
        self.refused: list[str] = []
        self.answers: list[HttpReport] = []
        self.sent = 0
        self._netns = netns
        self._resolved = resolved
        self._ports = ports
        self._tls = _context(trusted) if resolved.request is not None and resolved.request.tls else None
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
            self._report(flow, "timeout", None)
        return bool(unanswered)

    def close(self) -> None:
        """Cancel what is under way."""
        if self._task is not None:
            self._task.cancel()

    async def _request_all(self) -> None:
        waiting = enumerate(self._ports)
        at_once = min(self._resolved.concurrency or _REQUESTS_AT_ONCE, len(self._ports))
        await together(self._request_each(waiting) for _ in range(at_once))

    async def _request_each(self, waiting: Iterator[tuple[int, int]]) -> None:
        """Take one flow after the other from the shared iterator."""
        for flow, port in waiting:
            self.sent += 1
            token = self._identity.token(TokenKind.PROBE, flow).decode()
            error, answer = await _get(self._netns, self._resolved, port, token, self._tls)
            if error == "timeout":
                self._unanswered.append(flow)
            else:
                self._report(flow, error, answer)

    def _report(self, flow: int, error: str, answer: HttpAnswer | None) -> None:
        port, sender = self._ports[flow], self._resolved.sender.address
        if answer is None:
            self.answers.append(HttpReport(flow, 0, None, error))
            self.reports.append(ConnectReport(flow, sender, port, error))
            return
        seen = read_document(answer.body)
        answered = HttpReport(flow, answer.status, headers=answer.headers, body=_values(answer.body))
        if self._resolved.request is None:
            self.answers.append(replace(answered, local_endpoints=_local_endpoints(answer.body)))
            self.reports.append(_report(self._resolved, flow, port, seen))
            return
        if seen is not None:
            answered = replace(answered, backend=seen.backend, source=seen.peer, forwarded_for=seen.forwarded_for)
        self.answers.append(answered)
        self.reports.append(_report(self._resolved, flow, port, _of_controller(answer)))


async def _get(
    netns: NetNs, resolved: ResolvedProbe, port: int, token: str, tls: ssl.SSLContext | None
) -> tuple[str, HttpAnswer | None]:
    """An errno's name, ``timeout``, OpenSSL's reason or nothing; then the answer."""
    wanted, deadline = resolved.request, Deadline.after(_ANSWER_SECONDS)
    path, host = (resolved.path or _PATH, "") if wanted is None else (wanted.path, wanted.host)
    to, source = (resolved.destination, resolved.port, path), (resolved.sender.address, port)
    try:
        return "", await request(netns, *to, deadline, source, host=host, request_id=token, tls=tls)
    except TimeoutError as error:
        return (error_name(error.errno) if error.errno else "timeout"), None
    except ssl.SSLError as error:
        return error.reason or "TLS", None
    except OSError as error:
        return error_name(error.errno), None


def by_connection(
    observations: tuple[Observation, ...], resolved: ResolvedProbe
) -> tuple[tuple[Observation, ...], tuple[Observation, ...]]:
    """Of a request to an Ingress: the packets to the controller and back, and those of connections that it opened."""
    if resolved.request is None:
        return observations, ()
    own = (each for each in observations if each.leg is Leg.OWN and each.packet is not Packet.CLOSE)
    return tuple(own), tuple(each for each in observations if each.leg is Leg.ONWARD)


def _context(trusted: str) -> ssl.SSLContext:
    """A client that accepts these certificates alone; the first of ``trusted`` may have its key before it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=trusted[trusted.index("-----BEGIN CERTIFICATE") :])
    return context


def _of_controller(answer: HttpAnswer) -> ResponderAnswer | None:
    """What the pod of the Ingress controller says of the connection, in headers; ``None`` for another server."""
    peer, _, port = answer.headers.get(PEER_HEADER.lower(), "").partition(" ")
    pod = answer.headers.get(POD_HEADER.lower(), "")
    return ResponderAnswer(pod, ip_address(peer), int(port)) if pod and is_address(peer) and port.isdecimal() else None


def _local_endpoints(body: bytes) -> int | None:
    """The number of local endpoints in the body of a health check; ``None`` in any other body."""
    try:
        return decode(body, _Health).endpoints
    except MisfitError:
        return None


def _values(body: bytes) -> dict[str, str]:
    """The values of a small JSON object by the names that lead to them; empty for any other body."""
    if len(body) > _MOST_BODY:
        return {}
    try:
        return dict(_below("", json.loads(body)))
    except (ValueError, RecursionError):
        return {}


def _below(name: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _below(f"{name}.{key}" if name else str(key), each)
    elif name:
        yield name, json.dumps(value, ensure_ascii=False)


def _report(resolved: ResolvedProbe, flow: int, port: int, seen: ResponderAnswer | None) -> ConnectReport:
    """The socket's report: from a pod, its name and the peer it saw; from another server, only that it answered."""
    local = resolved.sender.address
    if seen is not None:
        return ConnectReport(flow, local, port, "", seen.backend, seen.peer, seen.peer_port)
    dialled = (resolved.destination, resolved.port)
    names = [each.name for each in resolved.receivers if each.ports and (each.address, each.ports[0]) == dialled]
    return ConnectReport(flow, local, port, "", names[0] if names else "", local, port)
