"""The line that a flow sends, the line that a responder answers, and the parser of that answer.

A request is a token, a filling and a newline. An answer is the token marked as a reply, a space, one JSON object that
names the pod, the peer it saw and its own address and port, and a newline. Over UDP each is one datagram, over TCP one
line. The checksum of the request as the pod heard it (CRC-32) and that of the answer show whether both came as they
were sent: taps keep no data of connections. An HTTP client (a probe with ``http``, or curl in the lab) gets the pod and
the peer as an HTTP response.
"""

import json
import re
from collections.abc import Callable
from typing import Final
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import IPAddress
from proxylab.encoding import MisfitError, decode
from proxylab.traffic.identity import TOKEN_BYTES, answer_to

LONGEST_ANSWER: Final = 1024
_FORWARDED: Final = re.compile(rb"\r\n[Xx]-[Ff]orwarded-[Ff]or: ([0-9A-Fa-f:., ]*)\r\n")


_RENAMED: Final = {
    "backend": "pod", "peer_port": "port", "forwarded_for": "forwardedFor", "own_port": "ownPort", "checksum": "sum",
}  # fmt: skip
_CHECKSUM: Final = b', "sum": '


class ResponderAnswer(Struct, frozen=True, rename=_RENAMED):
    """A responder's answer: its name, and the peer address and port that it saw; by HTTP also X-Forwarded-For.

    Attributes:
        own: the address at which the responder got the request.
        own_port: the port of that.
        heard: the checksum of the request, as it came.
        checksum: of the answer's bytes before it; 0 once it has been found right.
    """

    backend: str
    peer: IPAddress
    peer_port: int
    forwarded_for: str = ""
    own: IPAddress | None = None
    own_port: int = 0
    heard: int = 0
    checksum: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether it came as it was sent."""
        return not self.checksum

    def heard_whole(self, request: bytes) -> bool:
        """Whether the responder heard the request as it was sent."""
        return self.heard == crc32(request.rstrip(b"\n"))


def request_line(token: bytes, filling: bytes = b"") -> bytes:
    """The request of a flow. ``filling`` must hold no newline."""
    return token + filling + b"\n"


def is_http(request: bytes | bytearray) -> bool:
    """Whether a request, or its beginning, is HTTP/1 (RFC 9112, section 3)."""
    return request.startswith((b"GET ", b"HEAD "))


Heard = Callable[[bytes, tuple[str, int], tuple[str, int]], None]
"""Called with each request, the peer that has sent it, and where it has come."""


class AnswerWriter:
    """Writes the answers of one responder, and tells ``heard`` of each request."""

    def __init__(self, name: str, heard: Heard | None = None) -> None:
        self.name = name
        self._name = json.dumps(name).encode()
        self._heard = heard

    def answer(self, request: bytes, peer: tuple[str, int], own: tuple[str, int]) -> bytes | None:
        """The answer to a request from ``peer`` to ``own``; ``None`` if the request is itself an answer."""
        if self._heard is not None:
            self._heard(request, peer, own)
        document = b'{"pod": %s, "peer": "%s", "port": %d}\n' % (self._name, peer[0].encode(), peer[1])
        if is_http(request):
            if found := _FORWARDED.search(request):
                document = b'%s, "forwardedFor": "%s"}\n' % (document[:-2], found[1])
            head = (
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
            )
            return head % len(document) + document
        token = answer_to(request)
        if token is None:
            return None
        heard = crc32(request.rstrip(b"\n"))
        whole = b'%s %s, "own": "%s", "ownPort": %d, "heard": %d' % (
            token, document[:-2], own[0].encode(), own[1], heard
        )  # fmt: skip
        return b"%s%s%d}\n" % (whole, _CHECKSUM, crc32(whole))


def read_answer(line: bytes, token: bytes) -> ResponderAnswer | None:
    """The answer in ``line`` to the request with ``token``; ``None`` if it is none, or answers another flow."""
    if len(line) > LONGEST_ANSWER or line[:TOKEN_BYTES] != answer_to(token):
        return None
    answer = read_document(line[TOKEN_BYTES:])
    if answer is None or answer.checksum != crc32(line.rpartition(_CHECKSUM)[0]):
        return answer
    return replace(answer, checksum=0)


def read_document(document: bytes) -> ResponderAnswer | None:
    """The answer in a JSON object; ``None`` for another object, and for other text."""
    try:
        return decode(document, ResponderAnswer)
    except MisfitError:
        return None
