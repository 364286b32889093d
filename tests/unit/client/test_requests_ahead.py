"""Requests that a client sends ahead of their answers: the order, and what an error leaves of the connection."""

import socket
from collections.abc import Iterator

import pytest

from proxylab.client.connection import Connection
from proxylab.errors import EngineError, InternalError
from proxylab.protocol.channel import Channel
from proxylab.protocol.faults import fault_of
from proxylab.protocol.messages import AnyResponse, Dump, Failed, Inspect, Response
from proxylab.protocol.standing_labs import AnyRequest
from proxylab.timing import Deadline

SOON = 5.0


@pytest.fixture
def ends() -> Iterator[tuple[Connection, Channel]]:
    ours, theirs = socket.socketpair()
    lab = Channel(theirs)
    with Connection(ours) as connection:
        yield connection, lab
    lab.close()


def answer(lab: Channel, *answers: AnyResponse) -> None:
    for each in answers:
        lab.send(each, Deadline.after(SOON))


def test_requests_leave_ahead_and_answers_come_in_their_order(ends: tuple[Connection, Channel]) -> None:
    connection, lab = ends
    names = [f"node-{number}" for number in range(20)]
    answer(lab, *(Response(name) for name in names))
    answers = connection.requests(map(Dump, names), SOON)
    assert next(answers) == "node-0"
    first = [lab.receive(AnyRequest, Deadline.after(SOON)) for _ in range(8)]
    assert [each.node for each in first if isinstance(each, Dump)] == names[:8]
    assert [*answers] == names[1:]
    assert not connection.closed


def test_an_error_of_the_last_request_leaves_the_connection(ends: tuple[Connection, Channel]) -> None:
    connection, lab = ends
    answer(lab, Response("rules"), Failed(fault_of(EngineError("node-b", "its rules were refused", ""))))
    answers = connection.requests(map(Dump, ("node-a", "node-b")), SOON)
    assert next(answers) == "rules"
    with pytest.raises(EngineError, match="its rules were refused"):
        next(answers)
    assert not connection.closed


def test_an_error_with_answers_due_closes_it(ends: tuple[Connection, Channel]) -> None:
    connection, lab = ends
    answer(lab, Failed(fault_of(EngineError("node-a", "its rules were refused", ""))))
    with pytest.raises(EngineError):
        next(connection.requests(map(Dump, ("node-a", "node-b")), SOON))
    assert connection.closed


def test_an_answer_to_something_else_closes_it(ends: tuple[Connection, Channel]) -> None:
    connection, lab = ends
    answer(lab, Failed(fault_of(EngineError("node-a", "", ""))), Response("rules"))
    with pytest.raises(EngineError):
        connection.request(Dump("node-a"), Deadline.after(SOON))
    with pytest.raises(InternalError):
        connection.request(Inspect(), Deadline.after(SOON))
    assert connection.closed


def test_who_stops_early_closes_it(ends: tuple[Connection, Channel]) -> None:
    connection, lab = ends
    answer(lab, Response("rules"))
    answers = connection.requests(map(Dump, ("node-a", "node-b")), SOON)
    next(answers)
    answers.close()
    assert connection.closed
