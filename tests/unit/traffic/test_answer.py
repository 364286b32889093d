"""What a responder says is read back, and nothing else is."""

import json
from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxylab.traffic.answer import AnswerWriter, read_answer, request_line
from proxylab.traffic.identity import Identity, TokenKind

IDENTITY = Identity(bytes(8), 0, 4, 10)
TOKEN = IDENTITY.token(TokenKind.PROBE, 7)


PEER, OWN = ("10.0.0.1", 4711), ("10.244.1.10", 8080)


def said(request: bytes) -> bytes:
    line = AnswerWriter("echo-1").answer(request, PEER, OWN)
    assert line is not None
    return line


def test_an_answer_names_the_pod_its_own_end_and_the_peer_that_it_saw() -> None:
    line = said(request_line(TOKEN, b"filling"))
    assert line.endswith(b"\n")
    document = json.loads(line[48:])
    assert {key: document[key] for key in ("pod", "peer", "port", "own", "ownPort")} == {
        "pod": "echo-1", "peer": "10.0.0.1", "port": 4711, "own": "10.244.1.10", "ownPort": 8080,
    }  # fmt: skip
    answer = read_answer(line, TOKEN)
    assert answer is not None
    assert (answer.backend, answer.peer, answer.peer_port) == ("echo-1", IPv4Address("10.0.0.1"), 4711)
    assert (answer.own, answer.own_port) == (IPv4Address("10.244.1.10"), 8080)
    assert answer.is_whole
    assert answer.heard_whole(request_line(TOKEN, b"filling"))


@given(at=st.integers(0, 1000), bit=st.integers(0, 7))
def test_any_changed_bit_of_a_request_shows_in_the_answer(at: int, bit: int) -> None:
    request = bytearray(request_line(TOKEN, b"filling"))
    at %= len(request) - 1  # the newline ends the line, whatever it holds
    request[at] ^= 1 << bit
    line = AnswerWriter("echo-1").answer(bytes(request), PEER, OWN)
    answer = None if line is None else read_answer(line, TOKEN)
    assert answer is None or not answer.heard_whole(request_line(TOKEN, b"filling"))


@given(at=st.integers(0, 1000), bit=st.integers(0, 7))
def test_no_changed_bit_of_an_answer_passes_for_the_answer(at: int, bit: int) -> None:
    line = bytearray(said(request_line(TOKEN)))
    whole = read_answer(bytes(line), TOKEN)
    at %= len(line) - 1
    line[at] ^= 1 << bit
    answer = read_answer(bytes(line), TOKEN)
    assert answer is None or answer == whole or not answer.is_whole


@pytest.mark.parametrize(
    "line",
    [
        b"",
        TOKEN,
        IDENTITY.token(TokenKind.REPLY, 7),
        IDENTITY.token(TokenKind.REPLY, 7) + b" {",
        IDENTITY.token(TokenKind.REPLY, 7) + b' {"pod": 1, "peer": "10.0.0.1", "port": 1}',
        IDENTITY.token(TokenKind.REPLY, 7) + b' {"pod": "a", "peer": "nowhere", "port": 1}',
        IDENTITY.token(TokenKind.REPLY, 8) + b' {"pod": "a", "peer": "10.0.0.1", "port": 1}',
        IDENTITY.token(TokenKind.REPLY, 7) + b' {"pod": "a", "peer": "10.0.0.1", "port": 1}' + b" " * 2000,
        IDENTITY.token(TokenKind.REPLY, 7) + b"\xff\xfe",
    ],
)
def test_what_is_no_answer_to_this_flow_is_none(line: bytes) -> None:
    assert read_answer(line, TOKEN) is None


def test_a_responder_answers_no_answer() -> None:
    assert AnswerWriter("echo-1").answer(IDENTITY.token(TokenKind.REPLY, 7), PEER, OWN) is None
