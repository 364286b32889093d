"""Makes nf_tables' tables of the lab's own, and deletes tables, by netlink instead of nft(8).

``OwnTable`` has the flag NFT_TABLE_F_OWNER: it belongs to its socket, no other process can change it, and the kernel
removes it when the socket closes. ``kernel.netfilter.nft_expressions`` builds the rules' expressions.
"""

import errno
import socket
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from proxylab.addresses import Family
from proxylab.kernel.netfilter import attributes as nla
from proxylab.kernel.netfilter.nfnetlink import (
    GET_TABLE,
    NFPROTO,
    NLM_F_ACK,
    NLM_F_APPEND,
    NLM_F_CREATE,
    SUBSYS_NFTABLES,
    ask,
    expect,
    message,
    open_netfilter,
)
from proxylab.kernel.sandbox.netns import NetNs, inside

# include/uapi/linux/netlink.h, netfilter/nfnetlink.h, netfilter/nf_tables.h
_NFPROTO_INET: Final = 1
_BATCH_BEGIN: Final = 0x10
_BATCH_END: Final = 0x11
_NEWTABLE: Final = SUBSYS_NFTABLES | 0
_DELTABLE: Final = SUBSYS_NFTABLES | 2
_NEWCHAIN: Final = SUBSYS_NFTABLES | 3
_NEWRULE: Final = SUBSYS_NFTABLES | 6
_DELRULE: Final = SUBSYS_NFTABLES | 8
_TABLE_F_OWNER: Final = 0x2
_TABLE_NAME, _TABLE_FLAGS = 1, 2
_CHAIN_TABLE, _CHAIN_NAME, _CHAIN_HOOK, _CHAIN_TYPE = 1, 3, 4, 7
_HOOK_NUMBER, _HOOK_PRIORITY = 1, 2
_RULE_TABLE, _RULE_CHAIN, _RULE_EXPRESSIONS = 1, 2, 4

PREROUTING, INPUT, OUTPUT = 0, 1, 3  # NF_INET_* of include/uapi/linux/netfilter.h

# The kernel has no nf_tables, or none for this family: then there is no table either.
_NO_TABLE: Final = frozenset({errno.ENOENT, errno.EOPNOTSUPP, errno.EAFNOSUPPORT, errno.EINVAL, errno.EPROTONOSUPPORT})

Rule = Sequence[bytes]
"""The expressions of a rule, in order."""


class _TableRequest(NamedTuple):
    """One request about a table: the type of its message, its flags, and its attributes."""

    kind: int
    flags: int
    body: bytes


class ChainHook(Struct, frozen=True):
    """The hook of a base chain: its number (``PREROUTING``, ``INPUT`` or ``OUTPUT``), and the priority."""

    number: int
    priority: int


class OwnTable:
    """A table of the family inet with base chains. It exists until ``close``."""

    def __init__(self, netns: NetNs, name: str, chains: Mapping[str, ChainHook]) -> None:
        """Make the table and its chains. Raises ``OSError``."""
        with inside(netns):
            self._socket = open_netfilter()
        self._name = name
        self._chains = tuple(chains)
        table = nla.text(_TABLE_NAME, name) + nla.number(_TABLE_FLAGS, _TABLE_F_OWNER)
        requests = [_TableRequest(_NEWTABLE, NLM_F_CREATE, table)]
        for chain, hook in chains.items():
            body = nla.text(_CHAIN_TABLE, name) + nla.text(_CHAIN_NAME, chain) + _hook_attribute(hook)
            requests.append(_TableRequest(_NEWCHAIN, NLM_F_CREATE, body + nla.text(_CHAIN_TYPE, "filter")))
        try:
            self._transact(requests)
        except OSError:
            self.close()
            raise

    def append(self, rules: Sequence[Rule], to: str = "") -> None:
        """Append rules to a chain, or to every one, in one transaction."""
        bodies = [
            self._in(chain) + nla.nested(_RULE_EXPRESSIONS, *rule)
            for chain in ((to,) if to else self._chains)
            for rule in rules
        ]
        self._transact([_TableRequest(_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, body) for body in bodies])

    def clear(self) -> None:
        """Delete every rule; the chains stay."""
        self._transact([_TableRequest(_DELRULE, 0, self._in(chain)) for chain in self._chains])

    def close(self) -> None:
        """Close the socket, which removes the table."""
        self._socket.close()

    def _in(self, chain: str) -> bytes:
        return nla.text(_RULE_TABLE, self._name) + nla.text(_RULE_CHAIN, chain)

    def _transact(self, requests: Sequence[_TableRequest]) -> None:
        self._socket.send(_batch(_NFPROTO_INET, requests))
        expect(self._socket, len(requests))


def _hook_attribute(hook: ChainHook) -> bytes:
    unsigned = hook.priority & 0xFFFFFFFF
    return nla.nested(_CHAIN_HOOK, nla.number(_HOOK_NUMBER, hook.number), nla.number(_HOOK_PRIORITY, unsigned))


def _carry_out(netns: NetNs, protocol: int, requests: Sequence[_TableRequest]) -> None:
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
    protocol, name_attribute = NFPROTO[family], nla.text(_TABLE_NAME, name)
    try:
        ask(netns, GET_TABLE, bytes([protocol, 0, 0, 0]) + name_attribute)
    except OSError as error:
        if error.errno in _NO_TABLE:
            return False
        raise
    _carry_out(netns, protocol, [_TableRequest(_DELTABLE, 0, name_attribute)])
    return True


def _batch(protocol: int, requests: Sequence[_TableRequest]) -> bytes:
    head = bytes([protocol, 0, 0, 0])
    bodies = [_TableRequest(each.kind, each.flags | NLM_F_ACK, head + each.body) for each in requests]
    subsystem = bytes([socket.AF_UNSPEC, 0, 0, SUBSYS_NFTABLES >> 8])
    whole = (_TableRequest(_BATCH_BEGIN, 0, subsystem), *bodies, _TableRequest(_BATCH_END, 0, subsystem))
    return b"".join(message(each.kind, each.flags, number, each.body) for number, each in enumerate(whole, 1))
