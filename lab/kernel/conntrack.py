"""Connection tracking of one namespace: forgetting all of it.

Owns: the encoding of ctnetlink (include/uapi/linux/netfilter/nfnetlink_conntrack.h).
Must not: decide when entries may go.
"""

import errno
import os
import socket
import struct
from typing import Final

from lab.errors import CapabilityError
from lab.kernel.netns import NetNs, inside

__all__ = ["flush"]

_NETLINK_NETFILTER: Final = 12
_NLM_F_REQUEST: Final = 0x1
_NLM_F_ACK: Final = 0x4
_NLMSG_ERROR: Final = 2
_IPCTNL_MSG_CT_DELETE: Final = 1 << 8 | 2  # NFNL_SUBSYS_CTNETLINK, then the message
_HEADER: Final = struct.Struct("=IHHII")  # struct nlmsghdr
_NFGENMSG: Final = struct.Struct("=BBH")
_SECONDS: Final = 10.0


def flush(netns: NetNs) -> None:
    """Delete every entry of a namespace: a deletion that names no tuple is one of all (``ctnetlink_del_conntrack``).

    The kernel is done when it acknowledges: whatever is sent then is a new connection, and asks the rules.

    Raises:
        CapabilityError: the kernel does not let conntrack be flushed; nf_conntrack_netlink may be missing.
    """
    with inside(netns):
        opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_NETFILTER)
    with opened:
        opened.settimeout(_SECONDS)
        body = _NFGENMSG.pack(socket.AF_UNSPEC, 0, 0)
        flags = _NLM_F_REQUEST | _NLM_F_ACK
        opened.send(_HEADER.pack(_HEADER.size + len(body), _IPCTNL_MSG_CT_DELETE, flags, 1, 0) + body)
        answer = opened.recv(4096)
    _, kind, _, _, _ = _HEADER.unpack_from(answer)
    code = -struct.unpack_from("=i", answer, _HEADER.size)[0] if kind == _NLMSG_ERROR else errno.EPROTO
    if code:
        raise CapabilityError(
            f"flushing the connection tracking of {netns.name} ({os.strerror(code)})",
            "load the kernel module nf_conntrack_netlink: 'modprobe nf_conntrack_netlink' as root",
        )
