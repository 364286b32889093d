"""The fate of each packet of a stream."""

from proxylab.evidence.stream_records import BreakKind, StreamPacketFate
from proxylab.traffic.answer import AnswerWriter, request_line
from proxylab.traffic.identity import Identity
from proxylab.traffic.stream_ledger import Ledger

ANSWERED, LOST, REJECTED = StreamPacketFate.ANSWERED, StreamPacketFate.LOST, StreamPacketFate.REJECTED


def ledger() -> Ledger:
    return Ledger(Identity(b"12345678", 1, 4, 1))


def answer(token: bytes, name: str = "echo") -> bytes:
    said = AnswerWriter(name).answer(request_line(token), ("10.244.0.2", 12345), ("10.244.1.2", 8080))
    assert said is not None
    return said


def test_each_fate_of_a_stream_packet() -> None:
    kept = ledger()
    tokens = [kept.issue() for _ in range(4)]
    assert kept.outstanding
    kept.rejected(request_line(tokens[1]), "ECONNREFUSED")
    kept.answered(answer(tokens[0]), 2**62)
    kept.unsent(tokens[2], "EPERM")
    packets, late, breaks = kept.close_step()
    assert [(each.number, each.fate, each.error) for each in packets] == [
        (0, ANSWERED, ""),
        (1, REJECTED, "ECONNREFUSED"),
        (2, LOST, "EPERM"),
        (3, LOST, ""),
    ]
    assert (packets[0].backend, str(packets[0].peer), packets[0].peer_port) == ("echo", "10.244.0.2", 12345)
    assert (late, breaks, kept.outstanding) == ((), (), False)


def test_an_answer_after_the_end_of_its_step_is_late_and_no_longer_lost() -> None:
    kept = ledger()
    token = kept.issue()
    assert [each.fate for each in kept.close_step()[0]] == [LOST]
    kept.answered(answer(token), 2**62)
    packets, late, _ = kept.close_step()
    assert (packets, [each.number for each in late]) == ((), [0])
    assert kept.close_step() == ((), (), ())


def test_a_line_that_answers_no_packet_is_ignored() -> None:
    kept = ledger()
    token = kept.issue()
    kept.answered(answer(Identity(b"12345678", 2, 4, 1).stream_token(0)), 1)
    kept.answered(b"HTTP/1.1 200 OK\n", 1)
    kept.rejected(b"", "EHOSTUNREACH")
    assert kept.outstanding
    kept.answered(answer(token), 1)
    kept.answered(answer(token), 1)
    assert [each.fate for each in kept.close_step()[0]] == [ANSWERED]


def test_a_connection_takes_along_what_is_under_way_on_it() -> None:
    kept = ledger()
    kept.issue()
    kept.issue()
    kept.settle_all(LOST, "ECONNRESET")
    kept.connection_ended(5, BreakKind.RESET)
    packets, _, breaks = kept.close_step()
    assert [(each.fate, each.error) for each in packets] == [(LOST, "ECONNRESET")] * 2
    assert [(each.at, each.kind) for each in breaks] == [(5, BreakKind.RESET)]
    assert kept.sent == 2
