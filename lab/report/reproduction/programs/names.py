"""Ask for a name as a resolver does, answer for the name servers what they answered, and judge what comes.

Owns: messages of DNS as far as a probe needs them (RFC 1035), both ends of a question, and the verdict on a name.
Must not: need anything but python3 and its standard library, or dial what a name leads to.
"""

import contextlib
import errno
import ipaddress
import selectors
import socket
import struct
import time

from netns import enter

KINDS = {"A": 1, "CNAME": 5, "AAAA": 28}
CODES = {"NOERROR": 0, "FORMERR": 1, "SERVFAIL": 2, "NXDOMAIN": 3, "NOTIMP": 4, "REFUSED": 5}
RESPONSE, TRUNCATED = 0x8400, 0x0200  # with the bit of an authoritative answer
OPT = struct.pack("!BHHIH", 0, 41, 1232, 0, 0)  # EDNS, by which a client takes 1232 octets (RFC 6891)
PLAIN, LARGE = 512, 1232
PATIENCE = 3.0  # seconds for one question


# Messages.


def spelled(name):
    """A name as messages spell it."""
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".") if label) + b"\0"


def question(name, kind):
    """Ask for records of a name."""
    head = struct.pack("!6H", 0x7072, 0x0100, 1, 0, 0, 1)
    return head + spelled(name) + struct.pack("!HH", KINDS[kind], 1) + OPT


def name_at(data, at):
    """The name that stands somewhere in a message, and where it ends."""
    labels, end = [], None
    while data[at] and len(labels) < 128:
        if data[at] >= 0xC0:
            end = end or at + 2
            at = struct.unpack_from("!H", data, at)[0] & 0x3FFF
            continue
        labels.append(data[at + 1 : at + 1 + data[at]].decode(errors="replace"))
        at += 1 + data[at]
    return ".".join(labels), end or at + 1


def asked_in(data):
    """Name and kind of a question."""
    name, at = name_at(data, 12)
    number = struct.unpack_from("!H", data, at)[0]
    return name, next((word for word, known in KINDS.items() if known == number), "")


def answer(data, said, most):
    """What a server says to a question: the records that it is known to have said, or that they do not fit."""
    _, at = name_at(data, 12)
    head, asked = data[:2], data[12 : at + 4]
    records = b"".join(record(*each) for each in said["answers"])
    count = len(said["answers"])
    if 12 + len(asked) + len(records) > most:
        return head + struct.pack("!5H", RESPONSE | TRUNCATED, 1, 0, 0, 0) + asked
    return head + struct.pack("!5H", RESPONSE | CODES.get(said["code"], 2), 1, count, 0, 0) + asked + records


def record(name, kind, value):
    """One record."""
    data = spelled(value) if kind == "CNAME" else ipaddress.ip_address(value).packed
    return spelled(name) + struct.pack("!HHIH", KINDS[kind], 1, 5, len(data)) + data


def heard(data):
    """Response code and addresses of an answer."""
    flags, _, count = struct.unpack_from("!3H", data, 2)
    _, at = name_at(data, 12)
    at, found = at + 4, []
    for _ in range(count):
        _, at = name_at(data, at)
        kind, _, _, length = struct.unpack_from("!HHIH", data, at)
        if kind in (KINDS["A"], KINDS["AAAA"]):
            found.append(str(ipaddress.ip_address(data[at + 10 : at + 10 + length])))
        at += 10 + length
    return next((word for word, number in CODES.items() if number == flags & 15), str(flags & 15)), found


# Both ends.


class Servers:
    """The name servers of a case: each says of a name what was said of it, and nothing of any other."""

    def __init__(self, case):
        self.case, self.waiting = case, selectors.DefaultSelector()
        for each in case["servers"]:
            enter(each["namespace"])
            by_udp = each["protocol"] == "UDP"
            sock = opened(each["address"], socket.SOCK_DGRAM if by_udp else socket.SOCK_STREAM)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((each["address"], each["port"]))
            if not by_udp:
                sock.listen()
            self.waiting.register(sock, selectors.EVENT_READ, self.by_udp if by_udp else self.accept)

    def close(self):
        """Close every socket."""
        for key in list(self.waiting.get_map().values()):
            key.fileobj.close()
        self.waiting.close()

    def said(self, data):
        """What is known of the question."""
        name, kind = asked_in(data)
        known = {"code": "NXDOMAIN", "answers": []}
        for each in self.case["said"]:
            if each["name"] == name and each["kind"] in (kind, ""):
                known = each
        return known

    def by_udp(self, sock):
        """Answer one question."""
        with contextlib.suppress(OSError, struct.error, IndexError):
            data, peer = sock.recvfrom(65535)
            sock.sendto(answer(data, self.said(data), LARGE if data[11] else PLAIN), peer)

    def accept(self, sock):
        """Take a connection, over which a question may come."""
        made, _ = sock.accept()
        made.setblocking(False)
        self.waiting.register(made, selectors.EVENT_READ, self.by_tcp)

    def by_tcp(self, sock):
        """Answer one question, which comes in one piece."""
        with contextlib.suppress(OSError, struct.error, IndexError):
            data = sock.recv(65535)
            if data:
                said = answer(data[2:], self.said(data[2:]), 65535)
                sock.send(struct.pack("!H", len(said)) + said)
                return
        self.waiting.unregister(sock)
        sock.close()


def opened(address, kind):
    """A socket of the namespace that this process is in."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.socket(family, kind | socket.SOCK_NONBLOCK)


def ask(servers, case, server, name, kind):
    """Ask one question from where the sender is. Returns code and addresses; the error, if there is no answer."""
    try:
        code, found, flags = asked(servers, case, server, question(name, kind), by_udp=True)
        if flags & TRUNCATED:
            code, found, flags = asked(servers, case, server, question(name, kind), by_udp=False)
    except OSError as error:
        return errno.errorcode.get(error.errno, "no answer"), [], True
    return code, found, False


def asked(servers, case, server, words, *, by_udp):
    """Send a question, and let the servers work until its answer has come. Raises OSError."""
    enter(case["namespace"])
    with opened(server, socket.SOCK_DGRAM if by_udp else socket.SOCK_STREAM) as sock:
        if case["address"] and (":" in case["address"]) == (":" in server):
            sock.bind((case["address"], 0))
        until, sent, data = time.monotonic() + PATIENCE, False, b""
        with contextlib.suppress(BlockingIOError):
            sock.connect((server, 53))
        while time.monotonic() < until:
            for key, _ in servers.waiting.select(0.01):
                key.data(key.fileobj)
            failed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if failed:
                raise OSError(failed, "")
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                if not sent:
                    sent = sock.send(words if by_udp else struct.pack("!H", len(words)) + words) > 0
                data += sock.recv(65535)
            whole = data if by_udp else data[2:] if len(data) > 2 and len(data) - 2 >= data[0] * 256 + data[1] else b""
            if whole:
                return *heard(whole), struct.unpack_from("!H", whole, 2)[0]
    raise TimeoutError


# The verdict.


def resolve(case):
    """Ask until there is an address, as a resolver does, and yield a line for each thing that is wrong."""
    servers, found = Servers(case), []
    try:
        for name in case["names"]:
            for kind in case["kinds"]:
                code, addresses, failed = ask(servers, case, case["server"], name, kind)
                print(f"{case['sender']} asks {case['server']} for {name} {kind}: {', '.join(addresses) or code}")
                if failed:
                    yield f"expected {case['server']} to answer for {name} {kind}, seen {silence(code)}"
                    past(servers, case, name, kind)
                    return
                found += addresses
            if found:
                break
    finally:
        servers.close()
    yield from strangers(case, found)


def silence(code):
    """What there is in the place of an answer."""
    return "none" if code == "no answer" else code


def past(servers, case, name, kind):
    """Ask the servers themselves, which shows who is silent."""
    version = ":" in case["server"]
    for server in dict.fromkeys(each["address"] for each in case["servers"]):
        if (":" in server) == version:
            code, addresses, _ = ask(servers, case, server, name, kind)
            print(f"{case['sender']} asks {server} itself: {', '.join(addresses) or code}")


def strangers(case, found):
    """What an answer lacks, and what it should not have."""
    due = [*(case["due"] or []), *([case["wanted"]] if case["wanted"] else [])]
    if not found:
        yield f"expected the name to give {' and '.join(due) or 'an address'}, seen none"
        return
    for address in dict.fromkeys(due):
        if address not in found:
            yield f"expected the name to give {address}, seen {' and '.join(found)}"
    for address in dict.fromkeys(found):
        if case["due"] is not None and address not in case["due"]:
            yield f"expected the name to give {' and '.join(case['due'])} and no other, seen {address}"
