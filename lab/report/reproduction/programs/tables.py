"""What connection tracking holds, against what it must hold.

Owns: reading the entries of a namespace by ctnetlink, and a line for each expectation that did not come true.
Must not: need anything but python3 and its standard library, or change an entry (`memory` does).

The attributes are those of linux/netfilter/nfnetlink_conntrack.h.
"""

import collections
import ipaddress
import socket
import struct

from netns import enter
from packets import end

NETLINK_NETFILTER, CT_GET, DUMP, DONE = 12, 1 << 8 | 1, 0x1 | 0x300, 3
NAMES = {1: "ICMP", 6: "TCP", 17: "UDP", 58: "ICMP", 132: "SCTP"}
PORTS = {6: (2, 3), 17: (2, 3), 132: (2, 3)}
ECHOES = {1: (4, 8), 58: (7, 128)}  # the attribute of the identifier, and the type of a request

Entry = collections.namedtuple("Entry", "number source destination answers to")


def judge_tables(case):
    """A line for each thing that the tables hold or lack against what is expected."""
    entries = [(node, entry) for node in case["nodes"] for entry in tables(node)]
    fitting = {
        kind: [each for each in entries if case[kind] and fits(each[1], case[kind])] for kind in ("some", "none")
    }
    where = " or ".join(case["nodes"])
    if case["some"] and not fitting["some"]:
        yield f"expected an entry {case['some']['words']} on {where}, seen none"
    for node, entry in fitting["none"][:3]:
        yield f"expected no entry {case['none']['words']}, seen {spelled(entry)} on {node}"


def spelled(entry):
    """An entry in words."""
    told = f"{NAMES[entry.number]} {end(*entry.source)} > {end(*entry.destination)}, answered by {end(*entry.answers)}"
    return told if entry.to == entry.source else f"{told} to {end(*entry.to)}"


def fits(entry, wanted):
    """Whether an entry is of the kind."""
    return (
        entry.number in wanted["protocols"]
        and (wanted["reply from"] is None or str(entry.answers[0]) in wanted["reply from"])
        and (wanted["original from"] is None or str(entry.source[0]) in wanted["original from"])
        and wanted["port"] in (None, entry.destination[1])
        and wanted["masqueraded"] in (None, entry.to != entry.source)
    )


def tables(namespace):
    """The entries of a namespace, of both families. Raises OSError."""
    enter(namespace)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as sock:
        for family in (socket.AF_INET, socket.AF_INET6):
            sock.send(struct.pack("=IHHIIBBH", 20, CT_GET, DUMP, 1, 0, family, 0, 0))
            yield from filter(None, map(entry_of, bodies(sock)))


def bodies(sock):
    """What a dump says, message by message."""
    while True:
        data = sock.recv(1 << 18)
        while len(data) >= 16:
            length, kind = struct.unpack_from("=IH", data)
            if kind == DONE:
                return
            if kind == 2:  # an error: the kernel does not track this family
                return
            yield data[20:length]
            data = data[(length + 3) & ~3 :]


def entry_of(body):
    """The entry of a message; None where its protocol has no ports."""
    found = parts(body)
    (number, source, destination), (_, answers, to) = direction(found[1]), direction(found[2])
    return Entry(number, source, destination, answers, to) if source else None


def direction(data):
    """Protocol and both ends of a tuple."""
    found = parts(data)
    addresses, transport = parts(found[1]), parts(found[2])
    number = transport[1][0]
    source, destination = (ipaddress.ip_address(addresses[at]) for at in ((1, 2) if 1 in addresses else (3, 4)))
    if number in PORTS:
        ports = [int.from_bytes(transport[at], "big") for at in PORTS[number]]
    elif number in ECHOES:
        at, request = ECHOES[number]
        identifier = int.from_bytes(transport[at], "big")
        ports = [identifier, 0] if transport[at + 1][0] == request else [0, identifier]
    else:
        return number, None, None
    return number, (source, ports[0]), (destination, ports[1])


def parts(data):
    """Attributes by their kind."""
    found = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        found[kind & 0x3FFF] = data[4:length]
        data = data[(length + 3) & ~3 :]
    return found
