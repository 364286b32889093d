"""The floor of a build: the system calls of a lab, with every byte of them laid ready.

A tape holds, for each namespace of a plan, the paths and values of its sysctls and the netlink messages that
``kernel.realise`` would send, packed. Playing it makes the same namespaces, sockets, writes and messages as
``realise`` does, and neither plans nor packs anything. What is left to subtract is Python's own call overhead.
"""

import os
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from proxylab.kernel.netlink.build import Wiring, _interior_requests, _make_links
from proxylab.kernel.netlink.messages import NetlinkRequest
from proxylab.kernel.netlink.requests import get_link
from proxylab.kernel.sandbox.linux import CLONE_NEWNET, setns, unshare
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.model import Plan, ends_by_namespace

_BATCH = 16
_ERROR, _NEWLINK = 2, 16  # an acknowledgement or a refusal, and the answer to RTM_GETLINK
_MARK = 0x7B6A5C00  # stands for the descriptor of a namespace, which is known when the tape is played


@dataclass
class Track:
    """One namespace: sysctls, and batches of messages with the number of acknowledgements that each has."""

    name: str
    sysctls: list[tuple[str, bytes]]
    making: list[bytes] = field(default_factory=list)
    furnishing: list[bytes] = field(default_factory=list)
    reading: list[bytes] = field(default_factory=list)


class _Recorder:
    def __init__(self, messages: list[bytes]) -> None:
        self._messages = messages

    def send(self, requests: Sequence[NetlinkRequest]) -> None:
        self._messages += (request.encode(1) for request in requests)


def record(plan: Plan) -> list[Track]:
    """The tape of a plan."""
    tracks = {
        each.name: Track(each.name, [(_path(sysctl.name), sysctl.value.encode()) for sysctl in each.sysctls])
        for each in plan.namespaces
    }
    marked = {each.name: NetNs(each.name, _MARK + number) for number, each in enumerate(plan.namespaces)}
    making = {name: _Recorder(track.making) for name, track in tracks.items()}
    _make_links(Wiring(plan, marked, making))  # type: ignore[arg-type] - a recorder is enough of a socket
    ends = ends_by_namespace(plan)
    for each in plan.namespaces:
        track = tracks[each.name]
        _Recorder(track.furnishing).send(_interior_requests(each, ends[each.name]))
        _Recorder(track.reading).send([get_link(device) for device in (*ends[each.name], *each.bridges)])
    return list(tracks.values())


def _path(name: str) -> str:
    return "/proc/sys/" + name.translate(str.maketrans("./", "/."))


@contextmanager
def play(tape: Sequence[Track]) -> Iterator[None]:
    """Make the lab of the tape for the length of the block."""
    with ExitStack() as stack:
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        stack.callback(os.close, home)
        fds: list[int] = []
        sockets: list[socket.socket] = []
        for track in tape:
            unshare(CLONE_NEWNET)
            fds.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
            for path, value in track.sysctls:
                try:
                    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
                except FileNotFoundError:
                    continue
                os.write(fd, value)
                os.close(fd)
            sockets.append(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE))
            sockets[-1].setsockopt(270, 10, 1)  # NETLINK_CAP_ACK
            setns(home, CLONE_NEWNET)
        for fd, sock in zip(fds, sockets, strict=True):
            stack.callback(os.close, fd)
            stack.callback(sock.close)
        marks = [(struct.pack("=I", _MARK + number), struct.pack("=I", fd)) for number, fd in enumerate(fds)]
        for track, sock in zip(tape, sockets, strict=True):
            _send(sock, [_with_descriptors(message, marks) for message in track.making])
        for track, sock in zip(tape, sockets, strict=True):
            _send(sock, track.furnishing)
        for track, sock in zip(tape, sockets, strict=True):
            _send(sock, track.reading)
        yield


def _with_descriptors(message: bytes, marks: Sequence[tuple[bytes, bytes]]) -> bytes:
    for mark, descriptor in marks:
        if mark in message:
            return message.replace(mark, descriptor)
    return message


def _send(sock: socket.socket, messages: Sequence[bytes]) -> None:
    for start in range(0, len(messages), _BATCH):
        batch = messages[start : start + _BATCH]
        sock.sendmsg(batch)
        missing = len(batch)
        while missing:
            data, offset = sock.recv(1 << 18), 0
            while offset < len(data):
                length, kind, _, _, _, error = struct.unpack_from("=IHHIIi", data, offset)
                assert kind != _ERROR or error == 0, os.strerror(-error)
                missing -= kind in (_ERROR, _NEWLINK)
                offset += (length + 3) & ~3
