"""Receivers of all probes: pods, programs that listen on a node, and the stacks that answer echo requests."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from proxylab.addresses import Family, IPAddress
from proxylab.plan.lookup import own_address
from proxylab.plan.model import Namespace, PodPlacement
from proxylab.plan.resolved import STACK, Receiver
from proxylab.scenario.network import UPLINK

__all__ = ["everywhere"]

_NO_PORT: Final = 0


def everywhere(
    pods: Iterable[PodPlacement], nodes: Iterable[Namespace], hosts: Iterable[Namespace], family: Family, echo: bool
) -> tuple[Receiver, ...]:
    """The receivers of any probe in a family.

    Args:
        pods: those with a network namespace of their own.
        nodes: the nodes.
        hosts: the outside hosts.
        family: the IP family.
        echo: whether the probe sends echo requests, which the stacks of nodes and hosts answer.
    """
    in_pods = (
        Receiver(name=pod.name, namespace=pod.namespace, device=pod.device, address=own_address(pod, family))
        for pod in pods
    )
    if echo:
        return (*in_pods, *_stacks(nodes, hosts, family))
    return (*in_pods, *(program for node in nodes for program in _programs(node, family)))


def _programs(node: Namespace, family: Family) -> Iterator[Receiver]:
    """The host-network pods and daemons of a node, each with the addresses and ports on which it listens."""
    own = _own_addresses(node, family)
    ports: defaultdict[tuple[str, IPAddress], list[int]] = defaultdict(list)
    for listener in node.listeners:
        for address in own if listener.address is None else (listener.address,):
            if Family.of(address) is family:
                ports[listener.name, address].append(listener.port)
    for (name, address), numbers in ports.items():
        yield Receiver(
            name=name, namespace=node.name, device=STACK, address=address, ports=tuple(dict.fromkeys(numbers))
        )


def _stacks(nodes: Iterable[Namespace], hosts: Iterable[Namespace], family: Family) -> Iterator[Receiver]:
    """Nodes and outside hosts with all their addresses: the stack of each answers echo requests."""
    for node in nodes:
        for address in (*_own_addresses(node, family), family.loopback):
            yield Receiver(name=node.name, namespace=node.name, device=STACK, address=address, ports=(_NO_PORT,))
    for host in hosts:
        for address in _own_addresses(host, family):
            yield Receiver(name=host.name, namespace=host.name, device=UPLINK, address=address)


def _own_addresses(placement: Namespace, family: Family) -> tuple[IPAddress, ...]:
    """All addresses of a namespace, on any device, except IPv6 link-local."""
    own = (each.interface.ip for each in placement.addresses)
    return tuple(dict.fromkeys(each for each in own if Family.of(each) is family and not each.is_link_local))
