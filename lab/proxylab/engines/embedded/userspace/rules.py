"""The rules of mode userspace, which lead frontends to the ports of the proxy process.

Owns ``generation``, by which the renderer of mode iptables renders them: five shared chains, no service chain.
Names, comments and order are those of pkg/proxy/userspace/proxier.go, with one exception: kube-proxy appended the jumps
for node ports to the built-in chains, and here they stand right behind the jumps for addresses.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from proxylab.addresses import Family, IPAddress
from proxylab.engines.embedded.iptables import names
from proxylab.engines.embedded.iptables.matches import TO_LOCAL, comment
from proxylab.engines.embedded.iptables.names import Chain, Table
from proxylab.engines.embedded.iptables.rules import Generation, PortRules, Rule, RuleLine, append_line
from proxylab.engines.embedded.iptables.scope import ProxyScope
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ServicePortInfo
from proxylab.engines.embedded.settings import ProxySettings
from proxylab.evidence.words import endpoint

PORTALS_CONTAINER: Final = Chain(Table.NAT, "KUBE-PORTALS-CONTAINER")
_PORTALS_HOST: Final = Chain(Table.NAT, "KUBE-PORTALS-HOST")
_NODE_PORT_CONTAINER: Final = Chain(Table.NAT, "KUBE-NODEPORT-CONTAINER")
_NODE_PORT_HOST: Final = Chain(Table.NAT, "KUBE-NODEPORT-HOST")
_NON_LOCAL: Final = Chain(Table.FILTER, "KUBE-NODEPORT-NON-LOCAL")

CHAINS: Final = (PORTALS_CONTAINER, _PORTALS_HOST, _NODE_PORT_CONTAINER, _NODE_PORT_HOST, _NON_LOCAL)

_PORTALS: Final = comment("handle ClusterIPs; NOTE: this must be before the NodePort rules")
_NODE_PORTS: Final = comment("handle service NodePorts; NOTE: this must be the last rule in the chain")

# Each goes to the top of its chain, so the later ones come first.
_JUMPS: Final = (
    Rule(names.NAT_PREROUTING, (TO_LOCAL, _NODE_PORTS), _NODE_PORT_CONTAINER.name),
    Rule(names.NAT_PREROUTING, (_PORTALS,), PORTALS_CONTAINER.name),
    Rule(names.NAT_OUTPUT, (TO_LOCAL, _NODE_PORTS), _NODE_PORT_HOST.name),
    Rule(names.NAT_OUTPUT, (_PORTALS,), _PORTALS_HOST.name),
    Rule(names.FILTER_INPUT, (comment("Ensure that non-local NodePort traffic can flow"),), _NON_LOCAL.name),
)

_NO_BRIDGE_PORT: Final = "-m physdev ! --physdev-is-in"


def key_of(port: ServicePortInfo) -> str:
    """The name of a service port between the engine and the proxy process."""
    return f"{port.name}/{port.protocol}"


def generation(ports: Mapping[str, int], listen: IPAddress | None, host: IPAddress | None = None) -> Generation:
    """The parts of the rules.

    ``ports`` has the port of the proxy process for each service port, by ``key_of``; the rules leave out other ones.
    ``listen`` is its address; ``None`` for all. ``host`` is where the node's own packets reach a process that listens
    on all; ``None`` for the address of the Node object.
    """
    return Generation(
        jumps=_JUMPS,
        kept=_none,
        shared=_shared,
        head=_none,
        port=partial(_render_port, ports, listen, listen or host),
        tail=_no_tail,
        knows_ip_mode=False,
    )


def _shared(_family: Family, _settings: ProxySettings) -> tuple[Chain, ...]:
    return CHAINS


def _none(_family: Family, _settings: ProxySettings) -> tuple[()]:
    return ()


def _no_tail(_family: Family, _settings: ProxySettings, _node: NodeFacts) -> tuple[()]:
    return ()


def _render_port(
    ports: Mapping[str, int],
    listen: IPAddress | None,
    host: IPAddress | None,
    proxy: ProxyScope,
    port: ServicePortInfo,
) -> PortRules:
    to = ports.get(key_of(port))
    lines = () if to is None else tuple(_portals(port, to, listen, host or proxy.node_address))
    return PortRules(port.service, lines, (), "")


def _portals(port: ServicePortInfo, to: int, listen: IPAddress | None, host: IPAddress) -> Iterator[RuleLine]:
    """The rules of one service port, whose process listens on the port ``to``.

    REDIRECT sends a packet to the first address of the device by which it came, so the answer leaves by that device
    under that address. A packet of the node's own has no such device, so DNAT sends it to the node's address.
    """
    redirect = f"REDIRECT --to-ports {to}" if listen is None else f"DNAT --to-destination {endpoint(listen, to)}"
    translate = f"DNAT --to-destination {endpoint(host, to)}"
    for address in (port.cluster_ip, *port.load_balancer_vips):
        where = f"{_to_port(port, port.port)} -d {address}"
        yield append_line(PORTALS_CONTAINER, where, redirect)
        yield append_line(_PORTALS_HOST, where, translate)
    for address in port.external_ips:
        where = f"{_to_port(port, port.port)} -d {address}"
        yield append_line(PORTALS_CONTAINER, f"{where} {_NO_BRIDGE_PORT}", redirect)
        yield append_line(PORTALS_CONTAINER, f"{where} {TO_LOCAL}", redirect)
        yield append_line(_PORTALS_HOST, f"{where} {TO_LOCAL}", translate)
    if port.node_port:
        yield append_line(_NODE_PORT_CONTAINER, _to_port(port, port.node_port), redirect)
        yield append_line(_NODE_PORT_HOST, _to_port(port, port.node_port), translate)
        yield append_line(_NON_LOCAL, f"{_to_port(port, to)} -m state --state NEW", "ACCEPT")


def _to_port(port: ServicePortInfo, number: int) -> str:
    """Packets of the protocol to that port, under the service port's name."""
    protocol = port.protocol.lower()
    return f"{comment(port.name)} -p {protocol} -m {protocol} --dport {number}"
