"""nf_tables by netlink: tables of the lab's own, and the deletion of a table.

``OwnTable`` has the flag NFT_TABLE_F_OWNER: it belongs to its socket, no other process can change it, and the kernel
removes it when the socket closes. The module encodes chains, rules and the few expressions that the lab's own rules
need (include/uapi/linux/netfilter/nf_tables.h).
"""

import errno
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from proxylab.addresses import Family
from proxylab.kernel.netfilter import attributes as nla
from proxylab.kernel.netfilter.nfnetlink import (
    NLM_F_ACK,
    NLM_F_APPEND,
    NLM_F_CREATE,
    ask,
    expect,
    message,
    open_netfilter,
)
from proxylab.kernel.sandbox.netns import NetNs, inside

__all__ = [
    "DROPPED",
    "NETWORK_HEADER",
    "TRANSPORT_HEADER",
    "Hook",
    "OwnTable",
    "delete_table",
    "equal",
    "expression",
    "has_bytes",
    "number",
    "of_family",
    "of_protocol",
    "transact",
]

# include/uapi/linux/netlink.h, netfilter/nfnetlink.h, netfilter/nf_tables.h
_NFPROTO_INET: Final = 1
_BATCH_BEGIN: Final = 0x10
_BATCH_END: Final = 0x11
_SUBSYS_NFTABLES: Final = 10 << 8
_NEWTABLE: Final = _SUBSYS_NFTABLES | 0
_GETTABLE: Final = _SUBSYS_NFTABLES | 1
_DELTABLE: Final = _SUBSYS_NFTABLES | 2
_NEWCHAIN: Final = _SUBSYS_NFTABLES | 3
_NEWRULE: Final = _SUBSYS_NFTABLES | 6
_DELRULE: Final = _SUBSYS_NFTABLES | 8
_TABLE_F_OWNER: Final = 0x2
_VERDICT_REGISTER, _REGISTER_1 = 0, 1
_META_NFPROTO, _META_L4PROTO = 15, 16
_NF_DROP: Final = 0
NETWORK_HEADER: Final = 1
TRANSPORT_HEADER: Final = 2
_PROTOCOLS: Final = {Family.IPV4: 2, Family.IPV6: 10}  # NFPROTO_IPV4, NFPROTO_IPV6

# The kernel has no nf_tables, or none for this family: then there is no table either.
_NO_TABLE: Final = frozenset({errno.ENOENT, errno.EOPNOTSUPP, errno.EAFNOSUPPORT, errno.EINVAL, errno.EPROTONOSUPPORT})

Request = tuple[int, int, bytes]
"""The type of a message, its flags, and its attributes."""


class Hook(Struct, frozen=True):
    """The hook of a base chain: the number of the netfilter hook (``NF_INET_*``), and the priority."""

    number: int
    priority: int


class OwnTable:
    """A table of the family inet with base chains. It exists until ``close``."""

    def __init__(self, netns: NetNs, name: str, chains: Mapping[str, Hook]) -> None:
        """Make the table and its chains.

        Raises:
            OSError: the kernel has no nf_tables, or none for this namespace.
        """
        with inside(netns):
            self._socket = open_netfilter()
        self._name = name
        self._chains = tuple(chains)
        table = nla.text(1, name)
        requests = [(_NEWTABLE, NLM_F_CREATE, table + number(2, _TABLE_F_OWNER))]
        for chain, hook in chains.items():
            where = nla.nested(4, number(1, hook.number), number(2, hook.priority & 0xFFFFFFFF))
            requests.append((_NEWCHAIN, NLM_F_CREATE, table + nla.text(3, chain) + where + nla.text(7, "filter")))
        try:
            self._transact(requests)
        except OSError:
            self.close()
            raise

    def fileno(self) -> int:
        """The descriptor of the socket that owns the table."""
        return self._socket.fileno()

    def append(self, rules: Sequence[Sequence[bytes]]) -> None:
        """Append rules, each a sequence of expressions, to every chain, in one transaction."""
        self._transact(
            [
                (_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, self._in(chain) + nla.nested(4, *rule))
                for chain in self._chains
                for rule in rules
            ]
        )

    def clear(self) -> None:
        """Delete every rule; the chains stay."""
        self._transact([(_DELRULE, 0, self._in(chain)) for chain in self._chains])

    def close(self) -> None:
        """Close the socket, which removes the table."""
        self._socket.close()

    def _in(self, chain: str) -> bytes:
        return nla.text(1, self._name) + nla.text(2, chain)

    def _transact(self, requests: Sequence[Request]) -> None:
        self._socket.send(_batch(_NFPROTO_INET, requests))
        expect(self._socket, len(requests))


def transact(netns: NetNs, protocol: int, requests: Sequence[Request]) -> None:
    """Carry out requests to tables of one family (``NFPROTO_*``) in one transaction. Raises ``OSError``."""
    with inside(netns):
        control = open_netfilter()
    with control:
        control.send(_batch(protocol, requests))
        expect(control, len(requests))


def delete_table(netns: NetNs, family: Family, name: str) -> bool:
    """Delete a table with all that is in it, without nft(8), which takes 20 ms; return whether it existed.

    A transaction that fails is undone, which takes the kernel 11 ms, and a new node has no such table. So the function
    first looks the table up.

    Raises:
        OSError: the kernel refuses; the table may belong to a socket (NFT_TABLE_F_OWNER).
    """
    protocol, name_attribute = _PROTOCOLS[family], nla.text(1, name)
    try:
        ask(netns, _GETTABLE, bytes([protocol, 0, 0, 0]) + name_attribute)
    except OSError as error:
        if error.errno in _NO_TABLE:
            return False
        raise
    transact(netns, protocol, [(_DELTABLE, 0, name_attribute)])
    return True


def _batch(protocol: int, requests: Sequence[Request]) -> bytes:
    head = bytes([protocol, 0, 0, 0])
    bodies = [(kind, flags | NLM_F_ACK, head + body) for kind, flags, body in requests]
    subsystem = bytes([socket.AF_UNSPEC, 0, 0, _SUBSYS_NFTABLES >> 8])
    whole = ((_BATCH_BEGIN, 0, subsystem), *bodies, (_BATCH_END, 0, subsystem))
    return b"".join(message(kind, flags, number, body) for number, (kind, flags, body) in enumerate(whole, 1))


def expression(name: str, *attributes: bytes) -> bytes:
    """One expression of a rule."""
    return nla.nested(1, nla.text(1, name), nla.nested(2, *attributes))


def equal(load: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Run ``load``, which fills register 1, and end the rule unless the register equals ``value``."""
    return load, expression("cmp", number(1, _REGISTER_1), number(2, 0), nla.nested(3, nla.raw(1, value)))


def of_family(family: Family) -> tuple[bytes, bytes]:
    """End the rule for packets of the other family."""
    return equal(_meta(_META_NFPROTO), bytes([_PROTOCOLS[family]]))


def of_protocol(protocol: int) -> tuple[bytes, bytes]:
    """End the rule for packets of any other transport protocol (IANA's number)."""
    return equal(_meta(_META_L4PROTO), bytes([protocol]))


def has_bytes(header: int, at: int, value: bytes) -> tuple[bytes, bytes]:
    """End the rule for packets without ``value`` at that offset of ``NETWORK_HEADER`` or ``TRANSPORT_HEADER``."""
    location = (number(2, header), number(3, at), number(4, len(value)))
    return equal(expression("payload", number(1, _REGISTER_1), *location), value)


def _meta(key: int) -> bytes:
    return expression("meta", number(1, _REGISTER_1), number(2, key))


def number(kind: int, value: int) -> bytes:
    """A 32-bit number in network byte order, as nf_tables encodes all numbers."""
    return nla.raw(kind, struct.pack("!I", value))


DROPPED: Final = expression(
    "immediate", number(1, _VERDICT_REGISTER), nla.nested(2, nla.nested(2, number(1, _NF_DROP)))
)
"""Drop the packet."""
