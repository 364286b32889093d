"""Answer for the pods of a case, and for whoever else answered, by the kernel's own sockets.

Owns: the listening sockets of TCP and UDP, and what they say.
Must not: need anything but python3 and its standard library, or know whether an answer is right.
"""

import contextlib
import functools
import ipaddress
import selectors
import socket

from netns import enter

PKTINFO = {4: (socket.IPPROTO_IP, 8), 6: (socket.IPPROTO_IPV6, 50)}  # IP_PKTINFO; IPV6_PKTINFO
ASK_PKTINFO = {4: (socket.IPPROTO_IP, 8), 6: (socket.IPPROTO_IPV6, 49)}  # IP_PKTINFO; IPV6_RECVPKTINFO


class Listeners:
    """Everybody who listens, each of whom answers by its name. ``got`` is told of each request."""

    def __init__(self, case, waiting, got):
        self.case, self.waiting, self.got = case, waiting, got
        self.family = socket.AF_INET6 if case["version"] == 6 else socket.AF_INET
        self.kind = socket.SOCK_STREAM if case["protocol"] == "TCP" else socket.SOCK_DGRAM
        self.talking = {}

    def listen(self):
        """Open the sockets of the pods."""
        for each in self.case["listeners"] if self.case["protocol"] in ("TCP", "UDP") else ():
            enter(each["namespace"])
            sock = socket.socket(self.family, self.kind | socket.SOCK_NONBLOCK)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self.family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((each["address"] or ("::" if self.family == socket.AF_INET6 else "0.0.0.0"), each["port"]))
            if self.kind == socket.SOCK_STREAM:
                sock.listen(1024)
            else:
                sock.setsockopt(*ASK_PKTINFO[self.case["version"]], 1)
            do = self.accept if self.kind == socket.SOCK_STREAM else self.answer
            self.waiting.register(sock, selectors.EVENT_READ, functools.partial(do, each))

    def accept(self, listener, sock):
        """Take connections; each says its token when it is established, and gets its answer."""
        with contextlib.suppress(BlockingIOError):
            while True:
                made, peer = sock.accept()
                made.setblocking(False)
                heard = functools.partial(self.converse, listener, peer)
                self.waiting.register(made, selectors.EVENT_READ, heard)
                self.talking[made] = listener["name"]

    def hang_up(self, names):
        """Close the connections of some pods, as a program does that ends."""
        for sock in [sock for sock, name in self.talking.items() if name in names]:
            self.close(sock)

    def close(self, sock):
        """Close a connection."""
        self.talking.pop(sock, None)
        self.waiting.unregister(sock)
        sock.close()

    def converse(self, listener, peer, sock):
        """Answer every token, or close with the other end."""
        try:
            data = sock.recv(65535)
        except OSError:
            data = b""
        if self.case["http"] and data:
            self.tell(listener, data, peer, sock)
            return
        for line in data.split(b"\n"):
            if line.startswith(b"proxylab probe "):
                self.got(listener, line, peer, sock.getsockname())
                with contextlib.suppress(OSError):
                    sock.send(b"proxylab reply " + line[15:48] + b" from " + listener["name"].encode() + b"\n")
        if not data:
            self.close(sock)

    def tell(self, listener, data, peer, sock):
        """Answer a request by HTTP and close: as it was answered in the lab, where that was no pod."""
        from hypertext import response, token_in  # noqa: PLC0415 - stands in scripts for HTTP

        asked = token_in(data)
        if asked:
            self.got(listener, asked, peer, sock.getsockname())
            said = listener["says"][int(asked[40:48], 16)] if listener["says"] else (200, None)
            sock.send(response(*said, listener["name"]) if said else b"")
        self.close(sock)

    def answer(self, listener, sock):
        """Answer datagrams, each from the address that was asked."""
        with contextlib.suppress(BlockingIOError):
            while True:
                data, control, _, peer = sock.recvmsg(65535, 256)
                if not data.startswith(b"proxylab probe "):
                    continue
                asked = control[0][2][:16] if self.case["version"] == 6 else control[0][2][8:12]
                self.got(listener, data, peer, (str(ipaddress.ip_address(asked)), listener["port"]))
                back = asked + b"\0" * 4 if self.case["version"] == 6 else b"\0" * 4 + asked + b"\0" * 4
                about = [(*PKTINFO[self.case["version"]], back)]
                said = b"proxylab reply " + data[15:48] + b" from " + listener["name"].encode()
                with contextlib.suppress(OSError):  # nothing leaves a pod that is gone
                    sock.sendmsg([said], about, 0, peer)
