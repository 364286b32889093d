"""The line that a flow sends, the line that a responder answers, and the parser of that answer.

A request is a token, a filling and a newline. An answer is the token marked as a reply, a space, one JSON object that
names the pod and the peer it saw, and a newline. Over UDP each is one datagram, over TCP one line. An HTTP client (a
probe with ``http``, or curl in the lab) gets the same object as an HTTP response.
"""

import json
import re
from typing import Final

from msgspec import Struct

from proxylab.addresses import IPAddress
from proxylab.encoding import MisfitError, decode
from proxylab.traffic.identity import TOKEN_BYTES, answer_to

__all__ = ["LONGEST_ANSWER", "Answer", "AnswerWriter", "is_http", "read_answer", "read_document", "request_line"]

LONGEST_ANSWER: Final = 1024
_FORWARDED: Final = re.compile(rb"\r\n[Xx]-[Ff]orwarded-[Ff]or: ([0-9A-Fa-f:., ]*)\r\n")


class Answer(Struct, frozen=True, rename={"backend": "pod", "peer_port": "port", "forwarded_for": "forwardedFor"}):
    """A responder's answer: its name, and the peer address and port that it saw; by HTTP also X-Forwarded-For."""

    backend: str
    peer: IPAddress
    peer_port: int
    forwarded_for: str = ""


def request_line(token: bytes, filling: bytes = b"") -> bytes:
    """The request of a flow. ``filling`` must hold no newline."""
    return token + filling + b"\n"


def is_http(request: bytes | bytearray) -> bool:
    """Whether a request, or its beginning, is HTTP/1 (RFC 9112, section 3)."""
    return request.startswith((b"GET ", b"HEAD "))


class AnswerWriter:
    """Writes the answers of one responder."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._name = json.dumps(name).encode()

    def answer(self, request: bytes, peer: str, port: int) -> bytes | None:
        """The answer to a request from ``peer``; ``None`` if the request is itself an answer."""
        document = b'{"pod": %s, "peer": "%s", "port": %d}\n' % (self._name, peer.encode(), port)
        if is_http(request):
            if found := _FORWARDED.search(request):
                document = b'%s, "forwardedFor": "%s"}\n' % (document[:-2], found[1])
            head = (
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
            )
            return head % len(document) + document
        token = answer_to(request)
        return None if token is None else b"%s %s" % (token, document)


def read_answer(line: bytes, token: bytes) -> Answer | None:
    """The answer in ``line`` to the request with ``token``; ``None`` if it is none, or answers another flow."""
    if len(line) > LONGEST_ANSWER or line[:TOKEN_BYTES] != answer_to(token):
        return None
    return read_document(line[TOKEN_BYTES:])


def read_document(document: bytes) -> Answer | None:
    """The answer in a JSON object; ``None`` for another object, and for other text."""
    try:
        return decode(document, Answer)
    except MisfitError:
        return None
