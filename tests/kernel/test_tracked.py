"""Connection tracking: look-ups of single flows, and entries that the lab writes."""

from collections import Counter
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import pytest
from msgspec.structs import replace
from sandboxed import sandboxed

from proxylab.addresses import Family, Protocol
from proxylab.cluster.configuration import SocketAddress
from proxylab.kernel.netlink.conntrack import Conntrack, Tuple
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import inside, make_netns
from proxylab.scenario.nodes import TrackedConnection
from proxylab.timing import Deadline

FAMILIES: dict[Family, Any] = {
    Family.IPV4: ("iptables-legacy", "10.9.0.1/32", IPv4Address("10.9.0.1"), IPv4Address("127.0.0.1"), "127.0.0.1:9"),
    Family.IPV6: ("ip6tables-legacy", "fd00::9/128", IPv6Address("fd00::9"), IPv6Address("::1"), "[::1]:9"),
}
PORTS = range(2000, 2200)  # more than one batch


async def looked_up(launcher: Launcher) -> dict[str, Any]:
    import socket
    import struct

    found: dict[str, Any] = {}
    for family, (tool, network, dialled, own, to) in FAMILIES.items():
        netns = make_netns(str(family))

        async def run(*argv: str, stdin: str = "", netns: Any = netns, netns_name: str = str(family)) -> None:
            done = await launcher.run(
                netns, argv, netns_name=netns_name, stdin=stdin.encode(), deadline=Deadline.after(10)
            )
            assert done.status == 0, done.stderr

        lookup = Conntrack(netns)
        original = Tuple(17, own, 0, dialled, 53)
        untracked = lookup.replies(original, [2000])
        await run("ip", "link", "set", "lo", "up")
        await run("ip", "address", "add", network, "dev", "lo")
        rule = f"-A OUTPUT -d {dialled} -p udp --dport 53 -j DNAT --to-destination {to}"
        await run(f"{tool}-restore", stdin=f"*nat\n{rule}\nCOMMIT\n")
        kind = socket.AF_INET if family is Family.IPV4 else socket.AF_INET6
        for port in PORTS:
            with inside(netns):
                sock = socket.socket(kind, socket.SOCK_DGRAM)
            with sock:
                sock.bind((str(own), port))
                sock.sendto(b"", (str(dialled), 53))
        replies = lookup.replies(original, [*PORTS, 1999])
        icmp, ask = (1, 8) if family is Family.IPV4 else (58, 128)
        number = socket.getprotobyname("icmp" if icmp == 1 else "ipv6-icmp")
        with inside(netns):
            sock = socket.socket(kind, socket.SOCK_RAW, number)
        with sock:
            for identifier in (77, 78):
                # The kernel writes ICMPv6's checksum itself.
                words = (ask << 8) + identifier
                checksum = 0xFFFF - (words & 0xFFFF) - (words >> 16)
                sock.sendto(struct.pack("!BBHHH", ask, 0, checksum, identifier, 0), (str(own), 0))
        echoes = lookup.replies(Tuple(icmp, own, 0, own, 0), [77, 78, 79])
        entries = lookup.entries(family, icmp)
        every = Counter(each.original.protocol for each in lookup.entries(family, 17, icmp))
        held = [
            *lookup.holding(Tuple(17, own, 2000, dialled, 0), [53, 54]),  # as the first packet came
            *lookup.holding(Tuple(17, own, 9, own, 0), [2001, 1999]),  # as its reply comes
        ]
        lookup.close()
        found[family] = {
            "held": [each and [way.source_port for way in each] for each in held],
            "untracked": untracked,
            "last": replies[-1],
            "ends": sorted({f"{r.source} {r.source_port} {r.destination} {r.protocol}" for r in replies[:-1] if r}),
            "echoes": [r and (str(r.source), r.source_port, str(r.destination), r.destination_port) for r in echoes],
            "entries": sorted(
                (each.original.source_port, each.original.destination_port, each.reply.source_port) for each in entries
            ),
            "every": [every[17], every[icmp]],
            "ports": [r.destination_port for r in replies[:-1] if r],
        }
    return found


@pytest.mark.parametrize("ordinary", [False, True], ids=["as the current user", "ordinary user"])
def test_each_flow_is_found_by_what_it_dialled(ordinary: bool) -> None:
    for family, found in sandboxed(looked_up, ordinary=ordinary).items():
        own = "127.0.0.1" if family == Family.IPV4 else "::1"
        assert found["untracked"] == [None]
        assert found["last"] is None
        assert found["ends"] == [f"{own} 9 {own} 17"]
        assert found["ports"] == list(PORTS)
        assert found["echoes"] == [[own, 0, own, 77], [own, 0, own, 78], None]
        assert found["held"] == [[2000, 9], None, [2001, 9], None]
        assert found["every"] == [len(PORTS), 2]
        assert found["entries"] == [[77, 0, 0], [78, 0, 0]]


ENDS = {
    Family.IPV4: ("10.0.0.1:1000", "10.96.0.1:53", "10.0.0.9:5353", "172.18.0.1:77"),
    Family.IPV6: ("[fd00::1]:1000", "[fd00:96::1]:53", "[fd00::9]:5353", "[fd00:18::1]:77"),
}


async def written(_: Launcher) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for family, ends in ENDS.items():
        source, destination, reply_from, reply_to = map(SocketAddress.parse, ends)
        conntrack = Conntrack(make_netns(str(family)))
        plain = TrackedConnection(protocol=Protocol.UDP, source=source, destination=destination)
        conntrack.add(plain)
        for protocol in (Protocol.TCP, Protocol.SCTP):
            conntrack.add(replace(plain, protocol=protocol, reply_from=reply_from, reply_to=reply_to))
        try:
            conntrack.add(plain)
        except FileExistsError as refused:
            found["twice"] = refused.strerror
        entries = sorted(conntrack.entries(family, 6, 17, 132), key=lambda each: each.original.protocol)
        found[family] = [[[str(part) for part in way] for way in (each.original, each.reply)] for each in entries]
        conntrack.close()
    return found


def test_entries_are_written_with_their_translation() -> None:
    found = sandboxed(written)
    assert found.pop("twice") == "File exists"
    for family, ends in ENDS.items():
        source, destination, answering, seen = (SocketAddress.parse(end) for end in ends)

        def way(protocol: int, one: SocketAddress, other: SocketAddress) -> list[str]:
            return list(map(str, (protocol, one.address, one.port, other.address, other.port)))

        assert found[family] == [
            [way(protocol, source, destination), way(protocol, *back)]
            for protocol, back in ((6, (answering, seen)), (17, (destination, source)), (132, (answering, seen)))
        ]
