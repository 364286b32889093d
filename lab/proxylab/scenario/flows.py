"""The checks of a probe's name, sender, target and packets. ``proxylab.scenario.check_expect`` checks expectations."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from proxylab.cluster.objects import Service
from proxylab.scenario.check_expect import check_expectations
from proxylab.scenario.document import Location, Problems, shown
from proxylab.scenario.inventory import Subject
from proxylab.scenario.keys import RefusedError
from proxylab.scenario.parts import ProbeParts
from proxylab.scenario.pods import PodGroup
from proxylab.scenario.probes import AddressTarget, HostTarget, PodTarget, ServiceTarget, Source
from proxylab.scenario.targets import (
    FRONTENDS_OF_PORTS,
    find_service,
    frontend_addresses,
    host_port,
    pod_port,
    require_address,
    require_frontend,
    service_port,
)
from proxylab.scenario.words import Frontend, Manner, Outcome, PodWay, Program

_PORTS: Final = (Frontend.NODE_PORT, Frontend.HEALTH_CHECK_NODE_PORT)


def check_probes(
    probes: Sequence[ProbeParts],
    location: Location,
    around: Callable[[ProbeParts, Location], Subject],
    problems: Problems,
) -> None:
    """Note every probe that the lab cannot send, or with an expectation that it cannot judge.

    The probes are those of ``spec.probes`` or of one step; ``around`` makes the subject of one at its place.
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
        if (every := at["send"]["every"]).exists:
            problems.add(every.key, "only a stream has it: a probe sends its packets at once", allowed="remove the key")
        check_expectations(subject)
    _check_agreement(probes, location, problems)


def check_flow(subject: Subject) -> None:
    """Note mistakes in the sender and the target of a probe or stream."""
    if subject.probe.source is not None:
        _check_sender(subject, subject.probe.source, subject.location["from"])
    location, inventory, problems = subject.location["to"], subject.inventory, subject.problems
    match subject.probe.target:
        case ServiceTarget() as target:
            _check_service(subject, target, location)
        case PodTarget(pod=name) if name not in inventory.pods:
            inventory.refuse(location["pod"].spot, name, "a pod", inventory.pods, problems)
        case PodTarget(pod=name) as target:
            pod = subject.parts.pods[inventory.pods[name]]
            if pod is not None and target.via is PodWay.HOST_PORT:
                _check_host_port(subject, pod, target, location)
            elif pod is not None and subject.dials_a_port:
                with _noted(subject):
                    pod_port(name, pod.ports, target.port, subject.protocol)
        case HostTarget(host=name) if name not in inventory.hosts:
            inventory.refuse(location["host"].spot, name, "an outside host", inventory.hosts, problems)
        case AddressTarget(path=path) if path and not (
            subject.probe.expect is not None and (subject.probe.expect.http or subject.probe.expect.also)
        ):
            problems.add(location["path"].key, "only a request has a path", allowed="expect http, or remove the key")
    _check_echo(subject)
    _check_frame(subject)
    _check_header(subject)
    send, concurrency = subject.probe.send, subject.location["send"]["concurrency"]
    if concurrency.exists and (subject.echo or (send is not None and send.manner is not Manner.CONNECT)):
        what = "packets make no connection, which is open until it is closed"
        problems.add(concurrency.key, what, allowed=f"needed: as: {Manner.CONNECT}")


def _check_host_port(subject: Subject, pod: PodGroup, target: PodTarget, location: Location) -> None:
    """Note a pod without the host port, and an echo request, which has no port."""
    if subject.echo:
        what = "a host port is a port, and an echo request has none"
        subject.problems.add(location["via"].spot, what, allowed=f"allowed: {PodWay.POD_IP}")
        return
    with _noted(subject):
        host_port(target.pod, pod.ports, target, subject.protocol)


def _check_sender(subject: Subject, source: Source, location: Location) -> None:
    inventory, problems, send = subject.inventory, subject.problems, subject.probe.send
    if source.name not in inventory.senders:
        name = location["name"] if location["name"].exists else location
        inventory.refuse(name.spot, source.name, "a sender", inventory.senders, problems)
    if source.loopback and source.name not in inventory.nodes and not inventory.is_doubtful(source.name):
        what = f"{source.name} is not a node"
        problems.add(location["loopback"].key, what, allowed="only a node dials from its loopback address")
    if source.all_addresses:
        _check_many_clients(subject, source, location)
    if source.port is not None and send is not None and (flows := subject.flows_for(subject.probe.expect)) > 1:
        if send.flows:
            what, at = "several flows cannot share the fixed source port", subject.location["send"]["flows"]
        else:
            what, at = f"expect needs {flows} flows, which cannot share the fixed source port", location["port"]
        problems.add(at.spot, what, allowed="allowed with from.port: 1")


def _check_many_clients(subject: Subject, source: Source, location: Location) -> None:
    inventory, problems, send = subject.inventory, subject.problems, subject.probe.send
    if source.name not in inventory.hosts and not inventory.is_doubtful(source.name):
        what = f"{source.name} is not an outside host"
        problems.add(location["address"].spot, what, allowed="only an outside host has many addresses")
    if source.port is not None:
        problems.add(location["port"].key, "cannot go with address: all", allowed="remove one of the two")
    if send is not None and send.manner is not Manner.PACKET:
        what = "needs send: {as: packet}: kernel sockets send from one client"
        problems.add(location["address"].spot, what)


def _check_service(subject: Subject, target: ServiceTarget, location: Location) -> None:
    problems, services = subject.problems, subject.manifests.services
    if location["namespace"].exists and "/" in str(location["service"].value):
        problems.add(location["namespace"].key, "service names the namespace already", allowed="write it once")
    _check_node(subject, target, location)
    if subject.manifests.complete:
        with _noted(subject):
            find_service(services, target)
    service = subject.service
    _check_request(subject, target, location)
    if service is not None and target.via is not Frontend.INGRESS:
        with _noted(subject):
            require_frontend(service, target.via, balanced=bool(subject.parts.load_balancers))
            _check_dialled(subject, target, service, location)


def _check_dialled(subject: Subject, target: ServiceTarget, service: Service, location: Location) -> None:
    """Note an address or a port that a frontend does not have."""
    problems = subject.problems
    if target.via is Frontend.DNS_NAME:
        _check_asker(subject, location)
    if known := frontend_addresses(service, target.via):  # the others get theirs in the lab
        with _noted(subject):
            require_address(service, target, known)
    if target.via is Frontend.DNS_NAME and not service.ports:
        if not (subject.echo or isinstance(target.port, int)):
            what = f"Service {service.name} declares no ports"
            problems.add(location["port"].spot, what, allowed="give the port number to dial")
    elif target.via is not Frontend.HEALTH_CHECK_NODE_PORT:
        if subject.dials_a_port:
            with _noted(subject):
                service_port(service, target.port, subject.protocol)
        if target.via is Frontend.NODE_PORT and not service.allocate_node_ports:
            _check_node_port(subject, target, service, location)


@contextmanager
def _noted(subject: Subject) -> Iterator[None]:
    """Note what a look-up refuses, at the key at fault."""
    try:
        yield
    except RefusedError as refusal:
        where = subject.location
        for part in refusal.key.split("."):
            where = where[part]
        subject.problems.add(where.spot, **refusal.problem)


def _check_request(subject: Subject, target: ServiceTarget, location: Location) -> None:
    """Note the keys of a request at another frontend than an Ingress, and what a request to an Ingress lacks."""
    problems, expect, send = subject.problems, subject.probe.expect, subject.probe.send
    if target.via is not Frontend.INGRESS:
        for key in ("host", "path", "tls"):
            if location[key].exists:
                problems.add(location[key].key, "only a request to an Ingress has it", allowed="write via: ingress")
        return
    if not target.host:
        problems.add(location["host"].key, "is missing", allowed="give the host of the request, such as shop.example")
    if not any(pod is not None and pod.program is Program.NGINX for pod in subject.parts.pods.values()):
        problems.add(location["via"].spot, "no pod has program: nginx", allowed="add a controller to spec.pods")
    for key in ("port", "address"):
        if location[key].exists:
            what = "a request to an Ingress goes to the controller's Service"
            problems.add(location[key].key, what, allowed="remove the key")
    if expect is not None and expect.http is None:
        problems.add(
            subject.location["expect"]["http"].key,
            "is missing: nginx answers by HTTP, and Kubernetes promises nothing of it",
            allowed="{status: 200}",
        )
    if send is not None and send.manner is not Manner.CONNECT:
        what = "a request needs the kernel's sockets"
        problems.add(subject.location["send"]["as"].spot, what, allowed=f"allowed: {Manner.CONNECT}")


def _check_node(subject: Subject, target: ServiceTarget, location: Location) -> None:
    """Note an unknown node, and a node that has no effect."""
    inventory, problems, source = subject.inventory, subject.problems, subject.probe.source
    if target.node is None:
        return
    if target.node not in inventory.nodes:
        inventory.refuse(location["node"].spot, target.node, "a node", inventory.nodes, problems)
    if (
        target.via not in (*_PORTS, Frontend.INGRESS)
        and source is not None
        and source.name in (*inventory.pods, *inventory.nodes)
    ):
        what = "the router picks a node only for packets from outside hosts"
        problems.add(location["node"].key, what, allowed="remove the key")


def _check_asker(subject: Subject, location: Location) -> None:
    """Note an outside host as the sender: it does not use the cluster's name server."""
    source, inventory = subject.probe.source, subject.inventory
    if source is not None and source.name in inventory.hosts:
        what = f"{source.name} is an outside host, and does not use the cluster's name server"
        subject.problems.add(location["via"].spot, what, allowed="allowed: from a pod or a node")


def _check_node_port(subject: Subject, target: ServiceTarget, service: Service, location: Location) -> None:
    """Note the node port of a Service that gets none unless the author writes it."""
    called = [port for port in service.ports if target.port in (None, port.name or None, port.port)]
    if called and not any(port.node_port for port in called):
        what = f"Service {service.name} has allocateLoadBalancerNodePorts: false, and its port has no nodePort"
        subject.problems.add(location["via"].spot, what, allowed="give the port a nodePort")


def _check_echo(subject: Subject) -> None:
    """Note a port that an echo request cannot have, and a port that any other probe lacks."""
    target, send, problems, location = subject.probe.target, subject.probe.send, subject.problems, subject.location
    if send is None:
        return
    if not subject.echo:
        if isinstance(target, HostTarget | AddressTarget) and target.port is None:
            problems.add(location["to"]["port"].key, "is missing", allowed="only an echo request (ICMP) has no port")
        return
    for port in (location["to"]["port"], location["from"]["port"]):
        if port.exists:
            problems.add(port.key, "an echo request has no port", allowed="remove the key")
    if isinstance(target, ServiceTarget) and target.via in _PORTS:
        what = f"{target.via} is a port, and an echo request has none"
        others = ", ".join(each for each in FRONTENDS_OF_PORTS if each not in _PORTS)
        problems.add(location["to"]["via"].spot, what, allowed=f"allowed: {others}, or to: {{address: …}}")
    if location["send"]["as"].exists and send.manner is not Manner.PACKET:
        what = "an echo request is a single packet, not a connection"
        problems.add(location["send"]["as"].spot, what, allowed="allowed: packet")


def _check_frame(subject: Subject) -> None:
    """Note a frame that the probe cannot send, or without a receiver. ``plan.lookup`` checks the link."""
    source, send, problems, inventory = subject.probe.source, subject.probe.send, subject.problems, subject.inventory
    location = subject.location["send"]["frameTo"]
    if send is None or not location.exists:
        return
    if send.manner is not Manner.PACKET and not subject.echo:
        what = "kernel sockets send frames to the next hop that routing gives"
        problems.add(location.key, what, allowed="needed: as: packet")
    if source is not None and source.name in inventory.nodes:
        what = f"a packet of the node {source.name} has no frame until it has passed the node's rules"
        problems.add(location.key, what, allowed="send from a pod or an outside host")
    if ":" not in send.frame_to and send.frame_to not in inventory.senders:
        inventory.refuse(location.spot, send.frame_to, "a node, pod or host", inventory.senders, problems)


def _check_header(subject: Subject) -> None:
    """Note a time to live or a DSCP of packets that the kernel's sockets send."""
    send = subject.probe.send
    if send is None or send.manner is Manner.PACKET or subject.echo:
        return
    for key, given, name in (("ttl", send.ttl, "time to live"), ("dscp", send.dscp, "DSCP")):
        if given is not None:
            what = f"kernel sockets send with the sender's own {name}"
            subject.problems.add(subject.location["send"][key].key, what, allowed="needed: as: packet")


def _check_agreement(probes: Sequence[ProbeParts], location: Location, problems: Problems) -> None:
    """Note probes with the same sender, target and packets, and contradictory outcomes."""
    sent: dict[object, dict[Outcome, int]] = {}
    for index, probe in enumerate(probes):
        expect, outcome = probe.expect, location[index]["expect"]["outcome"]
        flow = probe.source, probe.target, probe.send
        if expect is None or not outcome.exists or probe.exceptions or None in flow:
            continue
        firsts = sent.setdefault(flow, {})  # thousands of probes may send the same, and expect the same
        earlier = min((number for each, number in firsts.items() if each is not expect.outcome), default=None)
        if earlier is not None:
            first = location[earlier]["expect"]["outcome"].key.position.line
            what = f"contradicts the probe {shown(probes[earlier].name)}, which sends the same packets and expects"
            what = f"{what} {next(each for each in firsts if firsts[each] == earlier)} in line {first}"
            problems.add(outcome.spot, what, allowed="change one of the two")
        firsts.setdefault(expect.outcome, index)
