"""The checks of pods' ``hostPort`` and of pods that pass packets on (``forwardsTo``).

Two pods of one node cannot have the same host port: the scheduler leaves the second one pending. Ports of pods on the
host network count, too, since the API server makes each of them a host port.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from proxylab.addresses import IPAddress, Protocol
from proxylab.cluster.objects import Service
from proxylab.scenario.document import Location, Problems, listed, shown
from proxylab.scenario.parts import Parts
from proxylab.scenario.pods import ListeningPort, PodGroup


class _Taken(NamedTuple):
    """A host port of a node that a pod has; ``address`` is ``None`` for all addresses of the node.

    ``listens`` is of a pod on the host network. Two of these are no matter of host ports.
    """

    pod: str
    node: str
    protocol: Protocol
    port: int
    address: IPAddress | None
    listens: bool

    def excludes(self, other: "_Taken") -> bool:
        """Whether the scheduler takes them for one (``NodePorts`` of kube-scheduler)."""
        same = (self.node, self.protocol, self.port) == (other.node, other.protocol, other.port)
        one_listens = not (self.listens and other.listens)
        return same and one_listens and (self.address == other.address or None in (self.address, other.address))


def check_host_ports(parts: Parts, services: Mapping[tuple[str, str], Service | None], problems: Problems) -> None:
    """Note host ports that no pod can have, and pods that pass packets on to what is no Service's port."""
    taken: list[_Taken] = []
    first = next(iter(parts.nodes), "")
    for name, pod in parts.pods.items():
        if pod is None:
            continue
        location = parts.at("pods", name)
        for index, port in enumerate(pod.ports):
            _check_host_port(pod, port, location["ports"][index], problems)
            for own in _taken(pod, port, first) if pod.present else ():
                other = next((each for each in taken if each.excludes(own)), None)
                if other is not None:
                    what = f"{other.pod} has {own.protocol} port {own.port} of {own.node}, and {own.pod} cannot"
                    at = location["ports"][index].spot
                    problems.add(at, what, allowed="choose another hostPort, or another node")
                    break
                taken.append(own)
        if pod.forwards_to:
            _check_forwarding(pod, location, services, problems)


def _taken(pod: PodGroup, port: ListeningPort, first: str) -> Iterator[_Taken]:
    number = port.port if pod.host_network else port.host_port
    address = None if port.host_ip is None or port.host_ip.is_unspecified else port.host_ip
    for ordinal, name in enumerate(pod.pod_names if number else ()):
        node = pod.node_of(ordinal) if pod.nodes else first
        yield _Taken(name, node, port.protocol, number or 0, address, pod.host_network)


def _check_host_port(pod: PodGroup, port: ListeningPort, location: Location, problems: Problems) -> None:
    if port.host_ip is not None and port.host_port is None:
        at = location["hostIP"].key
        problems.add(at, "has no effect without hostPort", allowed="add hostPort, or remove the key")
    if pod.host_network and port.host_port not in (None, port.port):
        what = f"a pod on the host network listens on port {port.port} of its node itself"
        problems.add(location["hostPort"].spot, what, allowed=f"write {port.port}, or remove the key")
    if pod.shared_netns and port.host_port is not None:
        what = "replicas that share a network namespace are for large numbers of endpoints, and have no host ports"
        problems.add(location["hostPort"].key, what, allowed="remove the key, or sharedNetns")


def _check_forwarding(
    pod: PodGroup, location: Location, services: Mapping[tuple[str, str], Service | None], problems: Problems
) -> None:
    """Note a Service that does not exist, a port that it does not have, and pods that cannot pass anything on."""
    at, key = location["forwardsTo"], pod.forwards_to_service
    for word, given in (("hostNetwork", pod.host_network), ("program", pod.program), ("sharedNetns", pod.shared_netns)):
        if given:
            what = "pods that pass packets on have a network namespace of their own, and no program in it"
            problems.add(location[word].key, what, allowed=f"remove {word}, or forwardsTo")
    if key not in services:
        known = [own if namespace == "default" else f"{namespace}/{own}" for namespace, own in services]
        what = f"there is no Service {'/'.join(key)}"
        problems.add(at.spot, what, allowed=f"declared: {listed(known)}", word=pod.forwards_to, known=known)
        return
    service = services[key]
    if service is None:
        return
    if service.headless or service.external_name:
        problems.add(at.spot, f"Service {shown(service.name)} has no cluster IP", allowed="name one that has")
    if not pod.ports:
        problems.add(at.key, "needs ports, at which packets come", allowed=f"ports: {_numbers(service)}")
    for index, port in enumerate(pod.ports):
        if (port.protocol, port.port) not in {(each.protocol, each.port) for each in service.ports}:
            what = f"Service {service.name} has no {port.protocol} port {port.port} to pass packets on to"
            problems.add(location["ports"][index].spot, what, allowed=f"its ports: {_numbers(service)}")


def _numbers(service: Service) -> str:
    return listed([f"{each.port}/{each.protocol}" for each in service.ports])
