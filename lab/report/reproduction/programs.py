"""The two programs of a script: one listens at an endpoint, the other sends the probe and tells what became of it.

Owns: their text, for one protocol and one IP family: python3 and its standard library alone.
Must not: know addresses or names; the script hands them over.

Both look at raw sockets, which get a copy of each packet that the kernel hands to its own programs, behind every rule
(raw_local_deliver in net/ipv4/raw.c). So a request has arrived even if nobody can answer it, and an answer from an
address that was never dialled is heard, too.
"""

from dataclasses import dataclass
from typing import Final

from lab.ip import Transport

__all__ = ["listener", "sender"]


@dataclass(frozen=True, slots=True)
class _Protocol:
    """What differs between protocols: conditions on a packet, and statements."""

    number: str
    opens: str
    request: str
    answers: str
    answer: str
    sends: str
    by: str = "f'{peer} port {int.from_bytes(packet[:2], \"big\")}'"
    helps: str = ""


_CRC: Final = """
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
        number="IPPROTO_TCP",
        opens="servers[port] = socket.socket(socket.{family}, socket.SOCK_STREAM)\n"
        "    servers[port].bind((address, port))\n"
        "    servers[port].listen(100)",
        request="packet[13] & 0x12 == 0x02",  # SYN without ACK
        answers="",  # the kernel answers a SYN
        answer="packet[13] & 0x14",  # RST or ACK
        sends="sock = socket.socket(socket.{family}, socket.SOCK_STREAM)\n"
        "    sock.setblocking(False)\n"
        "    sock.bind((source, own_port))\n"
        "    mine = sock.getsockname()[1].to_bytes(2, 'big')\n"
        "    failed = sock.connect_ex((to, port))",
    ),
    Transport.UDP: _Protocol(
        number="IPPROTO_UDP",
        opens="servers[port] = socket.socket(socket.{family}, socket.SOCK_DGRAM)\n"
        "    servers[port].bind((address, port))",
        request='packet[8:13] == b"probe"',
        answers="if port in servers:\n"
        "            servers[port].sendto(b'answer', (client, int.from_bytes(packet[:2], 'big')))",
        answer='packet[8:14] == b"answer"',
        sends="sock = socket.socket(socket.{family}, socket.SOCK_DGRAM)\n"
        "    sock.bind((source, own_port))\n"
        "    mine = sock.getsockname()[1].to_bytes(2, 'big')\n"
        "    try:\n"
        "        failed = sock.sendto(b'probe'.ljust({payload}), (to, port)) and 0\n"
        "    except OSError as error:\n"
        "        failed = error.errno",
    ),
    Transport.SCTP: _Protocol(
        number="IPPROTO_SCTP",
        opens="servers[port] = raw  # answers by hand: few kernels have SCTP loaded",
        request="packet[12] == 1",  # INIT
        answers="if port in servers:\n"
        "            raw.sendto(packed(packet[2:4] + packet[:2], packet[16:20], "
        "b'\\x02\\0\\0\\x14' + packet[16:32]), (client, 0))",
        answer="packet[12] in (2, 6)",  # INIT ACK, ABORT
        sends="raw.bind((source, 0))\n"
        "    mine = (own_port or random.randrange(32768, 61000)).to_bytes(2, 'big')\n"
        "    init = b'\\x01\\0\\0\\x14' + random.randbytes(4) + bytes.fromhex('0001a000 000a 000a 00000001')\n"
        "    failed = raw.sendto(packed(mine + port.to_bytes(2, 'big'), bytes(4), init), (to, 0)) and 0",
        helps=_CRC,
    ),
    Transport.ICMP: _Protocol(
        number="IPPROTO_ICMP",
        opens="",
        request="packet[0] == {echo}",
        answers="",  # the kernel answers an echo request
        answer="packet[0] == {echo_reply} and packet[4:6] == mine",
        sends="raw.bind((source, 0))\n"
        "    mine = b'\\x12\\x34'  # the identifier; the checksum holds for any number of zeros\n"
        "    failed = raw.sendto(bytes.fromhex('{echo_bytes}') + bytes({payload}), (to, 0)) and 0",
        by="peer",
    ),
}

_LISTENER: Final = """\
# NAME ADDRESS PORT|any PORT...: note each request that arrives at the address, and answer on the ports.
import socket, sys
{helps}
name, address, watched, *ports = sys.argv[1:]
raw = socket.socket(socket.{family}, socket.SOCK_RAW, socket.{number})
raw.bind((address, 0))
{servers}
    {opens}
open(f"/run/listening/{{name}} {{address}} {{watched}}", "w").close()
while True:
    packet, (client, *_) = raw.recvfrom(65535)
    {strip}
    port = int.from_bytes(packet[2:4], "big")
    if {request} and watched in ("any", str(port)):
        with open("/run/arrived", "a") as arrived:
            arrived.write(f"delivered to {{name}} from {{client}}\\n")
        {answers}
"""

_SENDER: Final = """\
# SOURCE PORT TO PORT TIMES EXPECTED: send, again while all is as expected, and tell what became of the last.
import errno, random, re, select, socket, sys, time
{helps}
source, own_port, to, port, times, expected = sys.argv[1:]
own_port, port = int(own_port), int(port)

def answer(seconds):
    icmp = socket.socket(socket.{family}, socket.SOCK_RAW, socket.{icmp})
    raw = socket.socket(socket.{family}, socket.SOCK_RAW, socket.{number})
    {sends}
    if failed and failed not in (errno.EINPROGRESS, errno.ECONNREFUSED):
        return f"not sent: {{errno.errorcode[failed]}}"
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        for heard in select.select([icmp, raw], [], [], left)[0]:
            packet, (peer, *_) = heard.recvfrom(65535)
            {strip}
            if heard is icmp and packet[0] in {errors} and {unreachable} and mine in packet[8:]:
                return f"rejected by ICMP type {{packet[0]}} code {{packet[1]}}"
            if heard is raw and {mine} and {answer}:
                by = {by}
                return f"{told}"
    return "no answer"

for _ in range(int(times)):
    open("/run/arrived", "w").close()
    line, end = answer(0.9), time.monotonic() + 1
    while not (arrived := sorted(set(open("/run/arrived").read().splitlines()))):
        if not line.startswith(("answered", "reset")) or time.monotonic() > end:
            break
        time.sleep(0.01)
    if not line.startswith("not sent"):
        line = f"{{' and '.join(arrived) or 'not delivered'}}, {{line}}"
    if not re.fullmatch(expected, line):
        break
print(line)
"""


def listener(protocol: Transport, version: int) -> str:
    """The program that listens: its arguments are NAME ADDRESS PORT|any PORT…, as its first line says."""
    chosen = _PROTOCOLS[protocol]
    words = {
        **_words(protocol, version),
        "servers": "servers = {}\nfor port in map(int, ports):" if chosen.opens else "",
        "opens": chosen.opens,
        "request": chosen.request,
        "answers": chosen.answers,
    }
    return _filled(_LISTENER, words)


def sender(protocol: Transport, version: int, payload: int) -> str:
    """The program that sends: SOURCE PORT TO PORT TIMES EXPECTED."""
    chosen = _PROTOCOLS[protocol]
    told = "answered by {by}"
    if protocol is Transport.TCP:
        told = "{'reset' if packet[13] & 4 else 'answered'} by {by}"
    elif protocol is Transport.SCTP:
        told = "{'reset' if packet[12] == 6 else 'answered'} by {by}"
    words = {
        **_words(protocol, version),
        "sends": chosen.sends,
        "answer": chosen.answer,
        "by": chosen.by,
        "told": told,
        "payload": str(payload),
        "mine": "True" if protocol is Transport.ICMP else "packet[2:4] == mine",
    }
    return _filled(_SENDER, words)


def _words(protocol: Transport, version: int) -> dict[str, str]:
    four = version == 4
    icmp = "IPPROTO_ICMP" if four else "IPPROTO_ICMPV6"
    return {
        "helps": _PROTOCOLS[protocol].helps,
        "family": "AF_INET" if four else "AF_INET6",
        "icmp": icmp,
        "number": icmp if protocol is Transport.ICMP else _PROTOCOLS[protocol].number,
        "strip": "packet = packet[packet[0] % 16 * 4:]  # without the IPv4 header" if four else "",
        "errors": "(3, 11, 12)" if four else "(1, 3, 4)",
        "unreachable": "packet[:2] != b'\\x03\\x04'" if four else "True",
        "echo": "8" if four else "128",
        "echo_reply": "0" if four else "129",
        # type, code, checksum (over IPv6 the kernel's), identifier 0x1234, sequence number 1
        "echo_bytes": "0800 e5ca 1234 0001" if four else "8000 0000 1234 0001",
    }


def _filled(text: str, words: dict[str, str]) -> str:
    """The text of a program, without the lines that a protocol has no use for."""
    inner = {key: value.format(**words) if key in ("opens", "request", "answer", "sends") else value
             for key, value in words.items()}  # fmt: skip
    lines = text.format(**inner).splitlines()
    return "\n".join(line for line in lines if line.strip()) + "\n"
