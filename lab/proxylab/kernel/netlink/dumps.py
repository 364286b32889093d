"""Netlink requests and dumps: sends one request, and gathers the kernel's answers to the end.

Its users know what the attributes mean, such as ``kernel.netfilter.conntrack`` and ``kernel.netlink.survey``.
"""

import errno
import os
import socket
import struct
from typing import Final

from proxylab.kernel.netlink.framing import HEADER, messages
from proxylab.kernel.netlink.uapi import NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR

__all__ = ["Dump"]

# include/uapi/linux/netlink.h
_MOST: Final = 1 << 16
_ROUNDS: Final = 5


class Dump:
    """A netlink socket for requests and dumps, used by one caller at a time."""

    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def all(self, kind: int, body: bytes) -> list[bytes]:
        """The body of every object of a complete dump.

        Raises:
            OSError: the kernel's errno; EINTR where objects changed during every round.
        """
        for _ in range(_ROUNDS):
            self._send(kind, NLM_F_DUMP, body)
            found, interrupted = self._gather()
            if not interrupted:
                return found
        raise OSError(errno.EINTR, "the dumped objects changed during every round")

    def one(self, kind: int, body: bytes) -> bytes:
        """The body of the one object that answers a request. Raises ``OSError`` with the kernel's errno."""
        self._send(kind, 0, body)
        for answer, _, _, content in messages(self._socket.recv(_MOST)):
            if answer != NLMSG_ERROR:
                return content
            code = -struct.unpack_from("=i", content)[0]
            raise OSError(code, os.strerror(code))
        raise OSError(errno.EPROTO, "the kernel sent an empty answer")

    def ask(self, kind: int, body: bytes) -> int:
        """Carry out one request and return the kernel's errno, or 0."""
        self._send(kind, NLM_F_ACK, body)
        while True:
            for answer, _, _, content in messages(self._socket.recv(_MOST)):
                if answer == NLMSG_ERROR:
                    return -int(struct.unpack_from("=i", content)[0])

    def _send(self, kind: int, flags: int, body: bytes) -> None:
        header = HEADER.pack(HEADER.size + len(body), kind, flags | NLM_F_REQUEST, 1, 0)
        self._socket.send(header + body)

    def _gather(self) -> tuple[list[bytes], bool]:
        found: list[bytes] = []
        interrupted = False
        while True:
            for kind, flags, _, content in messages(self._socket.recv(_MOST)):
                interrupted = interrupted or bool(flags & NLM_F_DUMP_INTR)
                if kind in (NLMSG_DONE, NLMSG_ERROR):
                    # A dump that fails on the way ends like any other, with its errno (netlink_dump_done).
                    code = -struct.unpack_from("=i", content)[0]
                    if code:
                        raise OSError(code, os.strerror(code))
                    if kind == NLMSG_ERROR:
                        raise OSError(errno.EPROTO, "the kernel acknowledged a dump without making it")
                    return found, interrupted
                found.append(content)
