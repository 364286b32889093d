"""The connections of IPVS in one namespace, as /proc/net/ip_vs_conn shows them; ipvsadm(8) prints the same file.

They are the witness of what IPVS did with a flow. Its counters are none: the kernel brings them up to date every two
seconds only (net/netfilter/ipvs/ip_vs_est.c).
"""

import os
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from proxylab.addresses import IPAddress, Protocol
from proxylab.evidence.ipvs import IpvsConnection
from proxylab.kernel.sandbox.netns import NetNs, inside

_FILE: Final = "/proc/thread-self/net/ip_vs_conn"  # of the calling thread's namespace
_READ: Final = 1 << 16
_MOST_READS: Final = 8
_FIELDS: Final = 7
"""Protocol, then address and port of the client, of the virtual server and of the destination. State and expiry follow,
which change while the connection lives (ip_vs_conn_seq_show in net/netfilter/ipvs/ip_vs_conn.c)."""


class Connections:
    """The file, held open; a kernel without IPVS has no connections."""

    def __init__(self, netns: NetNs) -> None:
        self._file = -1
        with inside(netns), suppress(FileNotFoundError):
            self._file = os.open(_FILE, os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> frozenset[tuple[str, ...]]:
        """The fields of every connection, and of every template of a client, for ``connection_in``."""
        return whole(self._read_once)

    def _read_once(self) -> frozenset[tuple[str, ...]]:
        parts = []
        at = 0
        while self._file >= 0 and (part := os.pread(self._file, _READ, at)):
            parts.append(part)
            at += len(part)
        return fields_in(b"".join(parts).decode())

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def whole(read: Callable[[], frozenset[tuple[str, ...]]]) -> frozenset[tuple[str, ...]]:
    """All that several reads find: they end when one adds nothing.

    The kernel hands out a page at a time, and finds the next one by counting lines from the start (ip_vs_conn_array). A
    connection that expires meanwhile hides another one, which the next read shows.
    """
    found = read()
    for _ in range(_MOST_READS):
        again = read()
        if again <= found:
            break
        found |= again
    return found


def fields_in(text: str) -> frozenset[tuple[str, ...]]:
    """The fields of every line of the file but the first, which names them."""
    return frozenset(tuple(line.split(None, _FIELDS)[:_FIELDS]) for line in text.splitlines()[1:])


def connection_in(fields: tuple[str, ...]) -> IpvsConnection | None:
    """The connection with these fields; ``None`` for a template, by which a client keeps its destination."""
    protocol, client, client_port, server, port, destination, destination_port = fields
    if protocol not in Protocol.__members__ or client_port == "0000":
        return None
    return IpvsConnection(
        protocol=Protocol(protocol),
        client=_address(client),
        client_port=int(client_port, 16),
        server=_address(server),
        port=int(port, 16),
        destination=_address(destination),
        destination_port=int(destination_port, 16),
    )


@lru_cache(maxsize=4096)
def _address(text: str) -> IPAddress:
    """``0A600101``, or an IPv6 address with all of its digits."""
    return IPv6Address(text) if ":" in text else IPv4Address(int(text, 16))
