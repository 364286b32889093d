"""The filters of taps. The kernel runs one before a frame costs buffer space and a system call.

``FLOW_FRAMES``, ``STREAM_FRAMES``, ``SEGMENTS`` and ``NOTHING`` are programs of the classic BPF
(Documentation/networking/filter.rst in Linux). They pass every frame that ``match`` can use, and may pass frames that
belong to no flow.

Of IPv4 and IPv6 they keep TCP with SYN, or with RST and ACK; SCTP; UDP and ICMP echo with a token; and ICMP errors.
They drop the data and the acknowledgements of dialogues, datagrams without a token, neighbour discovery, and the
answers of a sender's kernel to each reply to a crafted packet, for which it has no socket: a reset that acknowledges
nothing, or a port unreachable. They keep later fragments of UDP and ICMP of any flow, because only the first fragment
has a token.

A load beyond the frame's end makes the program drop the frame, which is right: a frame cut off before the fields in
question has no identity.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

# include/uapi/linux/bpf_common.h: class | size | mode, class | operation | source
_LOAD_BYTE: Final = 0x30
_LOAD_HALF: Final = 0x28
_LOAD_BYTE_X: Final = 0x50
_LOAD_WORD_X: Final = 0x40
_HEADER_LENGTH_TO_X: Final = 0xB1  # x = 4 * (the byte's lower half): made for the length of an IPv4 header
_NUMBER_TO_X: Final = 0x01
_TO_X: Final = 0x07
_ADD_X: Final = 0x0C
_AND: Final = 0x54
_SHIFT_RIGHT: Final = 0x74
_IF_EQUAL: Final = 0x15
_IF_ANY_BIT: Final = 0x45
_IF_NOT_BELOW: Final = 0x35
_RETURN: Final = 0x06

_ETHERNET: Final = 14
_ALL: Final = 0x40000
_HEAD_OF_TOKEN: Final = int.from_bytes(b"prox", "big")
_REPLY_IN_TOKEN: Final = int.from_bytes(b"repl", "big")

# From the start of the transport header, to which x points once the Ethernet header is added.
_TCP_FLAGS: Final = _ETHERNET + 13
_PAYLOAD: Final = _ETHERNET + 8
_TOKEN_KIND: Final = 8 + len("proxylab ")  # from the start of a UDP header
_QUOTED_PROTOCOL: Final = _PAYLOAD + 9
_QUOTED_TOKEN_KIND: Final = _PAYLOAD + 20 + _TOKEN_KIND

_IPV6_BYTES: Final = 40
_QUOTED_NEXT_HEADER: Final = _PAYLOAD + 6
_QUOTED_TOKEN_KIND_6: Final = _PAYLOAD + _IPV6_BYTES + _TOKEN_KIND
_FIRST_INFORMATIONAL: Final = 128  # ICMPv6 types below are errors (RFC 4443, section 2.1)


class _Step(NamedTuple):
    """One instruction. A jump that names no label goes on with the next one."""

    code: int
    operand: int
    then: str = ""
    otherwise: str = ""
    label: str = ""


_OTHER_SEGMENTS: Final = _Step(_IF_ANY_BIT, 0x04, otherwise="no")  # without RST

_STEPS: Final = (
    _Step(_LOAD_HALF, 12),
    _Step(_IF_EQUAL, 0x0800, otherwise="ipv6?"),
    _Step(_HEADER_LENGTH_TO_X, _ETHERNET),
    _Step(_LOAD_HALF, _ETHERNET + 6),
    _Step(_IF_ANY_BIT, 0x1FFF, otherwise="first"),  # fragment offset
    _Step(_LOAD_BYTE, _ETHERNET + 9),
    _Step(_IF_EQUAL, 17, then="yes"),  # a later fragment: only the first bears a token
    _Step(_IF_EQUAL, 1, then="yes", otherwise="no"),
    _Step(_LOAD_BYTE, _ETHERNET + 9, label="first"),
    _Step(_IF_EQUAL, 17, then="token"),
    _Step(_IF_EQUAL, 1, then="icmp"),
    _Step(_IF_EQUAL, 132, then="yes"),
    _Step(_IF_EQUAL, 6, then="tcp", otherwise="no"),
    _Step(_IF_EQUAL, 0x86DD, otherwise="no", label="ipv6?"),
    _Step(_NUMBER_TO_X, _IPV6_BYTES),
    _Step(_LOAD_BYTE, _ETHERNET + 6),
    _Step(_IF_EQUAL, 44, then="yes"),  # a fragment
    _Step(_IF_EQUAL, 17, then="token"),
    _Step(_IF_EQUAL, 58, then="icmpv6"),
    _Step(_IF_EQUAL, 132, then="yes"),
    _Step(_IF_EQUAL, 6, otherwise="no"),
    _Step(_LOAD_BYTE_X, _TCP_FLAGS, label="tcp"),
    _Step(_IF_ANY_BIT, 0x02, then="yes"),  # SYN
    _OTHER_SEGMENTS,
    _Step(_IF_ANY_BIT, 0x10, then="yes", otherwise="no"),  # ACK
    _Step(_LOAD_BYTE_X, _ETHERNET, label="icmpv6"),
    _Step(_IF_EQUAL, 128, then="token"),
    _Step(_IF_EQUAL, 129, then="token"),
    _Step(_IF_NOT_BELOW, _FIRST_INFORMATIONAL, then="no"),
    _Step(_LOAD_BYTE_X, _QUOTED_NEXT_HEADER),
    _Step(_IF_EQUAL, 17, otherwise="yes"),
    _Step(_LOAD_WORD_X, _QUOTED_TOKEN_KIND_6),
    _Step(_IF_EQUAL, _REPLY_IN_TOKEN, then="no", otherwise="yes"),
    _Step(_LOAD_BYTE_X, _ETHERNET, label="icmp"),
    _Step(_IF_EQUAL, 8, then="token"),
    _Step(_IF_EQUAL, 0, then="token"),
    _Step(_LOAD_BYTE_X, _PAYLOAD),
    _Step(_IF_EQUAL, 0x45, otherwise="yes"),  # a quoted header with options: ``match`` decides
    _Step(_LOAD_BYTE_X, _QUOTED_PROTOCOL),
    _Step(_IF_EQUAL, 17, otherwise="yes"),
    _Step(_LOAD_WORD_X, _QUOTED_TOKEN_KIND),
    _Step(_IF_EQUAL, _REPLY_IN_TOKEN, then="no", otherwise="yes"),
    _Step(_LOAD_WORD_X, _PAYLOAD, label="token"),
    _Step(_IF_EQUAL, _HEAD_OF_TOKEN, then="yes", otherwise="no"),
    _Step(_RETURN, _ALL, label="yes"),
    _Step(_RETURN, 0, label="no"),
)


def _assemble(steps: Sequence[_Step]) -> bytes:
    """``struct sock_filter`` for each step (include/uapi/linux/filter.h), with jumps as distances from the next one."""
    at = {step.label: number for number, step in enumerate(steps) if step.label}
    program = b""
    for number, step in enumerate(steps):
        then, otherwise = (at[name] - number - 1 if name else 0 for name in (step.then, step.otherwise))
        program += struct.pack("=HBBI", step.code, then, otherwise, step.operand)
    return program


FLOW_FRAMES: Final = _assemble(_STEPS)
SEGMENTS: Final = _assemble(
    tuple(_Step(_RETURN, _ALL, label="tcp") if step.label == "tcp" else step for step in _STEPS)
)
"""``FLOW_FRAMES``, and every TCP segment."""
_WITH_TOKEN: Final = (
    _Step(_LOAD_BYTE_X, _TCP_FLAGS - 1, label="data"),  # the header's length in words, in the upper half
    _Step(_SHIFT_RIGHT, 2),
    _Step(_AND, 0x3C),
    _Step(_ADD_X, 0),
    _Step(_TO_X, 0),
    _Step(_LOAD_WORD_X, _ETHERNET),
    _Step(_IF_EQUAL, _HEAD_OF_TOKEN, then="yes", otherwise="no"),
)


def _or_data(step: _Step) -> _Step:
    """A step on the flags of TCP that passes segments with neither on to the look at their data."""
    return step._replace(otherwise="data") if step == _OTHER_SEGMENTS else step


STREAM_FRAMES: Final = _assemble((*map(_or_data, _STEPS[:-2]), *_WITH_TOKEN, *_STEPS[-2:]))
"""``FLOW_FRAMES``, and every TCP segment whose data begin with a token."""
NOTHING: Final = _assemble((_Step(_RETURN, 0),))
