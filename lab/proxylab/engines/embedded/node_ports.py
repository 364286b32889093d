"""Which addresses of a node serve node ports and health-check node ports, in every mode.

It follows kube-proxy's pkg/proxy/util/nodeport_addresses.go, where the list counts for each family by itself.
"""

from proxylab.addresses import Family, IPAddress
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.settings import ProxySettings

__all__ = ["node_port_addresses"]


def node_port_addresses(family: Family, settings: ProxySettings, node: NodeFacts) -> tuple[IPAddress, ...] | None:
    """The addresses that ``nodePortAddresses`` chooses; ``None`` where it chooses all addresses of the family.

    ``primary`` chooses all addresses of a family in which the node has no address.
    """
    if settings.node_port_primary:
        primary = node.primary_address(family)
        return None if primary.is_loopback else (primary,)
    chosen = [cidr for cidr in settings.node_port_addresses if Family.of(cidr) is family]
    if not chosen or any(cidr.prefixlen == 0 for cidr in chosen):
        return None
    own = {address for address in node.interface_addresses if any(address in cidr for cidr in chosen)}
    return tuple(sorted(own, key=int))
