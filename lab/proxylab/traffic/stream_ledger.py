"""The fate of each packet of a stream, step by step. ``Ledger`` touches no sockets and never waits.

A stream packet without an answer at the end of its step is lost to that step, whatever comes later: TCP sends again
until a link is mended. An answer that comes after that is recorded as late.
"""

import time
from dataclasses import dataclass
from typing import NamedTuple

from proxylab.evidence.stream_records import Break, BreakKind, StreamPacket, StreamPacketFate
from proxylab.traffic.answer import read_answer
from proxylab.traffic.identity import TOKEN_BYTES, Identity, answer_to

_LOST = StreamPacketFate.LOST


@dataclass(slots=True)
class _Sent:
    number: int
    at: int
    token: bytes


@dataclass(slots=True)
class _Heard:
    """How often a packet was answered."""

    number: int
    times: int = 1


class StepOfStream(NamedTuple):
    """A stream's packets of one step by number, its late answers to earlier ones, and its ended connections."""

    packets: tuple[StreamPacket, ...]
    late: tuple[StreamPacket, ...]
    breaks: tuple[Break, ...]


class Ledger:
    """The fate of each packet of a stream, step by step."""

    def __init__(self, identity: Identity, tail: bytes = b"") -> None:
        """An empty ledger; ``tail`` is what follows the token of each packet."""
        self.port = 0
        """The source port of the socket or connection in use."""
        self.breaks: list[Break] = []
        self._tail = tail
        self._heard: dict[bytes, _Heard] = {}
        self._identity = identity
        self._next = 0
        self._out: dict[bytes, _Sent] = {}
        self._given_up: dict[bytes, _Sent] = {}
        self._settled: list[StreamPacket] = []
        self._late: list[StreamPacket] = []
        self._latest: StreamPacket | None = None

    @property
    def sent(self) -> int:
        """How many packets have been sent, over all steps."""
        return self._next

    @property
    def outstanding(self) -> bool:
        """Whether some packet has neither an answer nor an error."""
        return bool(self._out)

    def awaits(self, number: int) -> bool:
        """Whether a packet up to that number has neither an answer nor an error."""
        return any(sent.number <= number for sent in self._out.values())

    @property
    def latest(self) -> StreamPacket | None:
        """The packet with the latest answer."""
        return self._latest

    def issue(self) -> bytes:
        """The token of the next packet, which the caller sends now."""
        token = self._identity.stream_token(self._next)
        self._out[answer_to(token) or b""] = _Sent(self._next, time.time_ns(), token)
        self._next += 1
        return token

    def answered(self, line: bytes, at: int) -> None:
        """Record an answer to a packet, given up or not; a line that answers none is ignored.

        A packet whose answer cannot be read is lost, and its answer altered.
        """
        key = line[:TOKEN_BYTES]
        if key in self._heard:
            self._heard[key].times += 1
            return
        known = self._out.get(key) or self._given_up.get(key)
        answer = None if known is None else read_answer(line, known.token)
        if known is None:
            return
        if answer is None:
            self._settle(key, StreamPacket(known.number, known.at, _LOST, error="EBADMSG", altered="reply"))
            return
        self._heard[key] = _Heard(known.number)
        altered = "" if answer.heard_whole(known.token + self._tail) else "request"
        packet = StreamPacket(
            known.number,
            known.at,
            StreamPacketFate.ANSWERED,
            max(0, at - known.at),
            answer.backend,
            answer.peer,
            answer.peer_port,
            own=answer.own,
            own_port=answer.own_port,
            altered=altered or ("" if answer.is_whole else "reply"),
            port=self.port,
        )
        self._latest = packet
        self._settle(key, packet)

    def _settle(self, key: bytes, packet: StreamPacket) -> None:
        if key in self._out:
            del self._out[key]
            self._settled.append(packet)
        else:
            del self._given_up[key]
            self._late.append(packet)

    def rejected(self, payload: bytes, error: str) -> None:
        """Record an ICMP error that quotes ``payload``."""
        sent = self._out.pop(answer_to(payload[:TOKEN_BYTES]) or b"", None)
        if sent is not None:
            self._settled.append(StreamPacket(sent.number, sent.at, StreamPacketFate.REJECTED, error=error))

    def unsent(self, token: bytes, error: str) -> None:
        """Record that the sender's own kernel did not send that packet."""
        sent = self._out.pop(answer_to(token) or b"", None)
        if sent is not None:
            self._settled.append(StreamPacket(sent.number, sent.at, StreamPacketFate.LOST, error=error))

    def settle_all(self, fate: StreamPacketFate, error: str) -> None:
        """Record this fate for every packet under way."""
        self._settled += (StreamPacket(sent.number, sent.at, fate, error=error) for sent in self._out.values())
        self._out.clear()

    def connection_ended(self, at: int, kind: BreakKind) -> None:
        """Record the end of a connection."""
        self.breaks.append(Break(at, kind))

    def heard_again(self) -> list[tuple[int, int]]:
        """The packets that got several answers since the last call, and how many."""
        again = [(each.number, each.times) for each in self._heard.values() if each.times > 1]
        self._heard.clear()
        return again

    def close_step(self) -> StepOfStream:
        """What the step was for the stream. Packets under way are lost to it, and may come late."""
        self._given_up.update(self._out)
        self.settle_all(StreamPacketFate.LOST, "")
        settled, late, breaks = self._settled, self._late, self.breaks
        self._settled, self._late, self.breaks = [], [], []
        packets = sorted(settled, key=lambda packet: packet.number)
        return StepOfStream(tuple(packets), tuple(late), tuple(breaks))
