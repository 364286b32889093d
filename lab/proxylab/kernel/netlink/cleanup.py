"""Waits until the kernel has taken apart the namespaces that this process has closed.

Another process, a packet or a kernel bug may still hold a closed namespace, and no file shows that to an ordinary user.
But one namespace can give another a number (RTM_NEWNSID). The number holds nothing, and the kernel takes it back first
when it takes the other namespace apart (``unhash_nsid`` in ``cleanup_net``, net/core/net_namespace.c). Devices, routes
and rules follow in the same work item, which never runs twice at once. So ``Cleanup`` makes and closes one more
namespace, the sentinel, after all others have begun to go. When the kernel takes back the sentinel's number, all others
are gone to the last device: a device that is still referenced would hold up that work item.

The lab process waits once, after its last lab, so the wait delays no other lab.
"""

import socket
from collections.abc import Iterable
from typing import Final

from proxylab.errors import InternalError
from proxylab.kernel.netlink.messages import Kind, NetlinkRequest
from proxylab.kernel.netlink.socket import Netlink
from proxylab.kernel.sandbox.netns import NetNs, make_netns
from proxylab.timing import DeadlineExceededError, wait_while_fewer

_NLM_F_ACK: Final = 0x4


class Cleanup:
    """Follows namespaces to their end, from the namespace of its own socket."""

    def __init__(self) -> None:
        opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._netlink = Netlink(opened, "the lab process")
        self._names: dict[int, str] = {}
        self._last = 0

    def follow(self, lab: str, namespaces: Iterable[NetNs]) -> None:
        """Give each namespace of a lab a number. The caller must still hold the namespaces."""
        self._names = self._left()  # forget the namespaces that are gone
        numbered = list(enumerate(namespaces, self._last + 1))
        self._netlink.send([_number(netns, number) for number, netns in numbered])
        self._last += len(numbered)
        self._names |= {number: f"{netns.name} of {lab}" for number, netns in numbered}

    async def finish(self, patience: float) -> None:
        """Return when all followed namespaces are gone.

        ``patience`` is in seconds without progress before the wait fails. A thousand namespaces take less than one.
        Raises ``InternalError``.
        """
        if not self._names:
            return
        try:
            await wait_while_fewer(lambda: len(self._left()), patience, "the holders of namespaces to close them")
            self._names.clear()
            sentinel = make_netns("sentinel")
            try:
                self.follow("the clean-up", [sentinel])
            finally:
                sentinel.close()
            await wait_while_fewer(lambda: len(self._left()), patience, "the kernel to take namespaces apart")
        except DeadlineExceededError as late:
            left = ", ".join(sorted(self._left().values()))
            raise InternalError(
                f"the kernel has not removed the namespaces {left}; something outside this lab process holds them "
                f"('dmesg' names a device that is still referenced)"
            ) from late
        finally:
            self._names.clear()

    def _left(self) -> dict[int, str]:
        numbers = {found.need(int, "NETNSA_NSID") for found in self._netlink.dump(Kind.GET_NAMESPACE_ID)}
        return {number: name for number, name in self._names.items() if number in numbers}


def _number(netns: NetNs, number: int) -> NetlinkRequest:
    content = {"NETNSA_NSID": number, "NETNSA_FD": netns.fd}
    return NetlinkRequest(f"give {netns.name} a number", Kind.NEW_NAMESPACE_ID, _NLM_F_ACK, content)
