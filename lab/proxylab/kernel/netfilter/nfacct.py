"""Packet counters that rules share by name (nfacct, include/uapi/linux/netfilter/nfnetlink_acct.h).

The kernel refuses a rule that names a counter which does not exist, so the lab makes the counters first.
"""

import errno
from collections.abc import Iterable, Mapping
from typing import Final

from proxylab.kernel.netfilter import attributes as nla
from proxylab.kernel.netfilter.nfnetlink import (
    NLM_F_ACK,
    NLM_F_CREATE,
    NLM_F_EXCL,
    ask,
    expect,
    message,
    nested,
    open_netfilter,
)
from proxylab.kernel.sandbox.netns import NetNs, inside

_NEW: Final = 7 << 8 | 0
_GET: Final = 7 << 8 | 1
_NAME: Final = 1
_PACKETS: Final = 2


def ensure_counters(netns: NetNs, names: Iterable[str]) -> bool:
    """Make the missing counters, and return whether all exist now. Not every kernel has nfacct."""
    with inside(netns):
        control = open_netfilter()
    with control:
        for sequence, name in enumerate(names, 1):
            body = bytes(4) + nla.text(_NAME, name)
            control.send(message(_NEW, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, sequence, body))
            try:
                expect(control, 1)
            except OSError as error:
                if error.errno != errno.EEXIST:
                    return False
    return True


def read_counters(netns: NetNs, names: Mapping[str, str]) -> dict[str, int]:
    """The packets in the counters of these names, by their keys; without those that do not exist."""
    found: dict[str, int] = {}
    for key, name in names.items():
        try:
            (counter,) = ask(netns, _GET, bytes(4) + nla.text(_NAME, name))
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EINVAL):
                raise
        else:
            found[key] = int.from_bytes(nested(counter, 4)[_PACKETS], "big")
    return found
