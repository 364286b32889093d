"""Netlink sockets, one per namespace, with many messages per system call.

A batch goes out in one sendmsg(2), and the kernel answers each of its messages once: with an acknowledgement, a refusal
or the requested object. So an error names its message. ``kernel.netlink.messages`` encodes and decodes the messages.
"""

import errno
import os
import socket
from collections.abc import Sequence
from typing import Final, Protocol

from proxylab.errors import CapabilityError, InternalError, LabError
from proxylab.kernel.modules import feasible, known_modules
from proxylab.kernel.netlink.messages import Decoded, Kind, NetlinkAnswer, NetlinkRequest, Value, answers
from proxylab.kernel.sandbox.netns import NetNs, inside

# include/uapi/linux/netlink.h, linux/socket.h
NETLINK_SOCK_DIAG: Final = 4
NETLINK_NETFILTER: Final = 12
NETLINK_GENERIC: Final = 16
_SOL_NETLINK: Final = 270
_NETLINK_EXT_ACK: Final = 11
_NLM_F_DUMP: Final = 0x300
_NLM_F_DUMP_INTR: Final = 0x10

# The answers to a batch must fit the socket's receive buffer, 208 KiB for an ordinary user. An acknowledgement takes
# 1 KiB and a link some 6 (skb->truesize). The kernel drops what does not fit (ENOBUFS, netlink(7)).
_BATCH_MESSAGES: Final = 16
_READ_BYTES: Final = 1 << 18
_DUMP_ROUNDS: Final = 5


class Encodable(Protocol):
    """A request, or another one that is sent like a request."""

    def encode(self, sequence: int) -> bytes:
        """The request as bytes, with its header and a sequence number."""


class Netlink:
    """A netlink socket, used by one caller at a time. ``name`` is the namespace's, for errors.

    No call needs a timeout: the kernel answers before send(2) returns, and goes on with a dump in recv(2).
    """

    def __init__(self, opened: socket.socket, name: str) -> None:
        self._socket = opened
        self._name = name
        self._sequence = 0

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def send(self, requests: Sequence[NetlinkRequest]) -> None:
        """Carry out ``requests`` in order.

        Raises:
            CapabilityError: the kernel lacks what a request needs.
            InternalError: the kernel refused a request; names the first one, its errno and the kernel's own words.
        """
        try:
            found = self.exchange(requests)
        except OSError as error:
            raise InternalError(f"{self._name}: route netlink failed: {error}") from error
        for request, answer in zip(requests, found, strict=True):
            code, words = answer.refusal() if answer.is_last else (0, "")
            if code:
                raise self._refusal(request, code, words)

    def exchange(self, requests: Sequence[Encodable]) -> list[NetlinkAnswer]:
        """Send ``requests``, and return the kernel's answer to each. Raises ``OSError``."""
        found: list[NetlinkAnswer] = []
        for start in range(0, len(requests), _BATCH_MESSAGES):
            batch = requests[start : start + _BATCH_MESSAGES]
            first = self._sequence + 1
            self._sequence += len(batch)
            self._socket.sendmsg([request.encode(number) for number, request in enumerate(batch, first)])
            by_sequence: dict[int, NetlinkAnswer] = {}
            while len(by_sequence) < len(batch):
                received = answers(self._socket.recv(_READ_BYTES))
                by_sequence |= {answer.sequence: answer for answer in received if answer.sequence >= first}
            found += (by_sequence[number] for number in range(first, first + len(batch)))
        return found

    def refused(self, requests: Sequence[NetlinkRequest]) -> list[tuple[str, int]]:
        """Send ``requests``; returns what each refused one was about, with the kernel's errno. Raises ``OSError``."""
        codes = [answer.refusal()[0] for answer in self.exchange(requests)]
        return [(request.what, code) for request, code in zip(requests, codes, strict=True) if code]

    def one(self, request: NetlinkRequest) -> Decoded:
        """The object that answers a request. Raises ``OSError`` with the kernel's errno."""
        (answer,) = self.exchange([request])
        if answer.is_last:
            _raise_refusal(answer)
        return answer.decode(request.kind)

    def dump(self, kind: Kind, *, number: int = 0, **content: Value) -> list[Decoded]:
        """Every object of a complete dump; ``number`` is that of a generic family. Raises as ``dump_undecoded``."""
        return [answer.decode(kind) for answer in self.dump_undecoded(kind, number=number, **content)]

    def dump_undecoded(self, kind: Kind, *, number: int = 0, **content: Value) -> list[NetlinkAnswer]:
        """The messages of a complete dump without its end, for those who read them at fixed offsets.

        Raises:
            OSError: the kernel's errno; EINTR where objects changed during every round.
        """
        for _ in range(_DUMP_ROUNDS):
            self._sequence += 1
            self._socket.send(NetlinkRequest("dump", kind, _NLM_F_DUMP, content, number=number).encode(self._sequence))
            found = self._gather()
            if not any(answer.flags & _NLM_F_DUMP_INTR for answer in found):
                return found[:-1]
        raise OSError(errno.EINTR, "the dumped objects changed during every round")

    def _gather(self) -> list[NetlinkAnswer]:
        """The answers to a dump, its end too."""
        found: list[NetlinkAnswer] = []
        while not (found and found[-1].is_last):
            found += answers(self._socket.recv(_READ_BYTES))
        _raise_refusal(found[-1])  # a dump that fails on the way ends like any other, with its errno
        return found

    def _refusal(self, request: NetlinkRequest, code: int, words: str) -> LabError:
        if request.needs is not None and code in (errno.EOPNOTSUPP, errno.ENOENT):  # no kind of device; of queue
            what, cure = request.needs
            return CapabilityError(what, feasible(cure, known_modules()))
        name = errno.errorcode.get(code, code)
        said = f": {words}" if words else ""
        return InternalError(f"{self._name}: the kernel refused to {request.what}: {name} ({os.strerror(code)}){said}")


def open_netlink(netns: NetNs, protocol: int = socket.NETLINK_ROUTE) -> Netlink:
    """A socket of a netlink protocol in a namespace. Raises ``OSError`` for a protocol that the kernel lacks."""
    with inside(netns):
        opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
    opened.setsockopt(_SOL_NETLINK, _NETLINK_EXT_ACK, 1)
    return Netlink(opened, netns.name)


def _raise_refusal(answer: NetlinkAnswer) -> None:
    code, _ = answer.refusal()
    if code:
        raise OSError(code, os.strerror(code))
