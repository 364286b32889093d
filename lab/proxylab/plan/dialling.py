"""Load balancers that dial node ports: what the router translates, and by which rules.

The router is the balancer. It translates an address of the pool to the node port of the Service at the own address of a
node, chosen at random for each connection, and translates the answers back, as the balancers of most clouds do in their
network. It keeps the client's address, or replaces it by its own on the segment of the nodes. A node sees traffic to a
node port of its own: it knows nothing of the balancer, and does not check loadBalancerSourceRanges.

An answer that does not come back through the router keeps the node port as its source. That happens to a pod behind the
balancer whose packets kept its own address: nodes route to pods past the router.
"""

from collections.abc import Callable, Collection, Iterable, Iterator

from proxylab.addresses import IPAddress, Protocol, with_port
from proxylab.cluster.objects import Service, ServiceType
from proxylab.encoding import Record
from proxylab.plan.model import Balancer


class DialledPort(Record, frozen=True, kw_only=True):
    """A Service's port at an address of a balancer, and the node ports among which the balancer chooses.

    Attributes:
        nodes: their own addresses, by name.
        hides_client: whether nodes see the balancer's address.
    """

    balancer: str
    address: IPAddress
    protocol: Protocol
    port: int
    node_port: int
    nodes: dict[str, IPAddress]
    hides_client: bool


def dialled_ports(
    balancers: Iterable[Balancer],
    services: Iterable[Service],
    excluded: Collection[str],
    is_healthy: Callable[[IPAddress, str], bool],
) -> tuple[DialledPort, ...]:
    """What balancers dial while these nodes are excluded by their label.

    ``is_healthy`` says of an address and a node whether the balancer's checks let packets for the address go there.
    """
    dialling = [each for each in balancers if each.dials_node_ports]
    exposed = [each for each in services if each.type is ServiceType.LOAD_BALANCER]
    return tuple(
        DialledPort(
            balancer=balancer.name,
            address=address,
            protocol=port.protocol,
            port=port.port,
            node_port=port.node_port,
            nodes={
                name: own
                for name, addresses in balancer.nodes.items()
                for own in addresses
                if own.version == address.version and name not in excluded and is_healthy(address, name)
            },
            hides_client=balancer.replaces_client,
        )
        for service in (exposed if dialling else ())
        for address in (address for each in service.load_balancer_ingress for address in each.addresses)
        for balancer in dialling
        if any(address in network for network in balancer.pool)
        for port in service.ports
        if port.node_port
    )


def dialling_text(dialled: Iterable[DialledPort]) -> str:
    """The text for iptables-restore that makes the router dial these node ports of one family, and no others."""
    rules = [rule for each in dialled for rule in _rules(each)]
    return "".join(f"{line}\n" for line in ("*nat", "-F PREROUTING", "-F POSTROUTING", *rules, "COMMIT"))


def _rules(each: DialledPort) -> Iterator[str]:
    protocol = f"-p {each.protocol.lower()}"
    for number, own in enumerate(each.nodes.values()):
        left = len(each.nodes) - number
        chance = f" -m statistic --mode random --probability {1 / left:.10f}" if left > 1 else ""
        matched = f"-d {each.address} {protocol} --dport {each.port}{chance}"
        yield f"-A PREROUTING {matched} -j DNAT --to-destination {with_port(own, each.node_port)}"
        if each.hides_client:
            dialled = f"-d {own} {protocol} --dport {each.node_port} -m conntrack --ctorigdst {each.address}"
            yield f"-A POSTROUTING {dialled} -j MASQUERADE"
