"""Look up nodes, pods and outside hosts by name, and their own addresses."""

from collections.abc import Mapping
from typing import TypeVar

from proxylab.addresses import Family, IPAddress
from proxylab.plan.dialled import UnresolvableError
from proxylab.plan.model import Namespace, PodPlacement
from proxylab.plan.names import UPLINK

__all__ = ["find", "namespace_of", "own_address", "own_addresses_of"]

Located = TypeVar("Located", bound=Namespace | PodPlacement)


def find(key: str, name: str, placements: Mapping[str, Located]) -> Located:
    """The node, pod or host of that name.

    Raises:
        UnresolvableError: there is none; the message begins with the key and lists the known names.
    """
    if name not in placements:
        raise UnresolvableError(f"{key}: there is no {name!r}; known: {', '.join(placements) or 'none'}")
    return placements[name]


def namespace_of(placement: Namespace | PodPlacement) -> str:
    """Its network namespace."""
    return placement.namespace if isinstance(placement, PodPlacement) else placement.name


def own_address(placement: Namespace | PodPlacement, family: Family) -> IPAddress:
    """The own address of a node, pod or host in a family: for a node or host, the first one of its uplink.

    Raises:
        UnresolvableError: it has none.
    """
    fitting = [address for address in own_addresses_of(placement) if Family.of(address) is family]
    if not fitting:
        raise UnresolvableError(f"{placement.name} has no {family} address")
    return fitting[0]


def own_addresses_of(placement: Namespace | PodPlacement) -> tuple[IPAddress, ...]:
    """The own addresses of a node, pod or host: for a node or host, those of its uplink, except IPv6 link-local."""
    if isinstance(placement, PodPlacement):
        return placement.addresses
    own = (address.interface.ip for address in placement.addresses if address.device == UPLINK)
    return tuple(address for address in own if not address.is_link_local)
