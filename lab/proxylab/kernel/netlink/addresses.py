"""Reads the addresses of a namespace's interfaces."""

import socket
import struct
from ipaddress import ip_address
from typing import Final

from proxylab.addresses import IPAddress
from proxylab.kernel.netlink.dumps import Dump
from proxylab.kernel.netlink.framing import nested
from proxylab.kernel.sandbox.netns import NetNs, inside

__all__ = ["read_addresses"]

# include/uapi/linux/rtnetlink.h and if_addr.h
_RTM_GETADDR: Final = 22
_IFA_ADDRESS: Final = 1
_IFA_LOCAL: Final = 2
_MESSAGE: Final = struct.Struct("=BBBBI")


def read_addresses(netns: NetNs) -> tuple[IPAddress, ...]:
    """Every address in ``netns``, loopback included, in the kernel's order."""
    with inside(netns):
        opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
    dump = Dump(opened)
    try:
        found = [nested(body[_MESSAGE.size :]) for body in dump.all(_RTM_GETADDR, _MESSAGE.pack(0, 0, 0, 0, 0))]
    finally:
        dump.close()
    # On a point-to-point link IFA_ADDRESS is the other end's; IFA_LOCAL, which IPv6 has not, is always our own.
    return tuple(ip_address(each[_IFA_LOCAL] if _IFA_LOCAL in each else each[_IFA_ADDRESS]) for each in found)
