"""Tables of nf_tables that somebody has left in a namespace.

Owns: deleting one by its name (include/uapi/linux/netfilter/nf_tables.h), without a process: nft(8) would take 20 ms.
Must not: know whose table it is.
"""

import errno
from typing import Final

from proxylab.addresses import Family
from proxylab.kernel.netfilter.nftables import transact
from proxylab.kernel.netlink import attributes as nla
from proxylab.kernel.netlink.socket import ask
from proxylab.kernel.netlink.uapi import NETLINK_NETFILTER
from proxylab.kernel.sandbox.netns import NetNs

__all__ = ["delete_table"]

_GETTABLE: Final = 10 << 8 | 1
_DELTABLE: Final = 10 << 8 | 2
_PROTOCOLS: Final = {Family.IPV4: 2, Family.IPV6: 10}  # NFPROTO_IPV4, NFPROTO_IPV6

# No nf_tables in the kernel, or none for this family: then there is no table either.
_NOTHING: Final = frozenset({errno.ENOENT, errno.EOPNOTSUPP, errno.EAFNOSUPPORT, errno.EINVAL, errno.EPROTONOSUPPORT})


def delete_table(netns: NetNs, family: Family, name: str) -> bool:
    """Delete the table with all that is in it; whether there was one.

    The table is looked for first: a transaction that fails is undone, which takes the kernel 11 ms, and a node that
    is new has no such table.

    Raises:
        OSError: the kernel refuses; the table may belong to a socket (NFT_TABLE_F_OWNER).
    """
    protocol, called = _PROTOCOLS[family], nla.text(1, name)
    try:
        ask(netns, NETLINK_NETFILTER, _GETTABLE, bytes([protocol, 0, 0, 0]) + called)
    except OSError as error:
        if error.errno in _NOTHING:
            return False
        raise
    transact(netns, protocol, [(_DELTABLE, 0, called)])
    return True
