"""Send the packets of one probe, answer for its pods, and say whether what was expected came true.

Owns: one run of one probe in a wire that stands, and its words.
Must not: need anything but python3 and its standard library, or make what it runs in.

Usage: python3 play.py CASE [FRAMES]. CASE is a JSON file, FRAMES has one frame in hexadecimal digits on each line;
without it, the kernel's own sockets send. The namespaces are those of `ip netns`.
Needs python3's standard library and the right to enter the namespaces. Exits 0 if what was expected came true, 1 if
not, and 2 if nothing could be sent.
"""

import collections
import ctypes
import errno
import ipaddress
import json
import os
import resource
import select
import socket
import struct
import sys
import time

NEWNET = 0x40000000  # CLONE_NEWNET of sched.h
ALL = 0x0003  # ETH_P_ALL of if_ether.h
OUTGOING = 4  # PACKET_OUTGOING of if_packet.h
TIMESTAMP = 35  # SO_TIMESTAMPNS of asm-generic/socket.h
PKTINFO = {4: (socket.IPPROTO_IP, 8), 6: (socket.IPPROTO_IPV6, 50)}  # IP_PKTINFO; IPV6_PKTINFO
ASK_PKTINFO = {4: (socket.IPPROTO_IP, 8), 6: (socket.IPPROTO_IPV6, 49)}  # IP_PKTINFO; IPV6_RECVPKTINFO
PORT_UNREACHABLE = {4: (3, 3), 6: (1, 4)}
ICMP_ERRORS = {4: (3, 11, 12), 6: (1, 3, 4)}
SYN, RST, ACK = 2, 4, 16
PATIENCE, SILENCE = 5.0, 1.0  # seconds: in all, and without any packet

Seen = collections.namedtuple("Seen", "at flow place outgoing what source destination")


def enter(namespace):
    """Let this process be in a namespace; a socket made there stays there."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    if libc.setns(fd, NEWNET):
        raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
    os.close(fd)


def token(word, flow):
    """What a request or an answer begins with: 48 bytes, of which the last eight are the number of the flow."""
    return f"proxylab {word} {0:016x} {flow:016x}".encode()


def end(address, port):
    """An address with its port, as one writes it."""
    if not port:
        return str(address)
    return f"{address}:{port}" if address.version == 4 else f"[{address}]:{port}"


# What packets say.


class Packet:
    """One IP packet: addresses, ports, and what tells its flow. Raises ValueError for what is none."""

    def __init__(self, data):
        self.version = data[0] >> 4 if data else 0
        if self.version == 4 and len(data) >= 20:
            self.protocol, head = data[9], (data[0] & 15) * 4
            addresses = data[12:16], data[16:20]
        elif self.version == 6 and len(data) >= 40:
            self.protocol, head = data[6], 40
            addresses = data[8:24], data[24:40]
        else:
            raise ValueError
        self.source, self.destination = map(ipaddress.ip_address, addresses)
        self.body = data[head:]
        if len(self.body) < 8:
            raise ValueError
        self.ports = struct.unpack("!HH", self.body[:4]) if self.protocol in (6, 17) else (0, 0)

    def ends(self):
        """Whence and whither."""
        return end(self.source, self.ports[0]), end(self.destination, self.ports[1])


class Matcher:
    """Tells which flow a packet belongs to, whatever was done to its addresses and ports.

    A datagram bears its flow in its first bytes. A SYN bears it in its sequence number, which is learnt where it leaves
    the sender; the answers acknowledge that number plus one.
    """

    def __init__(self):
        self.learnt = {}

    def match(self, packet, leaving):
        """Flow and kind of a packet; None for any other packet."""
        if packet.protocol == 17:
            return self._datagram(packet.body[8:])
        if packet.protocol == 6 and len(packet.body) >= 14:
            return self._segment(packet.body, leaving)
        if packet.protocol in (1, 58) and packet.body[0] in ICMP_ERRORS[packet.version]:
            try:
                about = self.match(Packet(packet.body[8:]), False)
            except ValueError:
                return None
            kind = tuple(packet.body[:2])
            name = "port unreachable" if kind == PORT_UNREACHABLE[packet.version] else f"ICMP {kind[0]}/{kind[1]}"
            return (about[0], name) if about and about[1] == "request" else None
        return None

    @staticmethod
    def _datagram(payload):
        words = payload[:48].split()
        if len(words) < 4 or words[0] != b"proxylab" or words[1] not in (b"probe", b"reply"):
            return None
        return int(words[3][-8:], 16), "request" if words[1] == b"probe" else "reply"

    def _segment(self, body, leaving):
        sequence, acknowledged = struct.unpack("!II", body[4:12])
        flags = body[13] & (SYN | RST | ACK)
        if flags == SYN:
            if leaving:
                self.learnt.setdefault(sequence, len(self.learnt))
            flow = self.learnt.get(sequence)
        else:
            flow = self.learnt.get((acknowledged - 1) & 0xFFFFFFFF)
        kind = {SYN: "request", SYN | ACK: "reply", RST | ACK: "reset"}.get(flags)
        return None if flow is None or kind is None else (flow, kind)


# Who listens and who sends.


def listeners(case):
    """The sockets of the pods, each with its answer."""
    made = {}
    for each in case["listeners"]:
        enter(each["namespace"])
        family = socket.AF_INET6 if case["version"] == 6 else socket.AF_INET
        kind = socket.SOCK_STREAM if each["protocol"] == "TCP" else socket.SOCK_DGRAM
        sock = socket.socket(family, kind | socket.SOCK_NONBLOCK)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((each["address"] or ("::" if family == socket.AF_INET6 else "0.0.0.0"), each["port"]))
        if kind == socket.SOCK_STREAM:
            sock.listen(1024)
        else:
            sock.setsockopt(*ASK_PKTINFO[case["version"]], 1)
        made[sock] = each["name"]
    return made


def answer(sock, name, version):
    """Answer what waits at a listener, from the address that was asked."""
    while True:
        try:
            if sock.type == socket.SOCK_STREAM:
                made, _ = sock.accept()
                made.settimeout(SILENCE)
                made.sendall(token("reply", 0) + b" from " + name.encode() + b"\n" if made.recv(4096) else b"")
                made.close()
                continue
            data, control, _, peer = sock.recvmsg(65535, 256)
            if data.startswith(b"proxylab probe "):
                about = [(level, kind, b"\0" * 4 + info[4:]) for level, kind, info in control]
                if version == 6:
                    about = [(level, kind, info[:16] + b"\0" * 4) for level, kind, info in control]
                sock.sendmsg([b"proxylab reply " + data[15:48] + b" from " + name.encode()], about, 0, peer)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EWOULDBLOCK):
                return


def taps(case):
    """A packet socket at the sender's device and at every pod's, by namespace and device."""
    made = {}
    for namespace, device in sorted({(each["namespace"], each["device"]) for each in [case["sender"], *case["pods"]]}):
        enter(namespace)
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.htons(ALL))
        sock.setsockopt(socket.SOL_SOCKET, TIMESTAMP, 1)
        sock.bind((device, ALL))
        made[sock] = namespace, device
    return made


def send_frames(case, frames):
    """Send the frames of the probe, as they left in the lab."""
    enter(case["sender"]["namespace"])
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
        sock.bind((case["sender"]["device"], 0))
        for line in frames:
            yield sock.send(bytes.fromhex(line))


def send_by_sockets(case, dialling):
    """Dial once from each source port."""
    enter(case["sender"]["namespace"])
    family = socket.AF_INET6 if case["version"] == 6 else socket.AF_INET
    for flow, port in enumerate(case["ports"]):
        stream = case["protocol"] == "TCP"
        sock = socket.socket(family, (socket.SOCK_STREAM if stream else socket.SOCK_DGRAM) | socket.SOCK_NONBLOCK)
        sock.bind((case["sender"]["address"], port))
        dialling.append(sock)
        try:
            sock.connect((case["dialled"], case["port"]))
        except BlockingIOError:
            pass
        except OSError as error:
            print(f"flow {flow}: the sender's own kernel refused to send: {error.strerror}")
        if not stream:
            try:
                sock.send(token("probe", flow) + b"." * case["payload"] + b"\n")
            except OSError as error:
                print(f"flow {flow}: the sender's own kernel refused to send: {error.strerror}")
        yield flow


# The probe.


def play(case, frames):
    """Send everything, answer, and return what was seen, in order."""
    watched, listening, dialling, seen = taps(case), listeners(case), [], []
    matcher = Matcher()
    sending = send_frames(case, frames) if frames else send_by_sockets(case, dialling)
    more, began, last = True, time.monotonic(), time.monotonic()
    while more or time.monotonic() < min(began + PATIENCE, last + SILENCE):
        for _ in range(64):
            more = next(sending, None) is not None
            last = time.monotonic() if more else last
        ready, _, _ = select.select([*watched, *listening], [], [], 0 if more else 0.05)
        for sock in ready:
            if sock in listening:
                answer(sock, listening[sock], case["version"])
            else:
                found = look(case, matcher, sock, *watched[sock])
                last = time.monotonic() if found else last
                seen += found
        if not more and settled(case, seen):
            break
    return sorted(seen)


def look(case, matcher, sock, namespace, device):
    """What waits at one tap and belongs to the probe."""
    found = []
    sender = case["sender"]
    here = (namespace, device) == (sender["namespace"], sender["device"])
    while True:
        try:
            data, control, _, about = sock.recvmsg(65535, 256)
        except BlockingIOError:
            return found
        outgoing = about[2] == OUTGOING
        try:
            packet = Packet(data[14:])
        except ValueError:
            continue
        matched = matcher.match(packet, here and outgoing)
        if matched:
            at = struct.unpack("@qq", control[0][2])
            found.append(Seen(at, matched[0], namespace, outgoing, matched[1], *packet.ends()))


def settled(case, seen):
    """Whether every flow has been answered or turned away."""
    sender = case["sender"]["namespace"]
    heard = {each.flow for each in seen if each.place == sender and not each.outgoing and each.what != "request"}
    return len(heard) == case["flows"]


# What became of it.


def arrivals(case, seen, flow):
    """The pods that a flow reached under their own address, and the packets."""
    pods = {(each["namespace"], each["address"]): each["name"] for each in case["pods"]}
    coming = [each for each in seen if each.flow == flow and not each.outgoing and each.what == "request"]
    found = [(pods.get((each.place, bare(each.destination))), each) for each in coming]
    return [(name, each) for name, each in found if name]


def bare(written):
    """The address of an end."""
    return written.rpartition(":")[0].strip("[]") if written.count(":") == 1 or "]" in written else written


def judge(case, seen):
    """A line for each thing that is not as it was expected, with a flow that shows it."""
    expect, sender, hits = case["expect"], case["sender"]["namespace"], collections.Counter()
    for flow in range(case["flows"]):
        reached = arrivals(case, seen, flow)
        heard = [each for each in seen if each.flow == flow and each.place == sender and not each.outgoing]
        heard = [each for each in heard if each.what != "request"]
        hits.update({name for name, _ in reached})
        outcome = fate(reached, heard)
        if outcome != expect["outcome"]:
            yield flow, f"expected {expect['outcome']}, seen {outcome}"
            continue
        if outcome == "delivered":
            yield from ((flow, line) for line in judge_delivery(case, reached, heard))
    yield from judge_shares(case, hits)


def fate(reached, heard):
    """What became of one flow, by what the pods and the sender saw."""
    what = [each.what for each in heard]
    if "reset" in what:
        return "refused"
    if "port unreachable" in what and not reached:
        return "rejected"
    turned_away = [each for each in what if each != "reply"]
    if turned_away:
        return f"answered by {turned_away[0]}"
    return "delivered" if len({name for name, _ in reached}) == 1 else "dropped" if not reached else "multiplied"


def judge_delivery(case, reached, heard):
    """What is wrong with a flow that reached a pod: which pod, from which source, answered from where."""
    expect = case["expect"]
    for name, packet in reached[:1]:
        if expect["backends"] and name not in expect["backends"]:
            yield f"expected at {' or '.join(expect['backends'])}, seen at {name}"
        if expect["source"] and bare(packet.source) != expect["source"]:
            yield f"expected from {expect['source']}, seen from {bare(packet.source)} at {name}"
    dialled = end(ipaddress.ip_address(case["dialled"]), case["port"])
    if not heard:
        yield f"expected a reply from {dialled}, seen none"
    elif heard[0].source != dialled:
        yield f"expected a reply from {dialled}, seen from {heard[0].source}"


def judge_shares(case, hits):
    """Which backends got too much, too little or nothing."""
    names, flows = case["expect"]["backends"] or [], sum(hits.values())
    for name in names if case["expect"]["hit all"] else []:
        if not hits[name]:
            yield None, f"expected at {name} too, seen never in {flows} flows"
    for name in names if case["expect"]["even"] else []:
        due = flows / len(names)
        if abs(hits[name] - due) > 0.3 * due:
            yield None, f"expected about {due:.0f} flows at {name}, seen {hits[name]}"


def tell(case, seen, wrong):
    """The way of one flow that shows what is wrong, and what that is."""
    shown = next((flow for flow, _ in wrong if flow is not None), 0)
    print(f"flow {shown} of {case['flows']}, as it was seen:")
    rows = [
        (each.place, "sends" if each.outgoing else "gets", each.what, each.source, ">", each.destination)
        for each in seen
        if each.flow == shown
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    if not rows:
        print("  not at all")
    for line, count in collections.Counter(line for _, line in wrong).most_common(10):
        print(f"{line}" + (f" ({count} of {case['flows']} flows)" if case["flows"] > 1 and count > 1 else ""))
    print("The failure shows again." if wrong else "All is as it was expected: the failure does not show.")


def main():
    """Play a case. Returns the exit code."""
    with open(sys.argv[1], encoding="utf-8") as file:
        case = json.load(file)
    frames = []
    if len(sys.argv) > 2:
        with open(sys.argv[2], encoding="ascii") as file:
            frames = file.read().split()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    try:
        seen = play(case, frames)
    except OSError as error:
        print(f"the probe could not be sent: {error}", file=sys.stderr)
        return 2
    wrong = list(judge(case, seen))
    tell(case, seen, wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
