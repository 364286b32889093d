"""``hostPort``: the rules by which a node's network plugin leads ports of the node to pods.

They are those that portmap of the CNI plugins writes with iptables (plugins/meta/portmap): its chains, their order and
its marks. CNI-HOSTPORT-DNAT has a rule for each pod, the newest first, that leads its host ports to a chain of the pod,
CNI-DN-…. A packet from the network in which the plugin has given the pod its address is masqueraded, so that the
answer of a pod to itself comes back; over IPv4 also one from 127.0.0.1. Any other packet keeps its source.

The jumps from PREROUTING and OUTPUT stand behind all others, where portmap appends them. kube-proxy inserts its own
first, so of a node port and a host port with one number the node port wins.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_network
from typing import Final, NamedTuple

from proxylab.addresses import Family, IPAddress, IPNetwork, Protocol, with_port
from proxylab.cluster.objects import Node, Pod
from proxylab.encoding import Record
from proxylab.plan.model import Plan, PlannedNamespace, PodPlacement
from proxylab.scenario.pods import PodGroup

_NETWORK: Final = "proxylab"
"""The name of the plugins' network, which portmap writes into its comments."""
_MARK: Final = "0x2000/0x2000"
"""portmap's ``markMasqBit`` 13."""
_LONGEST_CHAIN: Final = 28
_MOST_OF_MULTIPORT: Final = 15
"""What a rule of iptables' multiport holds."""


class HostPort(Record, frozen=True, kw_only=True):
    """A port of a node that leads to a pod, over one IP family.

    Attributes:
        pod: its namespace and name.
        at: the address of the node at which alone it is served; ``None`` for every local address.
        address: the pod's.
        pod_port: where the pod listens.
        subnet: the network in which the plugin has given the pod its address.
    """

    node: str
    pod: str
    protocol: Protocol
    port: int
    at: IPAddress | None
    address: IPAddress
    pod_port: int
    subnet: IPNetwork


def host_ports(plan: Plan, pods: Iterable[Pod], nodes: Iterable[Node]) -> tuple[HostPort, ...]:
    """The host ports of all pods, in their order; a pod on the host network needs no rule."""
    # A plugin whose pods have no gateway of their own network, such as Calico's, gives each of them a network alone.
    alone = any(end.proxy_arp for link in plan.links for end in link.ends)
    subnets = {node.name: () if alone else node.pod_cidrs for node in nodes}
    return tuple(
        HostPort(
            node=pod.node_name,
            pod=f"{pod.namespace}/{pod.name}",
            protocol=port.protocol,
            port=port.host_port,
            at=None if port.host_ip is None or port.host_ip.is_unspecified else port.host_ip,
            address=own,
            pod_port=port.port,
            subnet=_subnet(own, subnets.get(pod.node_name, ())),
        )
        for pod in pods
        if not pod.host_network
        for port in pod.ports
        if port.host_port
        for own in pod.addresses
        if port.host_ip is None or port.host_ip.version == own.version
    )


def _subnet(address: IPAddress, networks: Iterable[IPNetwork]) -> IPNetwork:
    own = (each for each in networks if each.version == address.version and address in each)
    return next(own, ip_network(address))


def host_port_text(served: Sequence[HostPort], gone: Iterable[str] = (), *, begins: bool = True) -> str:
    """The text for iptables-restore that makes a node serve these ports of one family, the newest pod's first.

    ``gone`` are the pods whose chains it deletes. ``begins`` says that the node has none of portmap's chains yet.
    """
    pods = {each.pod: [other for other in served if other.pod == each.pod] for each in served}
    ended = [each for each in dict.fromkeys(gone) if each not in pods]
    lines = ["*nat", ":CNI-HOSTPORT-SETMARK - [0:0]", ":CNI-HOSTPORT-MASQ - [0:0]", ":CNI-HOSTPORT-DNAT - [0:0]"]
    lines += [f":{_chain(pod)} - [0:0]" for pod in (*pods, *ended)]
    if begins:
        lines += [f"-A {hook} -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT" for hook in ("PREROUTING", "OUTPUT")]
        lines.append('-I POSTROUTING 1 -m comment --comment "CNI portfwd requiring masquerade" -j CNI-HOSTPORT-MASQ')
    marked = f'-m comment --comment "CNI portfwd masquerade mark" -j MARK --set-xmark {_MARK}'
    lines.append(f"-A CNI-HOSTPORT-SETMARK {marked}")
    lines.append(f"-A CNI-HOSTPORT-MASQ -m mark --mark {_MARK} -j MASQUERADE")
    for pod, own in pods.items():
        lines += [*_entries(pod, own), *(line for each in own for line in _rules(each))]
    lines += [f"-X {_chain(pod)}" for pod in ended]
    return "".join(f"{line}\n" for line in (*lines, "COMMIT"))


def _entries(pod: str, own: Sequence[HostPort]) -> Iterator[str]:
    """The rules that lead the ports of a pod to its chain."""
    comment = f'-m comment --comment "dnat name: \\"{_NETWORK}\\" id: \\"{pod}\\""'
    for protocol in sorted({each.protocol for each in own}):
        ports = list(dict.fromkeys(str(each.port) for each in own if each.protocol is protocol))
        for first in range(0, len(ports), _MOST_OF_MULTIPORT):
            numbers = ",".join(ports[first : first + _MOST_OF_MULTIPORT])
            words = f"-p {protocol.lower()} {comment} -m multiport --dports {numbers} -j {_chain(pod)}"
            yield f"-A CNI-HOSTPORT-DNAT {words}"


def _rules(each: HostPort) -> Iterator[str]:
    """The rules of a pod's chain for one port: what is masqueraded, and where it leads."""
    at = "" if each.at is None else f" -d {each.at}"
    matched = f"{at} -p {each.protocol.lower()} --dport {each.port}"
    chain = _chain(each.pod)
    yield f"-A {chain} -s {each.subnet}{matched} -j CNI-HOSTPORT-SETMARK"
    if each.address.version == 4:
        yield f"-A {chain} -s 127.0.0.1{matched} -j CNI-HOSTPORT-SETMARK"
    yield f"-A {chain}{matched} -j DNAT --to-destination {with_port(each.address, each.pod_port)}"


def _chain(pod: str) -> str:
    digest = hashlib.sha512(f"{_NETWORK}{pod}".encode()).hexdigest()
    return f"CNI-DN-{digest}"[:_LONGEST_CHAIN]


class NodeSocket(NamedTuple):
    """An address, protocol and port of a node."""

    address: IPAddress
    protocol: Protocol
    port: int


class LedTo(NamedTuple):
    """Where a host port leads: the pod's address and port, and the Service to which that pod passes packets on.

    ``service`` is its namespace and name, or empty.
    """

    address: IPAddress
    port: int
    service: tuple[str, str]


def led_to(
    pods: Iterable[PodPlacement], groups: Mapping[str, PodGroup], nodes: Mapping[str, PlannedNamespace]
) -> Mapping[NodeSocket, tuple[LedTo, ...]]:
    """Where the host ports of these pods lead, by each address of their nodes and by its loopback address.

    An own address of a pod that passes packets on leads on, too.
    """
    found: defaultdict[NodeSocket, list[LedTo]] = defaultdict(list)
    for pod in pods:
        group = groups.get(pod.name)
        if group is None or group.host_network:
            continue
        for port in group.ports:
            for own in pod.addresses:
                led = LedTo(own, port.port, group.forwards_to_service)
                if group.forwards_to:
                    found[NodeSocket(own, port.protocol, port.port)].append(led)
                for at in _local(nodes[pod.node], own, port.host_ip) if port.host_port else ():
                    found[NodeSocket(at, port.protocol, port.host_port or 0)].append(led)
    return {socket: tuple(dict.fromkeys(ends)) for socket, ends in found.items()}


def _local(node: PlannedNamespace, pod: IPAddress, host_ip: IPAddress | None) -> Iterator[IPAddress]:
    """The addresses at which a node serves a host port of a pod with this address."""
    family = Family.of(pod)
    for at in (*(each.interface.ip for each in node.addresses), family.loopback):
        if Family.of(at) is family and (host_ip is None or host_ip.is_unspecified or host_ip == at):
            yield at
