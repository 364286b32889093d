"""The kernel's own clean-up of namespaces, watched until it is done.

Owns: the proof that a namespace which nobody in this process holds is gone, with its links, addresses and rules.
Must not: hurry it, or be in the way of the next lab: it is asked once, after the last.

What this process let go of may still be held: by a process elsewhere, by a packet, by a bug of the kernel. No file says
so to an ordinary user. But a namespace can give another one a number (RTM_NEWNSID), which holds nothing and which the
kernel takes back as the first thing when it takes the other apart (``unhash_nsid`` in ``cleanup_net``,
net/core/net_namespace.c). Then come devices, routes and rules, in the same work item, which never runs twice at once.
So when the number of one more namespace, made and let go after all others had begun to go, is taken back, then all
others are gone to the last device: a device that is still referenced would hold that work up.
"""

import os
import socket
import struct
from collections.abc import Iterable
from typing import Final

from proxylab.errors import InternalError
from proxylab.kernel.netlink import attributes as nla
from proxylab.kernel.netlink.dumps import Dump
from proxylab.kernel.netlink.framing import nested
from proxylab.kernel.sandbox.netns import NetNs, make_netns
from proxylab.timing import DeadlineExceededError, wait_while_fewer

__all__ = ["Cleanup"]

# include/uapi/linux/rtnetlink.h, net_namespace.h
_RTM_NEWNSID: Final = 88
_RTM_GETNSID: Final = 90
_NETNSA_NSID: Final = 1
_NETNSA_FD: Final = 3
_RTGENMSG: Final = bytes(4)
_NUMBER: Final = struct.Struct("=i")


class Cleanup:
    """Follows namespaces to their end, seen from the namespace in which it was made."""

    def __init__(self) -> None:
        opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._dump = Dump(opened)
        self._names: dict[int, str] = {}
        self._last = 0

    def follow(self, lab: str, namespaces: Iterable[NetNs]) -> None:
        """Give each namespace of a lab a number; to be called while they are still held."""
        self._names = self._left()  # of those that are gone meanwhile there is nothing to remember
        for netns in namespaces:
            self._last += 1
            asked = nla.integer(_NETNSA_NSID, self._last) + nla.integer(_NETNSA_FD, netns.fd)
            code = self._dump.ask(_RTM_NEWNSID, _RTGENMSG + asked)
            if code:
                raise InternalError(f"{netns.name}: the kernel gives it no number ({os.strerror(code)})")
            self._names[self._last] = f"{netns.name} of {lab}"

    async def finish(self, patience: float) -> None:
        """Return when everything that was followed is gone.

        Args:
            patience: seconds without progress after which it is given up. A thousand namespaces take less than one.

        Raises:
            InternalError: naming the namespaces that somebody still holds, or saying that a device is held.
        """
        if not self._names:
            return
        try:
            await wait_while_fewer(lambda: len(self._left()), patience, "namespaces to be let go")
            self._names.clear()
            sentinel = make_netns("fence")
            try:
                self.follow("the clean-up", [sentinel])
            finally:
                sentinel.close()
            await wait_while_fewer(lambda: len(self._left()), patience, "the kernel to take namespaces apart")
        except DeadlineExceededError as late:
            left = ", ".join(sorted(self._left().values()))
            raise InternalError(
                f"the kernel has not taken apart: {left}; something outside of this lab process holds it "
                f"('dmesg' names a device that is still referenced)"
            ) from late
        finally:
            self._names.clear()

    def close(self) -> None:
        """Close the socket."""
        self._dump.close()

    def _left(self) -> dict[int, str]:
        bodies = self._dump.all(_RTM_GETNSID, _RTGENMSG)
        numbers = {_NUMBER.unpack(nested(body, len(_RTGENMSG))[_NETNSA_NSID])[0] for body in bodies}
        return {number: name for number, name in self._names.items() if number in numbers}
