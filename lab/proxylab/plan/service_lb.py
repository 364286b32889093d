"""Pods that pass packets on to a Service: the rules of klipper-lb, which runs in the pods of K3s' ServiceLB.

ServiceLB runs a pod on each node for a Service of type LoadBalancer; the pod has the Service's ports as host ports. Its
rules lead what comes to such a port to the cluster IP, or under externalTrafficPolicy Local to the node port of the
pod's own node, and masquerade it (k3s, pkg/cloudprovider/servicelb.go; klipper-lb, entry). So no endpoint sees the
client's address under either policy. Its rules for loadBalancerSourceRanges are left out.
"""

from collections.abc import Iterable, Iterator

from proxylab.addresses import Family, IPAddress, Protocol, with_port
from proxylab.cluster.objects import Node, Service, TrafficPolicy
from proxylab.encoding import Record
from proxylab.plan.model import Forwarding


class ForwardedPort(Record, frozen=True, kw_only=True):
    """A port of a pod, and the address and port to which the pod passes packets on."""

    protocol: Protocol
    port: int
    address: IPAddress
    to: int


def forwarded_ports(forwarding: Forwarding, service: Service, node: Node, family: Family) -> Iterator[ForwardedPort]:
    """What a pod on that node passes on over one family: nothing where the Service has no such address or port."""
    is_local = service.external_traffic_policy is TrafficPolicy.LOCAL and service.externally_accessible
    addresses = node.addresses if is_local else service.cluster_ips
    address = next((each for each in addresses if Family.of(each) is family), None)
    for own in forwarding.ports if address is not None else ():
        for port in service.ports:
            number = port.node_port if is_local else port.port
            if (port.protocol, port.port) == (own.protocol, own.port) and address is not None and number:
                yield ForwardedPort(protocol=own.protocol, port=own.port, address=address, to=number)


def forwarding_text(ports: Iterable[ForwardedPort]) -> str:
    """The text for iptables-restore that makes a pod pass on what comes to these ports, and nothing else."""
    lines = ["*nat", "-F PREROUTING", "-F POSTROUTING"]
    for each in ports:
        protocol, to = f"-p {each.protocol.lower()}", with_port(each.address, each.to)
        lines.append(f"-A PREROUTING ! -s {each.address} {protocol} --dport {each.port} -j DNAT --to-destination {to}")
        lines.append(f"-A POSTROUTING -d {each.address} {protocol} -j MASQUERADE")
    return "".join(f"{line}\n" for line in (*lines, "COMMIT"))
