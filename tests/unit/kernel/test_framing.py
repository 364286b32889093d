"""Netlink framing: padding, truncated messages, impossible lengths."""

import struct

import pytest

from proxylab.kernel.netfilter.nfnetlink import attributes, messages, nested


def test_padding_separates_messages() -> None:
    first = struct.pack("=IHHII", 19, 2, 0x100, 7, 0) + b"abc" + b"\0"
    second = struct.pack("=IHHII", 16, 3, 0, 8, 0)
    assert list(messages(first + second)) == [(2, 0x100, 7, b"abc"), (3, 0, 8, b"")]


def test_a_length_below_the_header_is_an_error_and_no_endless_loop() -> None:
    with pytest.raises(OSError, match="shorter than its header"):
        list(messages(struct.pack("=IHHII", 0, 2, 0, 1, 0)))


def test_attributes_lose_their_flags_and_their_padding() -> None:
    data = b"skip" + struct.pack("=HH", 5, 0x8001) + b"x\0\0\0" + struct.pack("=HH", 8, 0x4002) + b"wxyz"
    assert list(attributes(data, 4)) == [(1, b"x"), (2, b"wxyz")]
    assert nested(data, 4) == {1: b"x", 2: b"wxyz"}


def test_parsing_stops_at_an_impossible_attribute() -> None:
    assert list(attributes(struct.pack("=HH", 4, 9) + struct.pack("=HH", 0, 1) + b"\xff" * 8)) == [(9, b"")]
