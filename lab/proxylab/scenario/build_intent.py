"""Build the frozen objects of probes and streams from shapes that passed every check."""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import Protocol, Transport
from proxylab.cluster.objects import Service
from proxylab.scenario.document import Location
from proxylab.scenario.manifests import ServiceId
from proxylab.scenario.model import (
    AddressTarget,
    Frontend,
    HostTarget,
    Manner,
    PodGroup,
    PodTarget,
    Probe,
    Send,
    ServiceTarget,
    Source,
    Stream,
    Target,
)
from proxylab.scenario.reading import placed
from proxylab.scenario.references import choose_port, service_id, transport_of
from proxylab.scenario.schema.probe import (
    AddressTargetShape,
    AnyTarget,
    HostTargetShape,
    PodTargetShape,
    ProbeShape,
    SendShape,
    ServiceTargetShape,
    SourceShape,
    StreamShape,
)

__all__ = ["NamedObjects", "build_probe", "build_stream"]


class NamedObjects(Struct, frozen=True):
    """The objects by name: the Services, and every single pod with its entry."""

    services: Mapping[ServiceId, Service]
    pods: Mapping[str, PodGroup]


def build_probe(shape: ProbeShape, location: Location, named: NamedObjects) -> Probe:
    """The probe at ``location``."""
    target, protocol = _target(shape, named)
    return Probe(
        name=shape.name,
        source=_source(shape.source),
        target=target,
        send=_send(shape.send, protocol),
        expect=placed(shape.expect, location["expect"]),
        exceptions=tuple(placed(each, location["except"][index]) for index, each in enumerate(shape.exceptions)),
        position=location["name"].key.position,
    )


def build_stream(name: str, shape: StreamShape, location: Location, named: NamedObjects) -> Stream:
    """The stream at ``location``."""
    target, protocol = _target(shape, named)
    return Stream(
        name=name,
        source=_source(shape.source),
        target=target,
        send=_send(shape.send, protocol),
        position=location.key.position,
    )


def _source(shape: SourceShape) -> Source:
    return Source(
        name=shape.name,
        address=None if shape.address == "all" else shape.address,
        all_addresses=shape.address == "all",
        port=shape.port,
        loopback=shape.loopback,
    )


def _send(shape: SendShape, protocol: Transport) -> Send:
    return Send(
        protocol=protocol,
        manner=Manner.PACKET if protocol is Transport.ICMP else shape.manner,
        flows=shape.flows,
        payload=shape.payload,
        every=shape.every,
        frame_to=(shape.frame_to or "").lower(),
    )


def _target(shape: "ProbeShape | StreamShape", named: NamedObjects) -> tuple[Target, Transport]:
    """The target, and the protocol that follows from it and ``send.protocol``."""
    if shape.send.protocol is Transport.ICMP:
        return _without_port(shape.target), Transport.ICMP
    target, protocol = _with_port(shape, named)
    return target, Transport(protocol)


def _without_port(target: AnyTarget) -> Target:
    """The target of an echo request."""
    match target:
        case ServiceTargetShape():
            namespace, name = service_id(target.service, target.namespace)
            return ServiceTarget(
                service=name,
                namespace=namespace,
                via=target.via,
                node=target.node,
                address=target.address,
                family=target.family,
            )
        case PodTargetShape():
            return PodTarget(pod=target.pod, family=target.family)
        case HostTargetShape():
            return HostTarget(host=target.host, port=None, family=target.family)
        case AddressTargetShape():
            return AddressTarget(address=target.address, port=None)


def _with_port(shape: "ProbeShape | StreamShape", named: NamedObjects) -> tuple[Target, Protocol]:
    target, protocol = shape.target, transport_of(shape.send.protocol)
    match target:
        case ServiceTargetShape():
            service = named.services[service_id(target.service, target.namespace)]
            return _service_target(target, service, protocol)
        case PodTargetShape():
            ports = named.pods[target.pod].ports
            fitting = [port for port in ports if target.port in (None, port.name, port.port)]
            fitting = [port for port in fitting if protocol in (None, port.protocol)]
            if not fitting:
                number = target.port if isinstance(target.port, int) else None
                port, served = number, protocol or Protocol.TCP
            else:
                port, served = fitting[0].port, fitting[0].protocol
            return PodTarget(pod=target.pod, port=port, family=target.family), served
        case HostTargetShape():
            return HostTarget(host=target.host, port=target.port, family=target.family), protocol or Protocol.TCP
        case AddressTargetShape():
            return AddressTarget(address=target.address, port=target.port), protocol or Protocol.TCP


def _service_target(
    target: ServiceTargetShape, service: Service, protocol: Protocol | None
) -> tuple[ServiceTarget, Protocol]:
    """The target, by the port's name if the Service has several ports: two of them may share a number."""
    if target.via is Frontend.HEALTH_CHECK_NODE_PORT:
        return _frontend(target, service, None), Protocol.TCP
    if target.via is Frontend.DNS_NAME and not service.ports:
        return replace(_frontend(target, service, None), port=target.port), protocol or Protocol.TCP
    port = choose_port(service, target.port, protocol).fitting[0]
    return _frontend(target, service, port.name if len(service.ports) > 1 else None), port.protocol


def _frontend(target: ServiceTargetShape, service: Service, port: str | None) -> ServiceTarget:
    return ServiceTarget(
        service=service.name,
        namespace=service.namespace,
        port=port,
        via=target.via,
        node=target.node,
        address=target.address,
        family=target.family,
    )
