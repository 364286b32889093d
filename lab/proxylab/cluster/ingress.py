"""``give_ingress``: load-balancer addresses for Services, as a cloud's controller assigns them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress, IPNetwork
from proxylab.cluster.objects import LoadBalancerIngress, Service, ServiceType
from proxylab.errors import ScenarioError

__all__ = ["Pool", "give_ingress"]


class Pool(Struct, frozen=True):
    """The networks from which the load balancer ``name`` assigns addresses."""

    name: str
    networks: tuple[IPNetwork, ...]


def give_ingress(services: Sequence[Service], pools: Sequence[Pool]) -> tuple[Service, ...]:
    """Give every Service of type LoadBalancer an address for each of its families.

    Addresses in ``status.loadBalancer`` stay, and no other Service gets them. The first pool with a free address of a
    family gives the next one, so that the same Services always get the same addresses.

    Args:
        services: with their IP families settled, in the order of assignment.
        pools: in their order. Without pools no Service gets an address.

    Raises:
        ScenarioError: with a line for each Service without an address, if some pool has addresses of its family.
    """
    held = {entry.ip for service in services for entry in service.load_balancer_ingress if entry.ip is not None}
    families = dict.fromkeys(Family.of(network) for pool in pools for network in pool.networks)
    free = {family: (each for each in _addresses(pools, family) if each not in held) for family in families}
    problems: list[str] = []
    given = tuple(_with_ingress(service, free, pools, problems) for service in services)
    if problems:
        raise ScenarioError(problems)
    return given


def _with_ingress(
    service: Service, free: Mapping[Family, Iterator[IPAddress]], pools: Sequence[Pool], problems: list[str]
) -> Service:
    if service.type is not ServiceType.LOAD_BALANCER or service.load_balancer_ingress:
        return service
    entries = []
    for family in service.ip_families:
        if family not in free:
            continue
        address = next(free[family], None)
        if address is None:
            names = ", ".join(pool.name for pool in pools)
            problems.append(
                f"Service {service.namespace}/{service.name}: no {family} address is left in the pools of "
                f"spec.loadBalancers ({names}); give them larger ones"
            )
        else:
            entries.append(LoadBalancerIngress(ip=address))
    return replace(service, load_balancer_ingress=tuple(entries))


def _addresses(pools: Iterable[Pool], family: Family) -> Iterator[IPAddress]:
    """Each pool's host addresses; every address of a pool of one or two."""
    for network in (network for pool in pools for network in pool.networks if Family.of(network) is family):
        alone = network.num_addresses <= 2
        last = network.num_addresses if alone or network.version == 6 else network.num_addresses - 1
        yield from (network[number] for number in range(0 if alone else 1, last))
