"""What requests and answers look like on the wire.

Owns: the line a flow sends, the line a responder answers, and reading both.
Must not: send or receive.

A request is a token, a filling and a newline. An answer is the token again as a reply, a space, one JSON object that
names the pod and the peer it saw, and a newline. Over UDP each is one datagram, over TCP one line. Who asks by HTTP (a
probe with ``http``, or somebody with curl in the lab) is answered the same object by HTTP.
"""

import json
from ipaddress import ip_address
from typing import Final

from proxylab.addresses import IPAddress
from proxylab.frozen import dataclass
from proxylab.traffic.identity import TOKEN_BYTES, answer_to

__all__ = ["LONGEST_ANSWER", "Answer", "Voice", "is_http", "read_answer", "request_line"]

LONGEST_ANSWER: Final = 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """What a responder said: its name, and the peer as it saw it."""

    backend: str
    peer: IPAddress
    peer_port: int


def request_line(token: bytes, filling: bytes = b"") -> bytes:
    """The request of a flow. ``filling`` holds no newline."""
    return token + filling + b"\n"


def is_http(request: bytes | bytearray) -> bool:
    """Whether a request, or the beginning of one, is of HTTP/1 (RFC 9112, section 3)."""
    return request.startswith((b"GET ", b"HEAD "))


class Voice:
    """Answers in one responder's name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._name = json.dumps(name).encode()

    def answer(self, request: bytes, peer: str, port: int) -> bytes | None:
        """The answer to a request from ``peer``; ``None`` to what is an answer itself."""
        told = b'{"pod": %s, "peer": "%s", "port": %d}\n' % (self._name, peer.encode(), port)
        if is_http(request):
            head = (
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
            )
            return head % len(told) + told
        token = answer_to(request)
        return None if token is None else b"%s %s" % (token, told)


def read_answer(line: bytes, token: bytes) -> Answer | None:
    """The answer in ``line`` to the request with ``token``; ``None`` if it is not one, or is another flow's."""
    if len(line) > LONGEST_ANSWER or line[:TOKEN_BYTES] != answer_to(token):
        return None
    try:
        match json.loads(line[TOKEN_BYTES:]):
            case {"pod": str(backend), "peer": str(peer), "port": int(port)}:
                return Answer(backend, ip_address(peer), port)
    except ValueError:
        pass
    return None
