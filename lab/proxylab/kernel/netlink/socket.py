"""Sockets of route netlink, one per namespace, with many messages per system call.

A batch goes out in one sendmsg(2). Every message requests an acknowledgement, so that an error names its message.
``kernel.netlink.requests`` packs the messages.
"""

import errno
import os
import socket
import struct
from collections.abc import Sequence
from typing import Final

from proxylab.errors import CapabilityError, InternalError, LabError
from proxylab.kernel.netlink.dumps import Dump
from proxylab.kernel.netlink.framing import HEADER, attributes, messages
from proxylab.kernel.netlink.requests import RTM_GETLINK, Request
from proxylab.kernel.netlink.uapi import (
    NETLINK_CAP_ACK,
    NETLINK_EXT_ACK,
    NLM_F_ACK,
    NLM_F_CAPPED,
    NLM_F_REQUEST,
    NLMSG_ERROR,
    NLMSGERR_ATTR_MSG,
    SOL_NETLINK,
)
from proxylab.kernel.sandbox.netns import NetNs, inside

__all__ = ["RouteSocket", "ask"]

# The answers to a batch must fit the socket's receive buffer, 208 KiB for an ordinary user. An acknowledgement takes
# 1 KiB and a link some 6 (skb->truesize). The kernel drops what does not fit (ENOBUFS, netlink(7)).
_PATIENCE: Final = 10.0  # seconds for an answer; the kernel gives it before send(2) returns, or while it dumps
_BATCH: Final = 64
_BATCH_OF_LINKS: Final = 16


class RouteSocket:
    """A NETLINK_ROUTE socket in one namespace."""

    def __init__(self, netns: NetNs) -> None:
        self._name = netns.name
        self._sequence = 0
        with inside(netns):
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._socket.setsockopt(SOL_NETLINK, NETLINK_CAP_ACK, 1)
        self._socket.setsockopt(SOL_NETLINK, NETLINK_EXT_ACK, 1)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def send(self, requests: Sequence[Request]) -> None:
        """Carry out ``requests`` in order.

        Raises:
            CapabilityError: the kernel lacks what a request needs.
            InternalError: the kernel refused a request; names the first one, its errno and the kernel's own words.
        """
        size = _BATCH_OF_LINKS if any(request.kind == RTM_GETLINK for request in requests) else _BATCH
        try:
            for start in range(0, len(requests), size):
                self._send_batch(requests[start : start + size])
        except OSError as error:
            raise InternalError(f"{self._name}: route netlink failed: {error}") from error

    def _send_batch(self, requests: Sequence[Request]) -> None:
        waiting: dict[int, Request] = {}
        parts: list[bytes] = []
        for request in requests:
            self._sequence += 1
            waiting[self._sequence] = request
            flags = request.flags | NLM_F_REQUEST | NLM_F_ACK
            parts += (
                HEADER.pack(HEADER.size + len(request.body), request.kind, flags, self._sequence, 0),
                request.body,
            )
        self._socket.sendmsg(parts)
        refused: LabError | None = None
        while waiting:
            data = self._socket.recv(1 << 18)
            for kind, flags, sequence, body in messages(data):
                if kind != NLMSG_ERROR:
                    continue  # the answer to RTM_GETLINK; its acknowledgement follows
                request = waiting.pop(sequence)
                code = -struct.unpack_from("=i", body)[0]
                if code and refused is None:
                    refused = self._refusal(request, code, _kernel_words(body, flags))
        if refused is not None:
            raise refused

    def _refusal(self, request: Request, code: int, words: str) -> LabError:
        if request.needs is not None and code == errno.EOPNOTSUPP:
            return CapabilityError(*request.needs)
        name = errno.errorcode.get(code, code)
        return InternalError(f"{self._name}: the kernel refused to {request.what}: {name} ({os.strerror(code)}){words}")


def ask(netns: NetNs, protocol: int, kind: int, body: bytes, *, dump: bool = False) -> list[bytes]:
    """Send one request of any netlink protocol through a new socket, and return the bodies of the answers.

    Raises:
        OSError: the kernel's errno, or the errno for a protocol that it lacks.
        TimeoutError: no answer came.
    """
    with inside(netns):
        control = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
    found: list[bytes] = []
    with control:
        control.settimeout(_PATIENCE)
        if dump:
            return Dump(control).all(kind, body)
        control.send(HEADER.pack(HEADER.size + len(body), kind, NLM_F_REQUEST | NLM_F_ACK, 1, 0) + body)
        while True:
            for answer, _, _, content in messages(control.recv(1 << 18)):
                if answer == NLMSG_ERROR:
                    code = -struct.unpack_from("=i", content)[0]
                    if code:
                        raise OSError(code, os.strerror(code))
                    return found
                found.append(content)


def _kernel_words(body: bytes, flags: int) -> str:
    """The text of an extended acknowledgement (NLMSGERR_ATTR_MSG), or nothing."""
    if not flags & NLM_F_CAPPED:
        return ""
    for kind, content in attributes(body, 4 + HEADER.size):
        if kind == NLMSGERR_ATTR_MSG:
            return ": " + content.rstrip(b"\0").decode(errors="replace")
    return ""
