"""Constants of netlink that more than one module uses.

The values are those of include/uapi/linux/netlink.h, and of linux/socket.h for ``SOL_NETLINK``. A constant of one
netlink family stands in the module for that family. ``NETLINK_ROUTE`` is in Python's socket module.
"""

from typing import Final

__all__ = [
    "NETLINK_CAP_ACK",
    "NETLINK_EXT_ACK",
    "NETLINK_GENERIC",
    "NETLINK_NETFILTER",
    "NETLINK_SOCK_DIAG",
    "NLMSGERR_ATTR_MSG",
    "NLMSG_DONE",
    "NLMSG_ERROR",
    "NLM_F_ACK",
    "NLM_F_APPEND",
    "NLM_F_CAPPED",
    "NLM_F_CREATE",
    "NLM_F_DUMP",
    "NLM_F_DUMP_INTR",
    "NLM_F_EXCL",
    "NLM_F_REPLACE",
    "NLM_F_REQUEST",
    "SOL_NETLINK",
]

NETLINK_SOCK_DIAG: Final = 4
NETLINK_NETFILTER: Final = 12
NETLINK_GENERIC: Final = 16

NLMSG_ERROR: Final = 2
NLMSG_DONE: Final = 3

NLM_F_REQUEST: Final = 0x1
NLM_F_ACK: Final = 0x4
NLM_F_DUMP_INTR: Final = 0x10
# A bit means one thing in a request to create, another in a request to read, and a third in an answer.
NLM_F_REPLACE: Final = 0x100
NLM_F_EXCL: Final = 0x200
NLM_F_CREATE: Final = 0x400
NLM_F_APPEND: Final = 0x800
NLM_F_DUMP: Final = 0x300
NLM_F_CAPPED: Final = 0x100

SOL_NETLINK: Final = 270
NETLINK_CAP_ACK: Final = 10
NETLINK_EXT_ACK: Final = 11
NLMSGERR_ATTR_MSG: Final = 1
