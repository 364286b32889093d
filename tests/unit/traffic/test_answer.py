"""What a responder says is read back, and nothing else is."""

import json
from ipaddress import IPv4Address

import pytest

from proxylab.traffic.answer import Answer, AnswerWriter, read_answer, request_line
from proxylab.traffic.identity import Identity, Kind

IDENTITY = Identity(bytes(8), 0, 4, 10)
TOKEN = IDENTITY.token(Kind.PROBE, 7)


def test_an_answer_names_the_pod_and_the_peer_that_it_saw() -> None:
    line = AnswerWriter("echo-1").answer(request_line(TOKEN, b"filling"), "10.0.0.1", 4711)
    assert line is not None
    assert line.endswith(b"\n")
    assert json.loads(line[48:]) == {"pod": "echo-1", "peer": "10.0.0.1", "port": 4711}
    assert read_answer(line, TOKEN) == Answer("echo-1", IPv4Address("10.0.0.1"), 4711)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        TOKEN,
        IDENTITY.token(Kind.REPLY, 7),
        IDENTITY.token(Kind.REPLY, 7) + b" {",
        IDENTITY.token(Kind.REPLY, 7) + b' {"pod": 1, "peer": "10.0.0.1", "port": 1}',
        IDENTITY.token(Kind.REPLY, 7) + b' {"pod": "a", "peer": "nowhere", "port": 1}',
        IDENTITY.token(Kind.REPLY, 8) + b' {"pod": "a", "peer": "10.0.0.1", "port": 1}',
        IDENTITY.token(Kind.REPLY, 7) + b' {"pod": "a", "peer": "10.0.0.1", "port": 1}' + b" " * 2000,
        IDENTITY.token(Kind.REPLY, 7) + b"\xff\xfe",
    ],
)
def test_what_is_no_answer_to_this_flow_is_none(line: bytes) -> None:
    assert read_answer(line, TOKEN) is None


def test_a_responder_answers_no_answer() -> None:
    assert AnswerWriter("echo-1").answer(IDENTITY.token(Kind.REPLY, 7), "10.0.0.1", 1) is None
