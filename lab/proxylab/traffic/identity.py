"""Finds the flow of a packet, whatever a proxy has done to its addresses and ports.

It owns the token that payloads carry, the initial sequence numbers that identify TCP flows, and the parsers of both.
Addresses and ports are no evidence: a proxy rewrites them, and ``--random-fully`` rewrites ports at random.

A token is 48 bytes of text, so that it can be read in any capture::

    proxylab probe 3f9a01c2b4d5e6f7 000000010000002a
             |     |                |       number of the flow, or of the sentinel packet
             |     |                run of a probe, counted over the whole lab
             |     nonce of the lab, made of the run's seed
             five letters: probe, reply, guard (a sentinel packet) or pulse (a stream packet)

A listener would not see a payload in a crafted SYN, so its initial sequence number is its identity: NAT leaves sequence
numbers alone (only helpers such as FTP's shift them), a SYN/ACK or a reset acknowledges the number plus one (RFC 9293,
section 3.5), and an ICMP error quotes it in its first eight bytes (RFC 792).

Each flow's number is below those of all flows before it. A node's kernel resets the answer to a crafted SYN, so its
connection is closed as soon as it is made. Where masquerading has given it a port from which a later flow is sent to
the same backend, the kernel evicts the closed one if the later SYN's number is above (``nf_nat_used_tuple_harder`` in
net/netfilter/nf_nat_core.c). Conntrack would then have no entry of the earlier flow.
"""

import hashlib
from binascii import Error as NotHexadecimalError
from binascii import unhexlify
from enum import Enum
from typing import Final

TOKEN_BYTES: Final = 48
_NUMBER_AT: Final = 40

# The distance between the initial sequence numbers of two flows: the number after a SYN (seq + 1) is never another
# flow's SYN.
_STRIDE: Final = 4
_HIGHEST: Final = (1 << 32) - _STRIDE

WORDS: Final = b"proxylab "
"""The first bytes of every token."""

_HTTP_REQUEST: Final = b"GET "
_PROBE_WORD: Final = WORDS + b"probe "
_REPLY_WORD: Final = WORDS + b"reply "
_STREAM_WORD: Final = WORDS + b"pulse "
_STREAM_STEM_AT: Final = len(_STREAM_WORD)


class TokenKind(Enum):
    """The kind of packet that a token names. All words have one length, so that all tokens have."""

    PROBE = _PROBE_WORD
    REPLY = _REPLY_WORD
    SENTINEL = WORDS + b"guard "


def nonce_of(seed: int) -> bytes:
    """The nonce of a lab: the same for the same seed, so that a run can be repeated to the byte.

    It need not be secret: a lab's packets never leave its sandbox.
    """
    return hashlib.sha256(b"proxylab %d" % seed).digest()[:8]


def answer_to(request: bytes) -> bytes | None:
    """The first bytes of an answer to ``request``: its token, marked as a reply; ``None`` if it gets no answer.

    A request without a token gets an answer without one. An answer never gets an answer: otherwise a forged source
    address could make two responders talk to each other without end.
    """
    if request.startswith(_REPLY_WORD):
        return None
    if request.startswith((_PROBE_WORD, _STREAM_WORD)) and len(request) >= TOKEN_BYTES:
        return _REPLY_WORD + request[len(_PROBE_WORD) : TOKEN_BYTES]
    return _REPLY_WORD


def is_of_probe(request: bytes | bytearray) -> bool:
    """Whether a flow of a probe sends it, which ends its connection when it has the answer."""
    return request.startswith(_PROBE_WORD)


def is_of_stream(request: bytes | bytearray) -> bool:
    """Whether more requests follow on the connection: a stream sends it."""
    return request.startswith(_STREAM_WORD)


class Identity:
    """The identities of all flows and all sentinel packets of one run of a probe."""

    __slots__ = ("_first", "_heads", "_stem", "flows")

    def __init__(self, nonce: bytes, serial: int, first: int, flows: int) -> None:
        """Make an identity; only ``IdentityRegistry.issue`` does.

        Args:
            nonce: eight bytes that no other lab shares.
            serial: counts the runs of a lab; a probe that runs again gets another.
            first: the initial sequence number of flow 0.
            flows: how many flows there are; flow numbers are below it.
        """
        self.flows = flows
        self._first = first
        self._stem = f"{nonce.hex()} {serial:08x}".encode()
        self._heads = {self.stem(kind): kind for kind in TokenKind}

    def stem(self, kind: TokenKind) -> bytes:
        """The first bytes of all tokens of one kind: everything up to the number."""
        return kind.value + self._stem

    def token(self, kind: TokenKind, number: int) -> bytes:
        """The token of a flow, or of a sentinel packet, by its number."""
        return b"%s%08x" % (self.stem(kind), number)

    def stream_token(self, number: int) -> bytes:
        """The token of a stream packet: it belongs to no flow of a run, so ``read`` does not know it."""
        return b"%s%s%08x" % (_STREAM_WORD, self._stem, number & 0xFFFFFFFF)

    def read_stream(self, payload: bytes) -> int | None:
        """The number of the stream packet whose token ``payload`` begins with, or of that which it answers."""
        if payload[_STREAM_STEM_AT:_NUMBER_AT] != self._stem or not payload.startswith((_STREAM_WORD, _REPLY_WORD)):
            return None
        digits = payload[_NUMBER_AT:TOKEN_BYTES]
        return int(digits, 16) if len(digits) == 8 and digits.isalnum() and digits.isascii() else None

    def read(self, payload: bytes) -> tuple[TokenKind, int] | None:
        """The kind of the token at the head of ``payload``, and the number of its flow or sentinel packet.

        ``None`` if there is no token, if it is another run's, or if it names a flow that does not exist.
        """
        kind = self._heads.get(payload[:_NUMBER_AT])
        if kind is None:
            return None
        try:
            digits = unhexlify(payload[_NUMBER_AT:TOKEN_BYTES])
        except NotHexadecimalError:
            return None
        number = int.from_bytes(digits, "big")
        if len(digits) != 4 or (number >= self.flows and kind is not TokenKind.SENTINEL):
            return None
        return kind, number

    def flow_of_request(self, payload: bytes) -> int | None:
        """The flow whose request begins ``payload``, a line or an HTTP request; ``None`` for other data."""
        in_header = payload.startswith(_HTTP_REQUEST) and payload.find(self.stem(TokenKind.PROBE))
        token = self.read(payload[max(0, in_header) :])
        return token[1] if token is not None and token[0] is TokenKind.PROBE else None

    def sequence(self, flow: int) -> int:
        """The initial sequence number of ``flow``."""
        return self._first - flow * _STRIDE

    def flow_of_sequence(self, sequence: int) -> int | None:
        """The flow with this initial sequence number, or ``None``."""
        flow, rest = divmod(self._first - sequence, _STRIDE)
        return flow if rest == 0 and 0 <= flow < self.flows else None


class IdentityRegistry:
    """Issues identities, each unlike all others of the lab.

    Sequence numbers start again from the highest when the whole space of 2**32 has been used, a billion flows later.
    """

    def __init__(self, nonce: bytes) -> None:
        self._nonce = nonce
        self._serial = 0
        self._next = _HIGHEST

    def issue(self, flows: int) -> Identity:
        """A fresh identity for a run of ``flows`` flows."""
        span = flows * _STRIDE
        if self._next < span:
            self._next = _HIGHEST
        identity = Identity(self._nonce, self._serial & 0xFFFFFFFF, self._next, flows)
        self._serial += 1
        self._next -= span
        return identity
