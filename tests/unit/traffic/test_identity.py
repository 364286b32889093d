"""Tokens and sequence numbers lead back to their flow, and to no other."""

import pytest

from proxylab.traffic.identity import TOKEN_BYTES, Identity, IdentityRegistry, TokenKind, answer_to

NONCE = bytes(range(8))


def test_a_token_can_be_read_by_people() -> None:
    assert Identity(NONCE, 1, 4, 50).token(TokenKind.PROBE, 42) == b"proxylab probe 0001020304050607 000000010000002a"


@pytest.mark.parametrize("kind", TokenKind)
def test_all_kinds_are_of_one_length(kind: TokenKind) -> None:
    assert len(Identity(NONCE, 2**32 - 1, 4, 50).token(kind, 42)) == TOKEN_BYTES


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"proxylab probe ",
        b"proxylab probe 0001020304050607 000000010000002",
        b"proxylab probe 0001020304050607 00000001zzzzzzzz",
        b"proxylab probe 0001020304050607 00000001 +00002a",
        b"proxylab probe 0001020304050608 000000010000002a",
        b"proxylab probe 0001020304050607 000000020000002a",
        b"proxylab probe 0001020304050607 0000000100000032",
        b"proxylab prove 0001020304050607 000000010000002a",
        b" proxylab probe 0001020304050607 00000001000002a",
    ],
)
def test_what_is_no_token_of_this_run_is_none(payload: bytes) -> None:
    assert Identity(NONCE, 1, 4, 50).read(payload) is None


def test_a_request_by_http_bears_its_token_in_a_header() -> None:
    identity = Identity(NONCE, 1, 4, 50)
    token = identity.token(TokenKind.PROBE, 42)
    assert identity.flow_of_request(b"GET /healthz HTTP/1.1\r\nX-Request-Id: " + token + b"\r\nHost: a\r\n\r\n") == 42
    assert identity.flow_of_request(token + b"\n") == 42
    assert identity.flow_of_request(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n") is None
    assert identity.flow_of_request(b"POST / HTTP/1.1\r\n" + token) is None


def test_sentinels_are_numbered_apart_from_flows() -> None:
    identity = Identity(NONCE, 1, 4, 1)
    assert identity.read(identity.token(TokenKind.SENTINEL, 9)) == (TokenKind.SENTINEL, 9)
    assert identity.read(identity.token(TokenKind.PROBE, 9)) is None


def test_only_the_exact_sequence_number_is_a_flow() -> None:
    identity = Identity(NONCE, 1, 400, 3)
    assert [identity.flow_of_sequence(n) for n in range(388, 406)].count(None) == 15
    assert [identity.flow_of_sequence(identity.sequence(flow)) for flow in range(3)] == [0, 1, 2]


def test_sequence_numbers_start_again_when_the_space_is_used_up_and_no_run_straddles_the_end() -> None:
    registry = IdentityRegistry(NONCE)
    big = (2**32 - 100) // 4
    first, second = registry.issue(big), registry.issue(1000)
    assert 0 < first.sequence(big - 1) < first.sequence(0) < 2**32
    assert second.sequence(0) == first.sequence(0)
    assert second.token(TokenKind.PROBE, 0) != first.token(TokenKind.PROBE, 0)


def test_each_flow_s_number_is_below_those_of_all_before_it() -> None:
    registry = IdentityRegistry(NONCE)
    numbers = [identity.sequence(flow) for identity in map(registry.issue, (3, 1, 2)) for flow in range(identity.flows)]
    assert numbers == sorted(set(numbers), reverse=True)


def test_an_answer_bears_the_token_of_its_request() -> None:
    identity = Identity(NONCE, 1, 4, 50)
    answer = answer_to(identity.token(TokenKind.PROBE, 42) + b"filling\n")
    assert answer is not None
    assert identity.read(answer) == (TokenKind.REPLY, 42)


def test_an_answer_is_never_answered() -> None:
    for request in (b"hello", b"proxylab probe too short", Identity(NONCE, 1, 4, 9).token(TokenKind.PROBE, 3)):
        answer = answer_to(request)
        assert answer is not None
        assert answer_to(answer) is None
