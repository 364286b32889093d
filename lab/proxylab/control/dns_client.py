"""A DNS client inside a namespace: one query by UDP, and by TCP where the answer is truncated.

It neither retries a query nor tries search domains.
"""

import asyncio
import errno
import socket
import struct
from collections.abc import Iterable
from typing import Final

import dns.edns
import dns.exception
import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

from proxylab.cluster.kube_dns import DNS_PORT
from proxylab.evidence.lookups import Lookup, NamedRecord
from proxylab.kernel.sandbox.netns import NetNs, inside
from proxylab.plan.resolved import Query
from proxylab.timing import Deadline

_LENGTH: Final = struct.Struct("!H")
_LONGEST_MESSAGE: Final = 65535
_NAMED: Final = frozenset({"CNAME", "NS", "PTR", "SRV", "SOA"})
"""Types of records whose values are names, or end in one."""


async def ask(netns: NetNs, query: Query, deadline: Deadline) -> Lookup:
    """Send the query, and wait for the answer until the deadline. ``Lookup.error`` names a failure."""
    question = _question(query)
    truncated, by_tcp = False, query.by_tcp
    try:
        async with asyncio.timeout(deadline.remaining):
            if not by_tcp:
                answer = await _by_udp(netns, query, question)
                truncated = by_tcp = bool(answer.flags & dns.flags.TC)
            if by_tcp:
                answer = await _by_tcp(netns, query, question)
    except TimeoutError:
        return _failed(query, "timeout")
    except (EOFError, dns.exception.DNSException):
        return _failed(query, "malformed")
    except OSError as error:
        return _failed(query, errno.errorcode.get(error.errno or 0, str(error)))
    nsid = (each.to_wire() for each in answer.options if each.otype is dns.edns.OptionType.NSID)
    return Lookup(
        name=query.name,
        kind=query.kind,
        server=query.server,
        code=dns.rcode.to_text(answer.rcode()),
        answers=_records(answer.answer),
        authority=_records(answer.authority),
        additional=_records(answer.additional),
        truncated=truncated,
        by_tcp=by_tcp,
        served_by=(next(nsid, None) or b"").decode(errors="replace"),
    )


def _question(query: Query) -> dns.message.Message:
    if not query.size:
        return dns.message.make_query(f"{query.name}.", query.kind, use_edns=False)
    who_are_you = dns.edns.GenericOption(dns.edns.OptionType.NSID, b"")
    return dns.message.make_query(f"{query.name}.", query.kind, use_edns=0, payload=query.size, options=[who_are_you])


async def _by_udp(netns: NetNs, query: Query, question: dns.message.Message) -> dns.message.Message:
    """The first answer to this query; a connected socket receives from its peer only."""
    loop = asyncio.get_running_loop()
    with _dialling(netns, query, socket.SOCK_DGRAM) as asking:
        await loop.sock_connect(asking, (str(query.server), DNS_PORT))
        await loop.sock_sendall(asking, question.to_wire())
        while True:
            answer = dns.message.from_wire(await loop.sock_recv(asking, _LONGEST_MESSAGE))
            if question.is_response(answer):
                return answer


async def _by_tcp(netns: NetNs, query: Query, question: dns.message.Message) -> dns.message.Message:
    loop = asyncio.get_running_loop()
    with _dialling(netns, query, socket.SOCK_STREAM) as asking:
        await loop.sock_connect(asking, (str(query.server), DNS_PORT))
        message = question.to_wire()
        await loop.sock_sendall(asking, _LENGTH.pack(len(message)) + message)
        (length,) = _LENGTH.unpack(await _exactly(asking, _LENGTH.size))
        answer = dns.message.from_wire(await _exactly(asking, length))
        if not question.is_response(answer):
            raise EOFError  # it answers another question
        return answer


async def _exactly(asking: socket.socket, length: int) -> bytes:
    """Receive exactly ``length`` bytes. Raises ``EOFError`` where the stream ends earlier."""
    heard = bytearray()
    while len(heard) < length:
        more = await asyncio.get_running_loop().sock_recv(asking, length - len(heard))
        if not more:
            raise EOFError
        heard += more
    return bytes(heard)


def _dialling(netns: NetNs, query: Query, kind: int) -> socket.socket:
    six = query.server.version == 6
    with inside(netns):
        asking = socket.socket(
            socket.AF_INET6 if six else socket.AF_INET, kind | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        )
    try:
        if kind == socket.SOCK_STREAM:  # a port that the author chose may be in TIME_WAIT from the previous query
            asking.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if query.source is not None or query.port is not None:
            anywhere = "::" if six else "0.0.0.0"  # noqa: S104 - inside the namespace of a lab
            asking.bind((anywhere if query.source is None else str(query.source), query.port or 0))
    except OSError:
        asking.close()
        raise
    return asking


def _records(sets: Iterable[dns.rrset.RRset]) -> tuple[NamedRecord, ...]:
    return tuple(
        NamedRecord(
            name=each.name.to_text(omit_final_dot=True),
            kind=(kind := dns.rdatatype.to_text(each.rdtype)),
            value=_value(kind, record.to_text()),
            ttl=each.ttl,
        )
        for each in sets
        for record in each
    )


def _value(kind: str, text: str) -> str:
    """The value of a record, without the final dot of names."""
    return " ".join(word.removesuffix(".") for word in text.split()) if kind in _NAMED else text


def _failed(query: Query, error: str) -> Lookup:
    return Lookup(name=query.name, kind=query.kind, server=query.server, error=error)
