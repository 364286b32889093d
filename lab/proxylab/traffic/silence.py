"""Keeping two kernels out of a dialogue that is held in their name.

Owns: ``Silence``, the rules by which the namespaces of client and server pass over the segments of one dialogue.
Must not: hide a segment from a tap. A packet socket sees a frame before netfilter does.

A kernel that gets a segment for which it has no connection answers by a reset (RFC 9293, section 3.10.7.1). That is
what a test may want to see of a segment that came astray, and must not happen to one that came as it should. So the
client's kernel is kept from what comes from where the client dialled, and hears everything else; the server's, from
what bears or acknowledges the numbers of this dialogue, whoever it comes from after a masquerade.

Where the client is a node, its own connection tracking translates what comes back, so only behind that is an answer one
from where it dialled; and the node forwards what is others'. There the rule stands in INPUT, behind the tap on its
programs.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from proxylab.addresses import IPAddress
from proxylab.errors import CapabilityError
from proxylab.kernel.netfilter.nftables import Hook, OwnTable, equal, expression, number
from proxylab.kernel.netlink import attributes as nla
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.traffic.dissect import TCP

__all__ = ["Silence"]

# include/uapi/linux/netfilter/nf_tables.h
_NETWORK_HEADER: Final = 1
_TRANSPORT_HEADER: Final = 2
_META_L4PROTO: Final = 16
_META_NFPROTO: Final = 15
_REGISTER_1: Final = 1
_VERDICT_REGISTER: Final = 0
_DROP: Final = 0

_FAMILY: Final = {4: 2, 6: 10}
_SOURCE_AT: Final = {4: 12, 6: 8}
_PREROUTING: Final = {"prerouting": Hook(0, -400)}  # before everything else that there may be
_INPUT: Final = {"input": Hook(1, 400)}  # the tap on a node's programs is at 350 (lab.kernel.stack)
_TABLE: Final = "proxylab-dialogue"


class Silence:
    """Two kernels that pass over a dialogue, until ``close``."""

    def __init__(
        self,
        client: NetNs,
        server: NetNs,
        dialled: tuple[IPAddress, int],
        port: int,
        numbers: tuple[int, int],
        *,
        of_node: bool = False,
    ) -> None:
        """Silence both.

        Args:
            client: the namespace of the client.
            server: the namespace of the server.
            dialled: the address and port that the client dials.
            port: that it dials from.
            numbers: the upper halves of all sequence numbers of client and server.
            of_node: whether the client is a program of a node.

        Raises:
            CapabilityError: the kernel has no nf_tables.
        """
        address, dialled_port = dialled
        source = _loaded(_NETWORK_HEADER, _SOURCE_AT[address.version], address.packed)
        ports = _loaded(_TRANSPORT_HEADER, 0, dialled_port.to_bytes(2, "big") + port.to_bytes(2, "big"))
        family = equal(
            expression("meta", number(1, _REGISTER_1), number(2, _META_NFPROTO)), bytes([_FAMILY[address.version]])
        )
        theirs, ours = (each.to_bytes(2, "big") for each in numbers)
        self._stack = ExitStack()
        with ExitStack() as opened:
            heard = [*family, *_TCP_ONLY, *source, *ports, _DROPPED]
            self._pass_over(opened, client, _INPUT if of_node else _PREROUTING, [heard])
            bearing = [*_TCP_ONLY, *_loaded(_TRANSPORT_HEADER, 4, theirs), _DROPPED]
            acknowledging = [*_TCP_ONLY, *_loaded(_TRANSPORT_HEADER, 8, ours), _DROPPED]
            self._pass_over(opened, server, _PREROUTING, [bearing, acknowledging])
            self._stack = opened.pop_all()

    def close(self) -> None:
        """Let both kernels hear again."""
        self._stack.close()

    @staticmethod
    def _pass_over(
        opened: ExitStack, netns: NetNs, chain: Mapping[str, Hook], rules: Sequence[Sequence[bytes]]
    ) -> None:
        try:
            table = OwnTable(netns, _TABLE, chain)
            opened.callback(table.close)
            table.append(rules)
        except OSError as error:
            raise CapabilityError(
                f"keeping a kernel out of a dialogue ({error})", "as root: 'modprobe nf_tables'"
            ) from error


def _loaded(header: int, at: int, value: bytes) -> tuple[bytes, bytes]:
    """Go on only with packets that have ``value`` there."""
    netns_name = (number(2, header), number(3, at), number(4, len(value)))
    return equal(expression("payload", number(1, _REGISTER_1), *netns_name), value)


_TCP_ONLY: Final = equal(expression("meta", number(1, _REGISTER_1), number(2, _META_L4PROTO)), bytes([TCP]))
_DROPPED: Final = expression("immediate", number(1, _VERDICT_REGISTER), nla.nested(2, nla.nested(2, number(1, _DROP))))
