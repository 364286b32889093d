"""Send the packets of one probe, answer for its pods, and say whether what was expected came true.

Owns: one run of one probe in a wire that stands, and its words.
Must not: need anything but python3 and its standard library, or make what it runs in.

Usage: python3 play.py CASE [FRAMES]. CASE is a JSON file, FRAMES has one frame in hexadecimal digits on each line;
without it, the kernel's own sockets send. The namespaces are those of `ip netns`.
Needs python3's standard library and the right to enter the namespaces. Exits 0 if what was expected came true, 1 if
not, and 2 if nothing could be sent.
"""

import collections
import contextlib
import errno
import functools
import json
import resource
import selectors
import socket
import struct
import sys
import time

from listeners import Listeners
from netns import enter
from outcome import is_heard, judge
from packets import Matcher, Packet, end, token

ALL = 0x0003  # ETH_P_ALL of if_ether.h
OUTGOING = 4  # PACKET_OUTGOING of if_packet.h
RCVBUFFORCE, TIMESTAMP = 33, 35  # SO_RCVBUFFORCE, SO_TIMESTAMPNS of asm-generic/socket.h
AT_ONCE = 16  # flows that are sent before everybody is heard: no tap may overflow
BUFFER = 8 << 20
PATIENCE, SILENCE = 5.0, 1.0  # seconds: in all, and without any packet

Seen = collections.namedtuple("Seen", "at flow place outgoing what source destination")


# The run.


class Run:
    """One run of a case: its taps, its listeners, what sends, and what was seen.

    Where a namespace's own programs send or get, no device shows what they see: rules come in between. There the
    programs' own sockets tell, and the devices are watched only to show the way.
    """

    def __init__(self, case, frames):
        self.case, self.sender = case, case["sender"]
        self.family = socket.AF_INET6 if case["version"] == 6 else socket.AF_INET
        self.kind = socket.SOCK_STREAM if case["protocol"] == "TCP" else socket.SOCK_DGRAM
        self.own = {each["namespace"] for each in [self.sender, *case["pods"]] if each["device"] == "stack"}
        self.crossed = self.own | set(case["nodes"])
        self.matcher, self.seen, self.flow_of = Matcher(self.own_ports()), [], {}
        self.finished, self.failed, self.unknown, self.unheard, self.answers = 0, [], [], [], {}
        self.crafted = bool(frames)
        self.waiting = selectors.DefaultSelector()
        self.mouths = {}
        if not frames:
            self.sending = self.echo() if case["protocol"] == "ICMP" else self.dial()
        else:
            self.sending = self.speak_raw(frames) if self.sender["device"] == "stack" else self.frames(frames)

    def own_ports(self):
        """The flow of each source port, where a refused SYN is seen in an ICMP error and nowhere else."""
        own = self.sender["namespace"] in self.own
        return {port: flow for flow, port in enumerate(self.case["ports"])} if own else {}

    def play(self):
        """Send everything, answer, and return what was seen, in order."""
        self.watch()
        Listeners(self.case, self.waiting, self.got).listen()
        self.listen_raw()
        self.remember()
        more, began, last = True, time.monotonic(), time.monotonic()
        while more or (time.monotonic() < min(began + PATIENCE, last + SILENCE) and not self.settled()):
            before = len(self.seen)
            for _ in range(AT_ONCE):
                more = next(self.sending, None) is not None
            for key, _ in self.waiting.select(0 if more else 0.05):
                key.data(key.fileobj)
            if more or len(self.seen) > before:
                last = time.monotonic()
        while ready := self.waiting.select(0.05):  # what the last answers have set off
            if time.monotonic() > began + PATIENCE + SILENCE:
                break
            for key, _ in ready:
                key.data(key.fileobj)
        for each in self.unknown:  # a pod's tap may have been read before the sender's, where numbers are learnt
            self.take(*each)
        for each in self.unheard:
            self.overhear(*each)
        self.resolve()
        return sorted(self.seen, key=lambda each: each.at)  # those of one time in the order in which they were read

    def remember(self):
        """Let the nodes remember flows as they did, which no rule is asked about."""
        for entry in self.case["remembered"]:
            from memory import remember  # noqa: PLC0415 - stands in the scripts that need it

            enter(entry["namespace"])
            with contextlib.suppress(FileExistsError):  # of what was said twice
                remember(entry)

    def settled(self):
        """Whether every flow has been answered or turned away; of its own flows a socket knows best."""
        if self.flow_of:
            return self.finished == len(self.case["ports"])
        here = self.sender["namespace"]
        return len({each.flow for each in self.seen if is_heard(each, here)}) == self.case["flows"]

    def note(self, flow, place, outgoing, what, ends):
        """Take down what a program did or got."""
        now = divmod(time.time_ns(), 10**9)
        self.seen.append(Seen(now, flow, place, outgoing, what, *ends))

    # Taps.

    def watch(self):
        """Open a packet socket at the sender's device and at every pod's; where programs are, at all devices."""
        for namespace, device in sorted(
            {(each["namespace"], each["device"]) for each in [self.sender, *self.case["pods"]]}
            | {(node, "stack") for node in self.case["nodes"]}
        ):
            enter(namespace)
            sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.htons(ALL))
            sock.setsockopt(socket.SOL_SOCKET, TIMESTAMP, 1)
            with contextlib.suppress(PermissionError):
                sock.setsockopt(socket.SOL_SOCKET, RCVBUFFORCE, BUFFER)
            if device != "stack":
                sock.bind((device, ALL))
            here = (namespace, device) == (self.sender["namespace"], self.sender["device"])
            self.waiting.register(sock, selectors.EVENT_READ, functools.partial(self.look, namespace, here))

    def look(self, namespace, here, sock):
        """Take down what waits at one tap and belongs to the probe."""
        while True:
            try:
                data, control, _, about = sock.recvmsg(65535, 256)
            except OSError:  # nothing waits; or first, that the device of a link that is cut is down
                return
            outgoing = about[2] == OUTGOING
            try:
                packet = Packet(data[14:])
            except ValueError:
                continue
            place = f"{namespace}/{about[0]}" if namespace in self.crossed else namespace
            at = struct.unpack("@qq", control[0][2])
            if not self.take(at, place, outgoing, packet, here and outgoing):
                self.unknown.append((at, place, outgoing, packet))
            if packet.protocol == 132 and not outgoing:
                self.associate(namespace, packet, data, sock)

    def associate(self, namespace, packet, data, sock):
        """Answer an INIT that came to a pod for the pod's own address."""
        from associations import answer  # noqa: PLC0415 - stands in scripts for SCTP

        if (namespace, str(packet.destination)) in {(each["namespace"], each["address"]) for each in self.case["pods"]}:
            reply = answer(data, {each["port"] for each in self.case["listeners"] if each["namespace"] == namespace})
            if reply:
                sock.send(reply)

    def take(self, at, place, outgoing, packet, leaving=False):
        """Take down a packet if it is the probe's."""
        matched = self.matcher.match(packet, leaving)
        if matched:
            self.seen.append(Seen(at, matched[0], place, outgoing, matched[1], *packet.ends()))
        return matched

    # Of programs of nodes.

    def listen_raw(self):
        """Hear what programs of nodes get of protocols for which there is no socket, and of SYNs that are crafted.

        A socket that listens tells nobody of those: the sender's own kernel resets what it has not begun.
        """
        if self.case["protocol"] not in ("SCTP", "ICMP") and not (self.crafted and self.case["protocol"] == "TCP"):
            return
        from raw import Mouth  # noqa: PLC0415 - stands in scripts that need it

        ends = {(each["namespace"], each["address"]) for each in [self.sender, *self.case["pods"]]}
        for namespace, address in sorted(each for each in ends if each[0] in self.own):
            enter(namespace)
            mouth = self.mouths[namespace, address] = Mouth(self.case["protocol"], address)
            for sock in mouth.ears:
                self.waiting.register(sock, selectors.EVENT_READ, functools.partial(self.hear_raw, namespace, mouth))

    def hear_raw(self, namespace, mouth, sock):
        """Take down what came to a node itself."""
        for packet in map(Packet, mouth.read(sock)):
            now = divmod(time.time_ns(), 10**9)
            if not self.overhear(namespace, packet, now):
                self.unheard.append((namespace, packet, now))

    def overhear(self, namespace, packet, at):
        """Take down a packet that came to a node itself, if it is the probe's. Whether it is."""
        ports = {each["port"]: each["name"] for each in self.case["listeners"] if each["namespace"] == namespace}
        flow, what = self.matcher.match(packet, False) or (None, "")
        place = ports.get(packet.ports[1], namespace) if what == "request" else namespace
        if what == "request" or (what and namespace == self.sender["namespace"]):
            self.seen.append(Seen(at, flow, place, False, what, *packet.ends()))
        return flow is not None

    def got(self, listener, data, peer, asked):
        """Take down what a program of a node got: no device shows it as it came to the program."""
        if listener["namespace"] in self.own:
            flow = int(data[40:48], 16)
            self.note(flow, listener["name"], False, "request", (end(*peer[:2]), end(*asked[:2])))

    # Senders.

    def frames(self, lines):
        """Send the frames of the probe, as they left in the lab."""
        enter(self.sender["namespace"])
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
            sock.bind((self.sender["device"], 0))
            for line in lines:
                yield sock.send(bytes.fromhex(line))

    def speak_raw(self, lines):
        """Send the packets of a node's own program, which its rules are asked about first."""
        mouth = self.mouths[self.sender["namespace"], self.sender["address"]]
        for flow, packet in enumerate(Packet(bytes.fromhex(line)[14:]) for line in lines):
            self.matcher.match(packet, True)
            self.note(flow, self.sender["namespace"], True, "request", packet.ends())
            try:
                mouth.send(packet)
            except OSError as error:
                print(f"flow {flow}: the sender's own kernel refused to send: {error.strerror}")
            yield True

    def echo(self):
        """Ask by echo requests of this script's own making; the kernel cuts them where they are too long."""
        from raw import Mouth, echo_request  # noqa: PLC0415 - stands in scripts that need it

        here, address = self.sender["namespace"], self.sender["address"]
        enter(here)
        mouth = self.mouths.get((here, address)) or Mouth("ICMP", address)
        for flow, port in enumerate(self.case["ports"]):
            if here in self.own:
                self.note(flow, here, True, "request", (end(address, 0), end(self.case["dialled"], 0)))
            words = token("probe", flow) + b"." * self.case["payload"]
            try:
                mouth.ears[0].sendto(
                    echo_request(self.case["version"], port or flow + 1, words), (self.case["dialled"], 0)
                )
            except OSError as error:
                print(f"flow {flow}: the sender's own kernel refused to send: {error.strerror}")
            yield True

    def dial(self):
        """Dial once from each source port."""
        for flow, port in enumerate(self.case["ports"]):
            enter(self.sender["namespace"])
            sock = socket.socket(self.family, self.kind | socket.SOCK_NONBLOCK)
            sock.bind((self.sender["addresses"][flow % len(self.sender["addresses"])], port))
            ends = end(*sock.getsockname()[:2]), end(self.case["dialled"], self.case["port"])
            self.flow_of[sock] = flow, ends
            if self.sender["namespace"] in self.own:
                self.note(flow, self.sender["namespace"], True, "request", ends)
            try:
                sock.connect((self.case["dialled"], self.case["port"]))
            except BlockingIOError:
                pass
            except OSError as error:
                print(f"flow {flow}: the sender's own kernel refused to send: {error.strerror}")
            self.waiting.register(sock, selectors.EVENT_WRITE, self.speak)
            yield True

    def speak(self, sock):
        """Say the token, once the connection stands; a datagram leaves at once."""
        flow, (here, there) = self.flow_of[sock]
        failed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if not failed:
            try:
                sock.send(self.words(flow))
            except OSError as error:
                failed = error.errno
        if failed:
            self.fail(sock, failed)
            return
        if self.kind == socket.SOCK_STREAM and self.sender["namespace"] in self.own:
            self.note(flow, self.sender["namespace"], False, "reply", (there, here))
        self.waiting.modify(sock, selectors.EVENT_READ, self.hear)

    def words(self, flow):
        """What a flow says: its token, by HTTP where that is asked for."""
        if self.case["http"]:
            from hypertext import request  # noqa: PLC0415 - stands in scripts for HTTP

            return request(token("probe", flow))
        return token("probe", flow) + b"." * self.case["payload"] + b"\n"

    def hear(self, sock):
        """Take what comes back; by HTTP, all of it."""
        flow, (here, there) = self.flow_of[sock]
        try:
            heard = sock.recv(65535)
        except OSError as error:
            self.fail(sock, error.errno)
            return
        self.answers[flow] = self.answers.get(flow, b"") + heard
        if self.case["http"] and heard:
            return
        if self.kind == socket.SOCK_DGRAM and self.sender["namespace"] in self.own:
            self.note(flow, self.sender["namespace"], False, "reply", (there, here))
        self.finished += 1
        self.waiting.unregister(sock)

    def fail(self, sock, number):
        """Keep for later what a socket was told: devices may show by whom."""
        self.finished += 1
        self.waiting.unregister(sock)
        self.failed.append((*self.flow_of[sock], number))

    def resolve(self):
        """Take down what the sockets of a namespace's own programs were told: whether by ICMP, the devices show."""
        for flow, (here, there), number in self.failed if self.sender["namespace"] in self.own else ():
            errors = any(each.flow == flow and each.what == "port unreachable" for each in self.seen)
            if errors or number == errno.ECONNREFUSED:
                what = "port unreachable" if errors else "reset"
                self.note(flow, self.sender["namespace"], False, what, (there, here))


def tell(case, seen, wrong):
    """The way of one flow that shows what is wrong, and what that is."""
    shown = next((flow for flow, _ in wrong if flow is not None), 0)
    sent = f"flow {shown} of {case['flows']}, as it was seen:"
    print(sent if case["flows"] else "The name led nowhere, so nothing was dialled.")
    rows = [
        (each.place, "sends" if each.outgoing else "gets", each.what, each.source, ">", each.destination)
        for each in seen
        if each.flow == shown
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    if case["flows"] and not rows:
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
    wrong = []
    try:
        if case["name"]:
            from names import resolve  # noqa: PLC0415 - stands in scripts for names

            wrong += ((None, line) for line in resolve(case["name"]))
        run = Run(case, frames)
        seen = run.play() if case["flows"] else []
    except OSError as error:
        print(f"the probe could not be sent: {error}", file=sys.stderr)
        return 2
    wrong += judge(case, seen)
    if case["http"]:
        from hypertext import judge_answer  # noqa: PLC0415 - stands in scripts for HTTP

        for flow in range(case["flows"]):
            wrong += ((flow, line) for line in judge_answer(case["http"], run.answers.get(flow, b"")))
    if case["conntrack"]:
        from tables import judge_tables  # noqa: PLC0415 - stands in scripts for expectations of tables

        wrong += ((None, line) for line in judge_tables(case["conntrack"]))
    tell(case, seen, wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
