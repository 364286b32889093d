"""Tables of nf_tables that somebody has left in a namespace.

Owns: deleting one by its name (include/uapi/linux/netfilter/nf_tables.h), without a process: nft(8) would take 20 ms.
Must not: know whose table it is.
"""

import errno
from typing import Final

from lab.ip import Family
from lab.kernel import attributes as nla
from lab.kernel.netns import NetNs
from lab.kernel.nftables import transact

__all__ = ["delete_table"]

_DELTABLE: Final = 10 << 8 | 2
_PROTOCOLS: Final = {Family.IPV4: 2, Family.IPV6: 10}  # NFPROTO_IPV4, NFPROTO_IPV6

# No nf_tables in the kernel, or none for this family: then there is no table either.
_NOTHING: Final = frozenset({errno.ENOENT, errno.EOPNOTSUPP, errno.EAFNOSUPPORT, errno.EINVAL, errno.EPROTONOSUPPORT})


def delete_table(netns: NetNs, family: Family, name: str) -> bool:
    """Delete the table with all that is in it; whether there was one.

    Raises:
        OSError: the kernel refuses; the table may belong to a socket (NFT_TABLE_F_OWNER).
    """
    try:
        transact(netns, _PROTOCOLS[family], [(_DELTABLE, 0, nla.text(1, name))])
    except OSError as error:
        if error.errno in _NOTHING:
            return False
        raise
    return True
