"""Keeps two kernels out of a dialogue that the lab conducts with their addresses.

``KernelBypass`` sets the rules by which the namespaces of client and server ignore the segments of one dialogue. The
taps still see every segment: a packet socket gets a frame before netfilter does.

A kernel answers a segment of an unknown connection with a reset (RFC 9293, section 3.10.7.1). A test may want to see
that reset after a stray segment, but it must not end a proper dialogue. So the client's kernel gets no segment that
comes from the dialled address and port, and gets everything else. The server's kernel gets no segment that bears or
acknowledges the numbers of this dialogue, from whatever address a masquerade gave it.

Where the client is a node, its own connection tracking translates the answers, so only after that do they come from the
dialled address; and the node forwards other traffic. So there the rule is in INPUT, behind the tap on the node's
programs.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from proxylab.addresses import Family, IPAddress
from proxylab.errors import CapabilityError
from proxylab.kernel.netfilter import nft_expressions as nft
from proxylab.kernel.netfilter.nft_tables import INPUT, PREROUTING, Hook, OwnTable, Rule
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.traffic.dissect import TCP

__all__ = ["KernelBypass"]

# Offsets in the headers of IP, by version, and of TCP.
_SOURCE_AT: Final = {4: 12, 6: 8}
_PORTS_AT, _SEQUENCE_AT, _ACKNOWLEDGEMENT_AT = 0, 4, 8
_BEFORE_ALL: Final = {"prerouting": Hook(PREROUTING, -400)}  # before every other chain
_BEHIND_TAP: Final = {
    "input": Hook(INPUT, 400)
}  # the tap on a node's programs is at 350 (proxylab.kernel.capture.stack)
_TABLE: Final = "proxylab-dialogue"


class KernelBypass:
    """Two kernels that ignore a dialogue, until ``close``."""

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
        """Install the rules in both namespaces.

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
        source = nft.match_bytes(nft.NETWORK_HEADER, _SOURCE_AT[address.version], address.packed)
        ports = nft.match_bytes(
            nft.TRANSPORT_HEADER, _PORTS_AT, dialled_port.to_bytes(2, "big") + port.to_bytes(2, "big")
        )
        family, tcp = nft.match_family(Family.of(address)), nft.match_protocol(TCP)
        theirs, ours = (each.to_bytes(2, "big") for each in numbers)
        self._stack = ExitStack()
        with ExitStack() as opened:
            from_dialled = [*family, *tcp, *source, *ports, nft.DROP]
            self._install(opened, client, _BEHIND_TAP if of_node else _BEFORE_ALL, [from_dialled])
            bearing = [*tcp, *nft.match_bytes(nft.TRANSPORT_HEADER, _SEQUENCE_AT, theirs), nft.DROP]
            acknowledging = [*tcp, *nft.match_bytes(nft.TRANSPORT_HEADER, _ACKNOWLEDGEMENT_AT, ours), nft.DROP]
            self._install(opened, server, _BEFORE_ALL, [bearing, acknowledging])
            self._stack = opened.pop_all()

    def close(self) -> None:
        """Remove the rules."""
        self._stack.close()

    @staticmethod
    def _install(opened: ExitStack, netns: NetNs, chain: Mapping[str, Hook], rules: Sequence[Rule]) -> None:
        try:
            table = OwnTable(netns, _TABLE, chain)
            opened.callback(table.close)
            table.append(rules)
        except OSError as error:
            raise CapabilityError(
                f"keeping a kernel out of a dialogue ({error})", "as root: 'modprobe nf_tables'"
            ) from error
