"""The one thing that mode ipvs lacks of what scenarios ask for."""

from collections.abc import Iterator
from typing import Final

from proxylab.addresses import Transport
from proxylab.engines.proxy_mode import Lacks
from proxylab.plan.assembly import Assembly
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.probes import Probe
from proxylab.scenario.words import Manner


def _of_probe(assembly: Assembly, probe: Probe, resolved: ResolvedProbe) -> Iterator[str]:
    """A datagram above the MTU from a node's program.

    The program reaches a Service by a route to the node itself, whose MTU is large. IPVS then refuses to fragment its
    datagram (``ensure_mtu_is_adequate``, net/netfilter/ipvs/ip_vs_xmit.c), and the program must send it again.
    """
    large = resolved.protocol is Transport.UDP and probe.send.payload > resolved.sender.mtu
    if large and probe.send.manner is Manner.CONNECT and probe.source.name in assembly.nodes:
        yield "in mode ipvs a node's program gets EMSGSIZE for its first datagram above the MTU"


LACKS: Final = Lacks(of_probe=_of_probe)
