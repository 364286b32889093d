"""What became of each pulse of a stream, step by step.

Owns: ``Ledger``: which pulses are out, and the end of each.
Must not: touch sockets, or wait.

A pulse that is not answered when its step ends is lost to that step, whatever comes later: TCP sends again until a link
is mended. What comes then is kept, as late.
"""

import time
from dataclasses import dataclass

from proxylab.evidence.streams import Break, BreakKind, StreamPacket, StreamPacketFate
from proxylab.traffic.answer import read_answer
from proxylab.traffic.identity import TOKEN_BYTES, Identity, answer_to

__all__ = ["Ledger"]


@dataclass(slots=True)
class _Sent:
    number: int
    at: int
    token: bytes


class Ledger:
    """What became of each pulse of a stream, step by step."""

    def __init__(self, identity: Identity) -> None:
        self.breaks: list[Break] = []
        self._identity = identity
        self._next = 0
        self._out: dict[bytes, _Sent] = {}
        self._given_up: dict[bytes, _Sent] = {}
        self._settled: list[StreamPacket] = []
        self._late: list[StreamPacket] = []
        self._latest: StreamPacket | None = None

    @property
    def sent(self) -> int:
        """How many pulses have been sent, over all steps."""
        return self._next

    @property
    def outstanding(self) -> bool:
        """Whether some pulse is neither answered nor turned away."""
        return bool(self._out)

    @property
    def latest(self) -> StreamPacket | None:
        """The pulse that was answered last."""
        return self._latest

    def issue(self) -> bytes:
        """The token of the next pulse, which is sent now."""
        token = self._identity.packet(self._next)
        self._out[answer_to(token) or b""] = _Sent(self._next, time.time_ns(), token)
        self._next += 1
        return token

    def answered(self, line: bytes, at: int) -> None:
        """An answer has come: to a pulse, or to one that was given up; else it is nobody's."""
        key = line[:TOKEN_BYTES]
        sent, late = self._out.get(key), self._given_up.get(key)
        known = sent or late
        answer = None if known is None else read_answer(line, known.token)
        if known is None or answer is None:
            return
        delay = max(0, at - known.at)
        packet = StreamPacket(
            known.number, known.at, StreamPacketFate.ANSWERED, delay, answer.backend, answer.peer, answer.peer_port
        )
        self._latest = packet
        if sent is not None:
            del self._out[key]
            self._settled.append(packet)
        else:
            del self._given_up[key]
            self._late.append(packet)

    def rejected(self, payload: bytes, error: str) -> None:
        """An ICMP error has come that quotes ``payload``."""
        sent = self._out.pop(answer_to(payload[:TOKEN_BYTES]) or b"", None)
        if sent is not None:
            self._settled.append(StreamPacket(sent.number, sent.at, StreamPacketFate.REJECTED, error=error))

    def unsent(self, token: bytes, error: str) -> None:
        """The sender's own kernel would not send that pulse."""
        sent = self._out.pop(answer_to(token) or b"", None)
        if sent is not None:
            self._settled.append(StreamPacket(sent.number, sent.at, StreamPacketFate.LOST, error=error))

    def turned_away(self, fate: StreamPacketFate, error: str) -> None:
        """Everything that is under way has met this end."""
        self._settled += (StreamPacket(sent.number, sent.at, fate, error=error) for sent in self._out.values())
        self._out.clear()

    def gone(self, at: int, kind: BreakKind) -> None:
        """A connection has ended."""
        self.breaks.append(Break(at, kind))

    def close_step(self) -> tuple[tuple[StreamPacket, ...], tuple[StreamPacket, ...], tuple[Break, ...]]:
        """The pulses of the step, its late answers and its breaks; what is out is lost to it, and may come late."""
        self._given_up.update(self._out)
        self.turned_away(StreamPacketFate.LOST, "")
        settled, late, breaks = self._settled, self._late, self.breaks
        self._settled, self._late, self.breaks = [], [], []
        return tuple(sorted(settled, key=lambda packet: packet.number)), tuple(late), tuple(breaks)
