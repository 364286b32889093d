"""The two Python programs of a script: a listener at an endpoint, and a sender that prints the fate of its packet.

They need python3 and its standard library alone, and are written for one protocol and one IP family.

At a pod or host a packet has arrived when the device has it, even if the stack drops it: a packet socket sees it
there. A node's device also receives what the node only forwards. So for a program on a node the listener uses a raw
socket, which gets a copy of what the kernel delivers to local programs, after every rule (raw_local_deliver in
net/ipv4/raw.c). So does the sender, which thereby also receives an answer from an address that it never dialled.
"""

from typing import Final

from msgspec import Struct

from proxylab.addresses import Transport


class _Protocol(Struct, frozen=True):
    """The parts of the programs that differ between protocols: statements, and conditions on a packet above IP.

    Attributes:
        serves: opens the server of a port; empty if the kernel answers by itself.
        request: whether a packet is the first of a flow.
        answers: answers the request, if the kernel does not.
        sends: sends the first packet of a flow, and sets ``mine`` (the sender's port) and ``failed`` (an errno, or 0).
        answer: whether a packet to that port is an answer.
        verb: the word for an answer: a reset is not a reply.
    """

    serves: str
    request: str
    answers: str
    sends: str
    answer: str
    verb: str = "answered"


_CRC: Final = """\
def packed(ports, tag, chunk):  # an SCTP packet; its checksum is CRC32c (RFC 9260, appendix A)
    crc = 0xFFFFFFFF
    for byte in ports + tag + bytes(4) + chunk:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return ports + tag + (crc ^ 0xFFFFFFFF).to_bytes(4, "little") + chunk
"""

_PROTOCOLS: Final = {
    Transport.TCP: _Protocol(
        serves="""\
    servers[port] = socket.socket(socket.{family}, socket.SOCK_STREAM)
    servers[port].bind((address, port))
    servers[port].listen(100)""",
        request="packet[13] & 0x12 == 0x02",  # SYN without ACK
        answers="",
        sends="""\
    sock = socket.socket(socket.{family}, socket.SOCK_STREAM)
    sock.setblocking(False)
    sock.bind((source, int(own_port)))
    mine = sock.getsockname()[1].to_bytes(2, "big")
    failed = sock.connect_ex((to, int(port)))""",
        answer="packet[13] & 0x14",  # RST or ACK
        verb="{'reset' if packet[13] & 4 else 'answered'}",
    ),
    Transport.UDP: _Protocol(
        serves="""\
    servers[port] = socket.socket(socket.{family}, socket.SOCK_DGRAM)
    servers[port].bind((address, port))""",
        request='packet[8:13] == b"probe"',
        answers="""\
        if port in servers:
            servers[port].sendto(b"answer", (client, int.from_bytes(packet[:2], "big")))""",
        sends="""\
    sock = socket.socket(socket.{family}, socket.SOCK_DGRAM)
    sock.bind((source, int(own_port)))
    mine, failed = sock.getsockname()[1].to_bytes(2, "big"), 0
    try:
        sock.sendto(b"probe".ljust({payload}), (to, int(port)))
    except OSError as error:
        failed = error.errno""",
        answer='packet[8:14] == b"answer"',
    ),
    Transport.SCTP: _Protocol(
        serves="    servers[port] = True\nby_hand = socket.socket(socket.{family}, socket.SOCK_RAW, {number})",
        request="packet[12] == 1",  # INIT
        answers="""\
        answer = b"\\2\\0\\0\\x14" + packet[16:32] if port in servers else b"\\6\\0\\0\\4"  # INIT ACK, or ABORT
        by_hand.sendto(packed(packet[2:4] + packet[:2], packet[16:20], answer), (client, 0))""",
        sends="""\
    raw.bind((source, 0))
    mine, failed = (int(own_port) or random.randrange(32768, 61000)).to_bytes(2, "big"), 0
    init = b"\\x01\\0\\0\\x14" + random.randbytes(4) + bytes.fromhex("0001a000 000a 000a 00000001")
    raw.sendto(packed(mine + int(port).to_bytes(2, "big"), bytes(4), init), (to, 0))""",
        answer="packet[12] in (2, 6)",  # INIT ACK, ABORT
        verb="{'reset' if packet[12] == 6 else 'answered'}",
    ),
    Transport.ICMP: _Protocol(
        serves="",
        request="packet[0] == {echo}",
        answers="",
        sends="""\
    mine, failed = b"\\x12\\x34", 0  # the identifier; zeros behind it leave the checksum as it is
    raw.bind((source, 0))
    raw.sendto(bytes.fromhex("{echo_bytes}") + bytes({payload}), (to, 0))""",
        answer="packet[0] == {echo_reply}",
    ),
}

_LISTENER: Final = """\
# NAME ADDRESS WATCHED PORT...: note each request for the address and port, and answer on the ports.
import socket, sys
{helps}
name, address, watched, *ports = sys.argv[1:]
{servers}
{serves}
{opens}
open(f"/run/listening/{{name}} {{address}} {{watched}}", "w").close()
while True:
    packet, where = tap.recvfrom(65535)
    {takes}
    port = int.from_bytes(packet[2:4], "big")
    if {request} and watched in ("any", str(port)):
        open("/run/arrived", "a").write(f"delivered to {{name}} from {{client}}\\n")
{answers}
"""

_AT_A_NODE: Final = {
    "opens": """\
tap = socket.socket(socket.{family}, socket.SOCK_RAW, {number})
tap.bind((address, 0))""",
    "takes": """client = where[0]
    {strip}""",
}

_AT_A_DEVICE: Final = {
    4: {
        "opens": "tap = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))",
        "takes": """client, to = socket.inet_ntoa(packet[12:16]), socket.inet_ntoa(packet[16:20])
    if where[2] != socket.PACKET_HOST or packet[9] != {number} or to != address or packet[6] & 31 or packet[7]:
        continue  # not for this host, not of the probe, or a later fragment
    packet = packet[packet[0] % 16 * 4:]""",
    },
    6: {
        "opens": "tap = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x86DD))",
        "takes": """client, to = (socket.inet_ntop(socket.AF_INET6, packet[at:at + 16]) for at in (8, 24))
    kind, at = (packet[40], 48) if packet[6] == 44 else (packet[6], 40)  # 44: a fragment
    if where[2] != socket.PACKET_HOST or kind != {number} or to != address or at == 48 and packet[42:44] > b"\\0\\7":
        continue  # not for this host, not of the probe, or a later fragment
    packet = packet[at:]""",
    },
}

_SENDER: Final = """\
# SOURCE PORT TO PORT TIMES EXPECTED: send, again while all is as expected, and tell what became of the last.
import errno, {random}re, select, socket, sys, time
{helps}
source, own_port, to, port, times, expected = sys.argv[1:]
for _ in range(int(times)):
    open("/run/arrived", "w").close()
    icmp = socket.socket(socket.{family}, socket.SOCK_RAW, {icmp})
    raw = socket.socket(socket.{family}, socket.SOCK_RAW, {number})
{sends}
    line, end = "no answer", time.monotonic() + 2
    while line == "no answer" and (left := end - time.monotonic()) > 0:
        for heard in select.select([icmp, raw], [], [], left)[0]:
            packet, (peer, *_) = heard.recvfrom(65535)
            {strip}
            if heard is icmp and packet[0] in {errors} and packet[:2] != {too_big}:
                line = f"rejected by ICMP type {{packet[0]}} code {{packet[1]}}"
            elif heard is raw and {to_me} == mine and {answer}:
                line = f"{verb} by {{peer}}{by_port}"
    if line == "no answer" and failed not in (0, errno.EINPROGRESS, errno.ECONNREFUSED):
        line = f"not sent: {{errno.errorcode[failed]}}"
        break
    end = time.monotonic() + (1 if " by " in line and "ICMP" not in line else 0)
    while not (arrived := sorted(set(open("/run/arrived").read().splitlines()))) and time.monotonic() < end:
        time.sleep(0.01)
    line = f"{{' and '.join(arrived) or 'not delivered'}}, {{line}}"
    if not re.fullmatch(expected, line):
        break
print(line)
"""


def listener(protocol: Transport, version: int, *, node: bool) -> str:
    """The listener for a node, or for a pod or host; its first line names its arguments."""
    chosen, words = _PROTOCOLS[protocol], _words(protocol, version)
    tap = _AT_A_NODE if node else _AT_A_DEVICE[version]
    return _text(
        _LISTENER,
        words,
        servers="servers = {}\nfor port in map(int, ports):" if chosen.serves else "",
        serves=chosen.serves.format(**words),
        request=chosen.request.format(**words),
        answers=chosen.answers,
        **{key: value.format(**words) for key, value in tap.items()},
    )


def sender(protocol: Transport, version: int, payload: int) -> str:
    """The sender; its first line names its arguments."""
    chosen, words = _PROTOCOLS[protocol], _words(protocol, version)
    echo = protocol is Transport.ICMP
    return _text(
        _SENDER,
        words,
        random="random, " if protocol is Transport.SCTP else "",
        sends=chosen.sends.format(**words, payload=payload),
        answer=chosen.answer.format(**words),
        to_me="packet[4:6]" if echo else "packet[2:4]",
        verb=chosen.verb,
        by_port="" if echo else " port {int.from_bytes(packet[:2], 'big')}",
    )


def _words(protocol: Transport, version: int) -> dict[str, str]:
    four = version == 4
    return {
        "helps": _CRC if protocol is Transport.SCTP else "",
        "family": "AF_INET" if four else "AF_INET6",
        "icmp": "socket.IPPROTO_ICMP" if four else "socket.IPPROTO_ICMPV6",
        "number": f"socket.IPPROTO_{protocol}{'V6' if protocol is Transport.ICMP and not four else ''}",
        "strip": "packet = packet[packet[0] % 16 * 4:]  # without the IPv4 header" if four else "",
        "errors": "(3, 11, 12)" if four else "(1, 3, 4)",
        "too_big": r'b"\x03\x04"' if four else r'b"\x02\x00"',
        "echo": "8" if four else "128",
        "echo_reply": "0" if four else "129",
        # type, code, checksum (over IPv6 the kernel's), identifier, sequence number
        "echo_bytes": "0800 e5ca 1234 0001" if four else "8000 0000 1234 0001",
    }


def _text(template: str, words: dict[str, str], **more: str) -> str:
    """The text of a program, without the lines that the protocol leaves empty."""
    lines = template.format(**words, **more).splitlines()
    return "".join(f"{line}\n" for line in lines if line.strip())
