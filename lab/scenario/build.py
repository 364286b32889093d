"""Shapes without a mistake become the frozen ``Scenario``.

Owns: the way from what an author wrote to what the other rooms read.
Must not: find mistakes; every one has been ruled out before.
"""

from collections.abc import Mapping

from lab.cluster.objects import PodPort, Service
from lab.ip import Protocol
from lab.scenario.configuration import CONFIGURATION_KIND, Configured
from lab.scenario.document import Place
from lab.scenario.inventory import pod_names
from lab.scenario.manifests import Manifests, ServiceId
from lab.scenario.model import (
    AddressTarget,
    Expect,
    Host,
    HostTarget,
    Network,
    Node,
    NodeDevice,
    PodGroup,
    PodTarget,
    Preserved,
    Probe,
    Scenario,
    Send,
    ServiceTarget,
    Source,
    SourceExpectation,
    Target,
)
from lab.scenario.references import choose_port, service_id
from lab.scenario.schema.probe import (
    AddressTargetShape,
    ExpectShape,
    HostTargetShape,
    NodeDeviceShape,
    PodTargetShape,
    ProbeShape,
    ServiceTargetShape,
)
from lab.scenario.schema.scenario import NetworkShape, PodShape, ScenarioDocument

__all__ = ["build_scenario"]

Services = Mapping[ServiceId, Service]


def build_scenario(
    file: str, document: ScenarioDocument, place: Place, manifests: Manifests, configured: Configured
) -> Scenario:
    """The Scenario that the documents of a file make, all of them checked.

    Args:
        file: the file's name, for positions.
        document: the Scenario document.
        place: where it stands.
        manifests: the Services beside it.
        configured: how the file configures its proxies.
    """
    spec, at = document.spec, place["spec"]
    services = {key: service for key, service in manifests.services.items() if service is not None}
    pods = {each: pod for name, pod in spec.pods.items() for each in pod_names(name, pod)}
    first_node = next(iter(spec.nodes))
    return Scenario(
        file=file,
        name=document.metadata.name,
        description=document.metadata.description,
        links=tuple(document.metadata.links),
        network=_network(spec.network),
        nodes=tuple(
            Node(name=name, labels=node.labels, sysctls=node.sysctls, position=at["nodes"][name].key.position)
            for name, node in spec.nodes.items()
        ),
        pods=tuple(_pod(name, pod, at["pods"][name], first_node) for name, pod in spec.pods.items()),
        hosts=tuple(Host(name=name, position=at["hosts"][name].key.position) for name in spec.hosts),
        services=tuple(services.values()),
        probes=tuple(_probe(probe, at["probes"][index], services, pods) for index, probe in enumerate(spec.probes)),
        notes=_notes(manifests, configured),
        proxy=configured.configuration,
    )


def _network(shape: NetworkShape) -> Network:
    return Network(
        families=tuple(shape.families),
        pod_network=shape.pod_network.value,
        inter_node=shape.inter_node.value,
        pod_cidrs=(shape.pod_cidr,),
        service_cidrs=(shape.service_cidr,),
        node_cidrs=(shape.node_cidr,),
        outside_cidrs=(shape.outside_cidr,),
    )


def _pod(name: str, shape: PodShape, place: Place, first_node: str) -> PodGroup:
    return PodGroup(
        name=name,
        replicas=shape.replicas,
        nodes=tuple(shape.nodes or (first_node,)),
        labels=shape.labels,
        ports=tuple(PodPort(name=port.name or "", protocol=port.protocol, port=port.port) for port in shape.ports),
        ready=shape.ready,
        position=place.key.position,
    )


def _probe(shape: ProbeShape, place: Place, services: Services, pods: Mapping[str, PodShape]) -> Probe:
    target, protocol = _target(shape, services, pods)
    return Probe(
        name=shape.name,
        source=Source(name=shape.source.name, address=shape.source.address, port=shape.source.port),
        target=target,
        send=Send(protocol=protocol, manner=shape.send.manner, flows=shape.send.flows, payload=shape.send.payload),
        expect=_expect(shape.expect, place["expect"]),
        position=place["name"].key.position,
    )


def _target(shape: ProbeShape, services: Services, pods: Mapping[str, PodShape]) -> tuple[Target, Protocol]:
    """The target, and the protocol that it and ``send.protocol`` come to."""
    target, protocol = shape.target, shape.send.protocol
    match target:
        case ServiceTargetShape():
            service = services[service_id(target.service, target.namespace)]
            return _service_target(target, service, protocol)
        case PodTargetShape():
            ports = pods[target.pod].ports
            fitting = [port for port in ports if target.port in (None, port.name, port.port)]
            fitting = [port for port in fitting if protocol in (None, port.protocol)]
            if not fitting and isinstance(target.port, int):
                return PodTarget(pod=target.pod, port=target.port), protocol or Protocol.TCP
            return PodTarget(pod=target.pod, port=fitting[0].port), fitting[0].protocol
        case HostTargetShape():
            return HostTarget(host=target.host, port=target.port), protocol or Protocol.TCP
        case AddressTargetShape():
            return AddressTarget(address=target.address, port=target.port), protocol or Protocol.TCP


def _service_target(
    target: ServiceTargetShape, service: Service, protocol: Protocol | None
) -> tuple[ServiceTarget, Protocol]:
    """The target by the port's name where the Service has several ports: a number may stand for two of them."""
    port = choose_port(service, target.port, protocol).fitting[0]
    built = ServiceTarget(
        service=service.name,
        namespace=service.namespace,
        port=port.name if len(service.ports) > 1 else None,
        via=target.via,
        node=target.node,
    )
    return built, port.protocol


def _expect(shape: ExpectShape, place: Place) -> Expect:
    return Expect(
        outcome=shape.outcome,
        backends=tuple(shape.backends) if shape.backends is not None else None,
        source=_seen_source(shape),
        spread=shape.spread,
        at=shape.at,
        position=place.key.position,
        positions={str(key): place[str(key)].key.position for key in place.keys},
    )


def _seen_source(shape: ExpectShape) -> SourceExpectation | None:
    match shape.source:
        case NodeDeviceShape(node=node, device=device):
            return NodeDevice(node, device.value)
        case str():
            return Preserved()
        case address:
            return address


def _notes(manifests: Manifests, configured: Configured) -> tuple[str, ...]:
    """What the author may not expect: keys that are there and have no effect, named once."""
    notes = []
    if manifests.ignored:
        notes.append(f"no effect on proxying: {', '.join(sorted(manifests.ignored))}")
    if configured.ignored:
        notes.append(f"no effect in {CONFIGURATION_KIND}: {', '.join(configured.ignored)}")
    return tuple(notes)
