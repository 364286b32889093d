"""The checks of a probe's name, sender and target. ``proxylab.scenario.expectations`` checks expectations."""

from collections.abc import Callable, Sequence
from typing import Final

from proxylab.addresses import IPAddress, Transport
from proxylab.cluster.allocate import needs_health_check
from proxylab.cluster.objects import Service, ServiceType
from proxylab.scenario.document import Location
from proxylab.scenario.expectations import check_expectations
from proxylab.scenario.model import Frontend, Manner
from proxylab.scenario.parts import ProbeParts
from proxylab.scenario.problems import Problems, listed, shown
from proxylab.scenario.references import choose_port, service_id, transport_of
from proxylab.scenario.schema.probe import (
    AddressTargetShape,
    HostTargetShape,
    PodTargetShape,
    ServiceTargetShape,
    SourceShape,
)
from proxylab.scenario.subject import Subject, is_echo

__all__ = ["check_flow", "check_probes"]

_PORTS: Final = (Frontend.NODE_PORT, Frontend.HEALTH_CHECK_NODE_PORT)
_ADDRESSES: Final = "allowed: clusterIP, externalIP, loadBalancerIP, or to: {address: …}"


def check_probes(
    probes: Sequence[ProbeParts],
    location: Location,
    around: Callable[[ProbeParts, Location], Subject],
    problems: Problems,
) -> None:
    """Note every probe that the lab cannot send, or with an expectation that it cannot judge.

    Args:
        probes: those of ``spec.probes``, or of one step.
        location: the place of their list.
        around: makes the subject of a probe and its place.
        problems: takes the mistakes.
    """
    names: dict[str, Location] = {}
    for index, probe in enumerate(probes):
        at = location[index]
        first = names.setdefault(probe.name, at) if probe.name is not None else at
        if first is not at:
            line = first["name"].key.position.line
            what = f"another probe has the name {shown(probe.name)}, in line {line}"
            problems.add(at["name"].spot, what, allowed="the names of probes are unique")
        subject = around(probe, at)
        check_flow(subject)
        check_expectations(subject)
    _check_agreement(probes, location, problems)


def check_flow(subject: Subject) -> None:
    """Note mistakes in the sender and the target of a probe or stream."""
    _check_sender(subject)
    _check_target(subject)
    _check_echo(subject)
    _check_frame(subject)


def _check_sender(subject: Subject) -> None:
    inventory, source, send = subject.inventory, subject.probe.source, subject.probe.send
    if source is None:
        return
    location = subject.location["from"]
    location = location["name"] if location["name"].exists else location
    if source.name not in inventory.senders:
        inventory.refuse(location.spot, source.name, "a sender", inventory.senders, subject.problems)
    if source.loopback and source.name not in inventory.nodes and not inventory.is_doubtful(source.name):
        subject.problems.add(
            subject.location["from"]["loopback"].key,
            f"{source.name} is not a node",
            allowed="only a node dials from its loopback address",
        )
    if source.address == "all":
        _check_many_clients(subject, source)
    if source.port is not None and send is not None and send.flows > 1:
        subject.problems.add(
            subject.location["send"]["flows"].spot,
            "several flows cannot share the fixed source port",
            allowed="allowed with from.port: 1",
        )


def _check_many_clients(subject: Subject, source: SourceShape) -> None:
    inventory, problems, location = subject.inventory, subject.problems, subject.location["from"]
    if source.name not in inventory.hosts and not inventory.is_doubtful(source.name):
        problems.add(
            location["address"].spot,
            f"{source.name} is not an outside host",
            allowed="only an outside host has many addresses",
        )
    if source.port is not None:
        problems.add(location["port"].key, "cannot go with address: all", allowed="remove one of the two")
    if subject.probe.send is not None and subject.probe.send.manner is not Manner.PACKET:
        what = "needs send: {as: packet}: kernel sockets send from one client"
        problems.add(location["address"].spot, what)


def _check_target(subject: Subject) -> None:
    target, location = subject.probe.target, subject.location["to"]
    match target:
        case ServiceTargetShape():
            _check_service(subject, target, location)
        case PodTargetShape():
            _check_pod(subject, target, location)
        case HostTargetShape() if target.host not in subject.inventory.hosts:
            hosts = subject.inventory.hosts
            subject.inventory.refuse(location["host"].spot, target.host, "an outside host", hosts, subject.problems)


def _check_service(subject: Subject, target: ServiceTargetShape, location: Location) -> None:
    problems = subject.problems
    if target.namespace is not None and "/" in target.service:
        problems.add(location["namespace"].key, "service names the namespace already", allowed="write it once")
    _check_node(subject, target, location)
    wanted = service_id(target.service, target.namespace)
    services = subject.manifests.services
    if wanted not in services:
        if subject.manifests.complete:
            known = [name if namespace == wanted[0] else f"{namespace}/{name}" for namespace, name in services]
            what = f"there is no Service {'/'.join(wanted)}"
            problems.add(
                location["service"].spot, what, allowed=f"declared: {listed(known)}", word=target.service, known=known
            )
        return
    service = services[wanted]
    if service is None:
        return
    if reason := _no_frontend(service, target.via, subject):
        what = f"Service {'/'.join(wanted)} {reason}"
        problems.add(location["via"].spot, what, allowed="dial a frontend that it has, or add this one")
        return
    if target.via is not Frontend.HEALTH_CHECK_NODE_PORT:
        _check_frontend(subject, target, service, location)


def _check_frontend(subject: Subject, target: ServiceTargetShape, service: Service, location: Location) -> None:
    """The checks of a frontend that the Service has."""
    if target.via is Frontend.DNS_NAME:
        _check_asker(subject, location)
    if target.address is not None:
        _check_address(subject, target.address, target.via, service, location["address"])
    if is_echo(subject):
        return
    if target.via is Frontend.DNS_NAME and not service.ports:
        _check_number(subject, target, service, location)
    else:
        _check_service_port(subject, target, service, location)


def _check_node(subject: Subject, target: ServiceTargetShape, location: Location) -> None:
    """Note an unknown node, and a node that has no effect."""
    inventory, problems, source = subject.inventory, subject.problems, subject.probe.source
    of_node = target.via in (Frontend.NODE_PORT, Frontend.HEALTH_CHECK_NODE_PORT)
    if target.node is None:
        return
    if target.node not in inventory.nodes:
        inventory.refuse(location["node"].spot, target.node, "a node", inventory.nodes, problems)
    if not of_node and source is not None and source.name in (*inventory.pods, *inventory.nodes):
        problems.add(
            location["node"].key,
            "the router picks a node only for packets from outside hosts",
            allowed="remove the key",
        )


def _check_asker(subject: Subject, location: Location) -> None:
    """Note an outside host as the sender: it does not use the cluster's name server."""
    source, inventory = subject.probe.source, subject.inventory
    if source is not None and source.name in inventory.hosts:
        what = f"{source.name} is an outside host, and does not use the cluster's name server"
        subject.problems.add(location["via"].spot, what, allowed="allowed: from a pod or a node")


def _check_number(subject: Subject, target: ServiceTargetShape, service: Service, location: Location) -> None:
    """Note a missing port number: a Service without ports has no port names."""
    if not isinstance(target.port, int):
        what = f"Service {service.name} declares no ports"
        subject.problems.add(location["port"].spot, what, allowed="give the port number to dial")


def _no_frontend(service: Service, via: Frontend, subject: Subject) -> str:
    """Why a Service has no frontend of that kind, or an empty string."""
    if service.type is ServiceType.EXTERNAL_NAME and via is not Frontend.DNS_NAME:
        return f"is an ExternalName: it has no {via}"
    exposed = service.type in (ServiceType.NODE_PORT, ServiceType.LOAD_BALANCER)
    match via:
        case Frontend.CLUSTER_IP if service.headless:
            return "is headless: it has no clusterIP"
        case Frontend.NODE_PORT if not exposed:
            return f"is of type {service.type}: it has no nodePort"
        case Frontend.EXTERNAL_IP if not service.external_ips:
            return "has no externalIPs"
        case Frontend.LOAD_BALANCER_IP if service.type is not ServiceType.LOAD_BALANCER:
            return f"is of type {service.type}: it has no load balancer"
        case Frontend.LOAD_BALANCER_IP if not (
            subject.parts.load_balancers or any(each.ip for each in service.load_balancer_ingress)
        ):
            return "has no address in status.loadBalancer, and the scenario has no loadBalancers to give it one"
        case Frontend.HEALTH_CHECK_NODE_PORT if not needs_health_check(service):
            return "has no health-check node port: only a LoadBalancer with externalTrafficPolicy Local has one"
    return ""


def _check_address(subject: Subject, address: IPAddress, via: Frontend, service: Service, location: Location) -> None:
    """Note an address that the frontend does not have, if the author gives its addresses."""
    known = {
        Frontend.CLUSTER_IP: service.cluster_ips,
        Frontend.EXTERNAL_IP: service.external_ips,
        Frontend.LOAD_BALANCER_IP: tuple(each.ip for each in service.load_balancer_ingress if each.ip),
    }.get(via, ())
    if known and address not in known:
        what = f"Service {service.name} has no {via} {address}"
        subject.problems.add(location.spot, what, allowed=f"allowed: {listed(map(str, known))}")


def _check_service_port(subject: Subject, target: ServiceTargetShape, service: Service, location: Location) -> None:
    problems, send = subject.problems, subject.probe.send
    if send is None:
        return
    protocol = transport_of(send.protocol)
    choice = choose_port(service, target.port, protocol)
    spelled = [f"{port.name or port.port} ({port.port}/{port.protocol})" for port in service.ports]
    if target.port is None and len(service.ports) > 1:
        what = f"is missing: Service {service.name} has several ports"
        problems.add(location["port"].key, what, allowed=f"allowed: {listed(spelled)}")
    elif not choice.called:
        what = f"Service {service.name} has no port {shown(target.port)}"
        names = [port.name for port in service.ports]
        allowed = f"allowed: {listed(spelled)}"
        problems.add(location["port"].spot, what, allowed=allowed, word=str(target.port), known=names)
    elif not choice.fitting:
        protocols = " and ".join(port.protocol for port in choice.called)
        what = f"Service {service.name} has that port over {protocols}, not {protocol}"
        problems.add(subject.location["send"]["protocol"].spot, what, allowed=f"send over {protocols}")
    elif target.via is Frontend.NODE_PORT and not (service.allocate_node_ports or choice.fitting[0].node_port):
        what = f"Service {service.name} has allocateLoadBalancerNodePorts: false, and its port has no nodePort"
        problems.add(location["via"].spot, what, allowed="give the port a nodePort")
    elif len(choice.fitting) > 1:
        what = f"Service {service.name} has port {target.port} over several protocols"
        problems.add(location["port"].spot, what, allowed="use the port's name, or set send.protocol")


def _check_pod(subject: Subject, target: PodTargetShape, location: Location) -> None:
    problems, inventory = subject.problems, subject.inventory
    if target.pod not in inventory.pods:
        inventory.refuse(location["pod"].spot, target.pod, "a pod", inventory.pods, problems)
        return
    pod, send = subject.parts.pods[inventory.pods[target.pod]], subject.probe.send
    if pod is None or send is None:
        return
    if is_echo(subject):
        return
    ports, protocol = pod.ports, transport_of(send.protocol)
    spelled = [f"{port.name or port.port} ({port.port}/{port.protocol})" for port in ports]
    if target.port is None:
        if len([port for port in ports if protocol in (None, port.protocol)]) != 1:
            what = f"is missing: {target.pod} does not have exactly one port"
            problems.add(location["port"].key, what, allowed=f"declared: {listed(spelled)}")
        return
    called = [port for port in ports if target.port in (port.name, port.port)]
    if isinstance(target.port, str) and not called:
        names = [port.name for port in ports if port.name]
        what = f"{target.pod} has no port {shown(target.port)}"
        declared = f"declared: {listed(spelled)}"
        problems.add(location["port"].spot, what, allowed=declared, word=target.port, known=names)
    elif isinstance(target.port, str) and protocol not in (None, called[0].protocol):
        what = f"{target.pod} has that port over {called[0].protocol}, not {protocol}"
        problems.add(subject.location["send"]["protocol"].spot, what, allowed=f"send over {called[0].protocol}")
    elif len(called) > 1 and protocol is None:
        what = f"{target.pod} has port {target.port} over several protocols"
        problems.add(location["port"].spot, what, allowed="use the port's name, or set send.protocol")


def _check_echo(subject: Subject) -> None:
    """Note a port that an echo request cannot have, and a port that any other probe lacks."""
    target, send, problems, location = subject.probe.target, subject.probe.send, subject.problems, subject.location
    if not is_echo(subject):
        if send is not None and isinstance(target, HostTargetShape | AddressTargetShape) and target.port is None:
            problems.add(location["to"]["port"].key, "is missing", allowed="only an echo request (ICMP) has no port")
        return
    for port in (location["to"]["port"], location["from"]["port"]):
        if port.exists:
            problems.add(port.key, "an echo request has no port", allowed="remove the key")
    if isinstance(target, ServiceTargetShape) and target.via in _PORTS:
        what = f"{target.via} is a port, and an echo request has none"
        problems.add(location["to"]["via"].spot, what, allowed=_ADDRESSES)
    if location["send"]["as"].exists and send is not None and send.manner is not Manner.PACKET:
        what = "an echo request is a single packet, not a connection"
        problems.add(location["send"]["as"].spot, what, allowed="allowed: packet")


def _check_frame(subject: Subject) -> None:
    """Note a frame that the probe cannot send, or without a receiver. ``plan.lookup`` checks the link."""
    source, send, problems, inventory = subject.probe.source, subject.probe.send, subject.problems, subject.inventory
    if send is None or send.frame_to is None:
        return
    location = subject.location["send"]["frameTo"]
    if send.manner is not Manner.PACKET and send.protocol is not Transport.ICMP:
        what = "kernel sockets send frames to the next hop that routing gives"
        problems.add(location.key, what, allowed="needed: as: packet")
    if source is not None and source.name in inventory.nodes:
        what = f"a packet of the node {source.name} has no frame until it has passed the node's rules"
        problems.add(location.key, what, allowed="send from a pod or an outside host")
    if ":" not in send.frame_to and send.frame_to not in inventory.senders:
        inventory.refuse(location.spot, send.frame_to, "a node, pod or host", inventory.senders, problems)


def _check_agreement(probes: Sequence[ProbeParts], location: Location, problems: Problems) -> None:
    """Note probes with the same sender, target and packets, and contradictory outcomes."""
    sent: dict[object, list[int]] = {}
    for index, probe in enumerate(probes):
        expect = probe.expect
        if expect is None or not location[index]["expect"]["outcome"].exists or probe.exceptions:
            continue
        if None in (probe.source, probe.target, probe.send):
            continue
        flow = probe.source, probe.target, probe.send
        for earlier in sent.setdefault(flow, []):
            other = probes[earlier]
            if other.expect is not None and other.expect.outcome is not expect.outcome:
                where = location[index]["expect"]["outcome"]
                first = location[earlier]["expect"]["outcome"].key.position.line
                what = f"contradicts the probe {shown(other.name)}, which sends the same packets and expects"
                problems.add(
                    where.spot, f"{what} {other.expect.outcome} in line {first}", allowed="change one of the two"
                )
                break
        sent[flow].append(index)
