"""Flows by kernel sockets of a protocol that the kernel may lack: SCTP, on sockets that only look like its own."""

import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

import pytest
from fake_lab import verdict_on
from msgspec.structs import replace
from scenario_cases import frontend, probe

from proxylab.addresses import Transport
from proxylab.errors import CapabilityError
from proxylab.evidence.evidence import ConnectReport
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.model import Listener, Plan, PlannedNamespace, Role
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.words import Manner
from proxylab.traffic.connect import Dialogues
from proxylab.traffic.identity import Identity
from proxylab.traffic.programs import Programs
from proxylab.traffic.responder import Responders
from proxylab.traffic.runner import Runner

SCTP = 132
MADE: list["LooksLikeSctp"] = []


class LooksLikeSctp:
    """A stream socket whose other end the test holds; it remembers what it was told."""

    error = 0

    def __init__(self, family: int, kind: int, protocol: int) -> None:
        self.made = (family, kind & ~socket.SOCK_NONBLOCK, protocol)
        self.told: list[object] = []
        self.own, self.other = socket.socketpair()
        self.own.setblocking(False)
        MADE.append(self)

    def bind(self, address: object) -> None:
        self.told.append(("bind", address))

    def connect(self, address: object) -> None:
        self.told.append(("connect", address))
        raise BlockingIOError(errno.EINPROGRESS, os.strerror(errno.EINPROGRESS))

    def setsockopt(self, *told: object) -> None:
        self.told.append(told)

    def getsockopt(self, *_: object) -> int:
        return self.error

    def listen(self, backlog: int) -> None:
        self.told.append(("listen", backlog > 0))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)


class WithSctp:
    """The module ``socket``, but for what makes one."""

    socket = LooksLikeSctp

    def __getattr__(self, name: str) -> Any:
        return getattr(socket, name)


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[LooksLikeSctp]]:
    MADE.clear()
    for module in ("connect", "responder"):
        monkeypatch.setattr(f"proxylab.traffic.{module}.inside", lambda _: contextlib.nullcontext())
        monkeypatch.setattr(f"proxylab.traffic.{module}.has_sctp", lambda: True)
        monkeypatch.setattr(f"proxylab.traffic.{module}.socket", WithSctp())
    yield MADE
    for each in MADE:
        each.own.close()
        each.other.close()


def resolved() -> ResolvedProbe:
    return replace(
        verdict_on(probe("p", "c", frontend())).resolved, protocol=Transport.SCTP, manner=Manner.CONNECT, port=7
    )


def dialogues() -> Dialogues:
    return Dialogues(NetNs("c", -1), resolved(), Identity(bytes(8), 0, 4, 1), [4000], 1000)


def test_an_association_is_dialled_spoken_and_answered_like_a_connection(sockets: list[LooksLikeSctp]) -> None:
    flows = dialogues()
    assert flows.advance()
    (sock,) = sockets
    assert sock.made == (socket.AF_INET, socket.SOCK_STREAM, SCTP)
    assert sock.told[1:] == [("bind", ("10.244.0.2", 4000)), ("connect", ("10.96.0.1", 7))]
    flows.advance()
    token = sock.other.recv(100)[:48]
    sock.other.send(b"proxylab reply " + token[15:] + b' {"pod": "echo", "peer": "10.244.0.2", "port": 4000}\n')
    flows.advance()
    here = ip_address("10.244.0.2")
    assert (flows.finished, flows.sent) == (True, 1)
    assert flows.reports == [ConnectReport(0, here, 4000, "", "echo", here, 4000)]
    flows.close()


def test_with_concurrency_1_a_flow_begins_after_both_ends_of_the_one_before_have_closed_it(
    sockets: list[LooksLikeSctp],
) -> None:
    one_by_one = replace(resolved(), protocol=Transport.TCP, flows=2, concurrency=1)
    flows = Dialogues(NetNs("c", -1), one_by_one, Identity(bytes(8), 0, 4, 1), [4000, 4001], 1000)
    flows.advance()
    flows.advance()
    (first,) = sockets
    token = first.other.recv(100)[:48]
    first.other.send(b"proxylab reply " + token[15:] + b' {"pod": "echo", "peer": "10.244.0.2", "port": 4000}\n')
    flows.advance()
    assert first.other.recv(100) == b"", "the client has ended its direction"
    assert not flows.advance()
    assert len(sockets) == 1, "the server has not"
    first.other.shutdown(socket.SHUT_WR)
    flows.advance()
    flows.advance()
    assert len(sockets) == 2
    assert [each.error for each in flows.reports] == [""]
    flows.close()


@pytest.mark.parametrize(("concurrency", "open_at_once"), [(None, 64), (1, 1), (10, 10)])
def test_concurrency_says_how_many_flows_are_under_way_at_once(
    sockets: list[LooksLikeSctp], concurrency: int | None, open_at_once: int
) -> None:
    many = replace(resolved(), flows=100, concurrency=concurrency)
    flows = Dialogues(NetNs("c", -1), many, Identity(bytes(8), 0, 4, 1), range(4000, 4100), 10_000)
    flows.advance()
    flows.advance()
    assert len(sockets) == open_at_once
    flows.close()


def test_an_association_that_is_turned_away_says_so(
    sockets: list[LooksLikeSctp], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LooksLikeSctp, "error", errno.ECONNREFUSED)
    flows = dialogues()
    while not flows.finished:
        flows.advance()
    assert [each.error for each in flows.reports] == ["ECONNREFUSED"]
    flows.close()


def test_a_listener_for_associations_listens_as_one_for_connections(sockets: list[LooksLikeSctp]) -> None:
    from proxylab.addresses import Protocol

    listener = Listener("echo", Protocol.SCTP, 7777, ip_address("10.244.0.3"))
    pod = PlannedNamespace(name="echo", role=Role.POD, listeners=(listener,))
    responders = Responders({"echo": NetNs("echo", -1)}, Plan(namespaces=(pod,), links=(), pods=()))
    (sock,) = sockets
    assert sock.made == (socket.AF_INET, socket.SOCK_STREAM, SCTP)
    assert sock.told[1:] == [("bind", ("10.244.0.3", 7777)), ("listen", True)]
    responders.close()


def test_where_the_kernel_has_none_the_lack_is_told_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxylab.traffic.connect.has_sctp", lambda: False)
    monkeypatch.setattr("proxylab.traffic.connect.known_modules", lambda: frozenset({"veth"}))
    anything: Any = object()
    runner = Runner({}, Plan(namespaces=(), links=(), pods=()), anything, anything, {})
    with pytest.raises(CapabilityError, match="SCTP sockets, with which probe") as refused:
        runner._prepare(resolved(), Identity(bytes(8), 0, 4, 1), [4000], Programs().on_the_way(resolved()))
    assert "'--kernel uml'" in str(refused.value)
