"""Flows over kernel sockets: dial, send the token, read the answer, and over TCP end the connection.

The sender ends first (FIN), and the responder ends its own direction when that end has come. So when the sender reads
the end of the stream, both ends have crossed the network. No tap needs to keep their frames.

On a veth an ICMP error comes back while connect(2) still holds its socket. ``tcp_v4_err`` then only notes it
(``sk_err_soft``), and the socket would report it after its first retransmission, a second later. Reading SO_ERROR
returns the note at once (``sock_getsockopt`` in net/core/sock.c), so ``advance`` reads it.
"""

import errno
import os
import select
import socket
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from typing import Final

from proxylab.addresses import Transport
from proxylab.errors import CapabilityError
from proxylab.evidence.evidence import Altered, ConnectReport, Packet, Part
from proxylab.kernel.modules import feasible, known_modules, load_modules
from proxylab.kernel.sandbox.netns import NetNs, inside
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.probes import MOST_CONCURRENCY
from proxylab.traffic.answer import LONGEST_ANSWER, ResponderAnswer, read_answer, request_line
from proxylab.traffic.craft import filling
from proxylab.traffic.identity import Identity, TokenKind

# A TCP dialogue is ten frames: handshake, line, answer, their acknowledgements, and the end. With hairpin traffic one
# tap sees both the sender's and the receiver's frames, which doubles it.
_CROSSINGS: Final = 20

RESET_ON_CLOSE: Final = struct.pack("@ii", 1, 0)
"""``struct linger``: closing resets a connection that has not ended, so that neither end keeps it (socket(7))."""


class _Stage(Enum):
    DIALLING = auto()
    LISTENING = auto()
    ENDING = auto()


@dataclass(slots=True)
class _Dialogue:
    flow: int
    sock: socket.socket
    port: int
    token: bytes
    stage: _Stage
    heard: bytes = b""


class Dialogues:
    """All dialogues of one run, a bounded number of them under way at once."""

    def __init__(
        self, netns: NetNs, resolved: ResolvedProbe, identity: Identity, ports: Sequence[int], room: int
    ) -> None:
        """``room`` is the number of frames that every tap can hold at least."""
        self.reports: list[ConnectReport] = []
        self.altered: list[Altered] = []
        self.refused: list[str] = []
        self.sent = 0
        self._netns = netns
        self._at_once = max(1, min(resolved.concurrency or MOST_CONCURRENCY, room // _CROSSINGS))
        self._resolved = resolved
        self._identity = identity
        self._filling = filling(resolved.payload)
        self._waiting = deque(enumerate(ports))
        self._open: dict[int, _Dialogue] = {}
        self._epoll = select.epoll()

    @property
    def finished(self) -> bool:
        """Whether every flow has been dialled and reported."""
        return not self._waiting and not self._open

    def advance(self) -> bool:
        """Dial as many flows as may be under way, and serve those that are ready. Returns whether anything happened."""
        happened = self._dial()
        for fd, _event in self._epoll.poll(0, MOST_CONCURRENCY):
            dialogue = self._open.get(fd)
            if dialogue is not None:
                self._continue(dialogue)
                happened = True
        return self._hear_soft_errors() or happened

    def abandon(self) -> bool:
        """Report every flow under way as ``timeout``: nothing more can come for it. Returns whether there was any."""
        abandoned = tuple(self._open.values())
        for dialogue in abandoned:
            self._report(dialogue, *("", "timeout") if dialogue.stage is _Stage.ENDING else ("timeout",))
        return bool(abandoned)

    def close(self) -> None:
        """Close all sockets without a report."""
        for dialogue in self._open.values():
            dialogue.sock.close()
        self._open.clear()
        self._waiting.clear()
        self._epoll.close()

    def _dial(self) -> bool:
        batch = [self._waiting.popleft() for _ in range(min(self._at_once - len(self._open), len(self._waiting)))]
        if not batch:
            return False
        protocol = self._resolved.protocol
        kind = socket.SOCK_DGRAM if protocol is Transport.UDP else socket.SOCK_STREAM
        family = socket.AF_INET if self._resolved.destination.version == 4 else socket.AF_INET6
        number = self._resolved.protocol_number
        with inside(self._netns):
            socks = [socket.socket(family, kind | socket.SOCK_NONBLOCK, number) for _ in batch]
        for (flow, port), sock in zip(batch, socks, strict=True):
            self._begin(_Dialogue(flow, sock, port, self._identity.token(TokenKind.PROBE, flow), _Stage.DIALLING))
        return True

    def _begin(self, dialogue: _Dialogue) -> None:
        sock, resolved = dialogue.sock, self._resolved
        self._open[sock.fileno()] = dialogue
        try:
            if resolved.protocol is not Transport.UDP:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            if resolved.protocol is Transport.TCP:
                # An earlier connection from the author's port may be in TIME_WAIT. With timestamps the kernel lets a
                # new one follow it at once (tcp_twsk_unique in net/ipv4/tcp_ipv4.c).
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((str(resolved.sender.address), dialogue.port))
            sock.connect((str(resolved.destination), resolved.port))
        except BlockingIOError:
            pass  # EINPROGRESS: a TCP connection is under way
        except OSError as error:
            self._refuse(dialogue, error)
            return
        # A UDP socket is ready to send at once, and a TCP socket once it is connected or has failed.
        self._epoll.register(sock.fileno(), select.EPOLLOUT)
        if resolved.protocol is not Transport.UDP:
            self.sent += 1

    def _continue(self, dialogue: _Dialogue) -> None:
        if dialogue.stage is not _Stage.DIALLING:
            self._listen(dialogue)
            return
        failed = dialogue.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failed:
            self._report(dialogue, error_name(failed))
        else:
            self._speak(dialogue)

    def _speak(self, dialogue: _Dialogue) -> None:
        try:
            dialogue.sock.send(request_line(dialogue.token, self._filling))
        except OSError as error:
            self._refuse(dialogue, error)
            return
        if self._resolved.protocol is Transport.UDP:
            self.sent += 1
        dialogue.stage = _Stage.LISTENING
        self._epoll.modify(dialogue.sock.fileno(), select.EPOLLIN)

    def _listen(self, dialogue: _Dialogue) -> None:
        try:
            heard = dialogue.sock.recv(LONGEST_ANSWER)
        except BlockingIOError:
            return
        except OSError as error:
            name = error_name(error.errno)
            self._report(dialogue, *("", name) if dialogue.stage is _Stage.ENDING else (name,))
            return
        if dialogue.stage is _Stage.ENDING:
            if not heard:
                self._report(dialogue, "")
            return
        dialogue.heard += heard
        if b"\n" in heard and self._resolved.protocol is Transport.TCP:
            self._end(dialogue)
        elif b"\n" in heard or not heard or len(dialogue.heard) > LONGEST_ANSWER:
            self._report(dialogue, "")

    def _end(self, dialogue: _Dialogue) -> None:
        """End the sender's direction of a connection, and wait for the end of the other one."""
        dialogue.stage = _Stage.ENDING
        try:
            dialogue.sock.shutdown(socket.SHUT_WR)
        except OSError as error:  # the responder has reset the connection
            self._report(dialogue, "", error_name(error.errno))

    def _hear_soft_errors(self) -> bool:
        heard = False
        for dialogue in tuple(self._open.values()):
            if dialogue.stage is _Stage.DIALLING:
                failed = dialogue.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if failed:
                    self._report(dialogue, error_name(failed))
                    heard = True
        return heard

    def _refuse(self, dialogue: _Dialogue, error: OSError) -> None:
        """Record that the sender's own kernel did not send: EPERM from its OUTPUT rules, or no route."""
        name = error_name(error.errno)
        self.refused.append(name)
        self._report(dialogue, name)

    def _report(self, dialogue: _Dialogue, error: str, unended: str = "") -> None:
        """Close a flow and report its result. ``error`` is empty if the socket received something.

        ``unended`` is why the connection did not end in order; empty if it did.
        """
        del self._open[dialogue.sock.fileno()]
        dialogue.sock.close()
        flow, local, port = dialogue.flow, self._resolved.sender.address, dialogue.port
        answer = None if error else read_answer(dialogue.heard, dialogue.token)
        if answer is not None:
            self._compare(dialogue, answer)
            seen = (answer.backend, answer.peer, answer.peer_port)
            self.reports.append(ConnectReport(flow, local, port, "", *seen, unended))
        else:
            # EPROTO stands for an end of file without an answer, or for an answer to another flow.
            self.reports.append(ConnectReport(flow, local, port, error or "EPROTO"))

    def _compare(self, dialogue: _Dialogue, answer: ResponderAnswer) -> None:
        """Note data that came otherwise than it was sent, there or back."""
        if not answer.heard_whole(request_line(dialogue.token, self._filling)):
            self.altered.append(Altered(dialogue.flow, Packet.REQUEST, answer.backend, "", Part.DATA))
        if not answer.is_whole:
            self.altered.append(Altered(dialogue.flow, Packet.REPLY, self._resolved.sender.name, "", Part.DATA))


@cache
def has_sctp() -> bool:
    """Whether the kernel has SCTP sockets; the module may be missing."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP).close()
    except OSError:
        return False
    return True


def need_sctp(who: str, instead: str = "") -> None:
    """Raise CapabilityError, with the cure and what the author can do ``instead``, where the kernel has no SCTP."""
    if not has_sctp():
        cure = feasible(load_modules("sctp"), known_modules())
        raise CapabilityError(f"SCTP sockets, with which {who} connects", cure + instead)


def error_name(number: int | None) -> str:
    """The name of an errno, such as ``EPERM`` (errno(3))."""
    number = number or 0
    return errno.errorcode.get(number, os.strerror(number))
