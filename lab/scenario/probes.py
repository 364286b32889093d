"""Probes against the scenario they stand in.

Owns: the checks of what a probe names, and whether its expectation can be met and judged at all.
Must not: know pydantic or YAML.
"""

from dataclasses import dataclass

from lab.cluster.objects import Service, ServiceType
from lab.ip import Protocol
from lab.scenario.document import Place
from lab.scenario.inventory import Inventory
from lab.scenario.manifests import Manifests
from lab.scenario.model import Outcome
from lab.scenario.parts import Parts
from lab.scenario.problems import Problems, listed, shown
from lab.scenario.references import choose_port, ready_pods, service_id
from lab.scenario.schema.probe import (
    HostTargetShape,
    NodeDeviceShape,
    PodTargetShape,
    ProbeShape,
    ServiceTargetShape,
)
from lab.verdict.statistics import flows_needed

__all__ = ["check_probes"]


@dataclass(frozen=True, slots=True)
class _Subject:
    """The probe that is looked at, and what is around it."""

    probe: ProbeShape
    place: Place
    parts: Parts
    inventory: Inventory
    manifests: Manifests
    problems: Problems


def check_probes(parts: Parts, inventory: Inventory, manifests: Manifests, problems: Problems) -> None:
    """Note every probe that cannot be sent, or whose expectation cannot be judged.

    Args:
        parts: the scenario's well-formed parts.
        inventory: its names.
        manifests: its Services.
        problems: takes what is wrong.
    """
    names: dict[str, Place] = {}
    for index, probe in parts.probes.items():
        place = parts.place["spec"]["probes"][index]
        first = names.setdefault(probe.name, place)
        if first is not place:
            line = first["name"].key.position.line
            what = f"another probe has the name {shown(probe.name)}, in line {line}"
            problems.add(place["name"].spot, what, allowed="the names of probes are unique")
        subject = _Subject(probe, place, parts, inventory, manifests, problems)
        _check_sender(subject)
        _check_target(subject)
        _check_expectation(subject)


def _check_sender(subject: _Subject) -> None:
    inventory, source = subject.inventory, subject.probe.source
    place = subject.place["from"]
    place = place["name"] if place["name"].exists else place
    if source.name in inventory.nodes:
        subject.problems.add(
            place.spot, "not yet: this version cannot send from a node", allowed="send from a pod or host"
        )
    elif source.name not in inventory.pods and source.name not in inventory.hosts:
        inventory.refuse(place.spot, source.name, "a sender", inventory.names, subject.problems)
    if source.port is not None and subject.probe.send.flows > 1:
        subject.problems.add(
            subject.place["send"]["flows"].spot,
            "flows from one fixed port are one flow",
            allowed="allowed with from.port: 1",
        )


def _check_target(subject: _Subject) -> None:
    target, place = subject.probe.target, subject.place["to"]
    match target:
        case ServiceTargetShape():
            _check_service(subject, target, place)
        case PodTargetShape():
            _check_pod(subject, target, place)
        case HostTargetShape() if target.host not in subject.inventory.hosts:
            hosts = subject.inventory.hosts
            subject.inventory.refuse(place["host"].spot, target.host, "an outside host", hosts, subject.problems)


def _check_service(subject: _Subject, target: ServiceTargetShape, place: Place) -> None:
    problems, inventory = subject.problems, subject.inventory
    if target.namespace is not None and "/" in target.service:
        problems.add(place["namespace"].key, "the namespace stands in service already", allowed="write it once")
    if target.node is not None:
        if target.node not in inventory.nodes:
            inventory.refuse(place["node"].spot, target.node, "a node", inventory.nodes, problems)
        if subject.probe.source.name in inventory.pods:
            problems.add(
                place["node"].key, "only a packet from an outside host is handed to a node", allowed="leave it out"
            )
    wanted = service_id(target.service, target.namespace)
    services = subject.manifests.services
    if wanted not in services:
        if subject.manifests.complete:
            known = [name if namespace == wanted[0] else f"{namespace}/{name}" for namespace, name in services]
            what = f"no Service {'/'.join(wanted)} stands in this file"
            problems.add(
                place["service"].spot, what, allowed=f"there: {listed(known)}", word=target.service, known=known
            )
        return
    service = services[wanted]
    if service is None:
        return
    if service.headless or service.type is ServiceType.EXTERNAL_NAME:
        kind = "is headless" if service.headless else "is an ExternalName"
        problems.add(place["via"].spot, f"Service {'/'.join(wanted)} {kind}: it has no clusterIP")
        return
    _check_service_port(subject, target, service, place)


def _check_service_port(subject: _Subject, target: ServiceTargetShape, service: Service, place: Place) -> None:
    problems, protocol = subject.problems, subject.probe.send.protocol
    choice = choose_port(service, target.port, protocol)
    spelled = [f"{port.name or port.port} ({port.port}/{port.protocol})" for port in service.ports]
    if target.port is None and len(service.ports) > 1:
        what = f"is missing: Service {service.name} has several ports"
        problems.add(place["port"].key, what, allowed=f"allowed: {listed(spelled)}")
    elif not choice.called:
        what = f"Service {service.name} has no port {shown(target.port)}"
        names = [port.name for port in service.ports]
        allowed = f"allowed: {listed(spelled)}"
        problems.add(place["port"].spot, what, allowed=allowed, word=str(target.port), known=names)
    elif not choice.fitting:
        protocols = " and ".join(port.protocol for port in choice.called)
        what = f"Service {service.name} has that port over {protocols}, not {protocol}"
        problems.add(subject.place["send"]["protocol"].spot, what)
    elif len(choice.fitting) > 1:
        what = f"port {target.port} of Service {service.name} is there over several protocols"
        problems.add(place["port"].spot, what, allowed="use the port's name, or say send.protocol")
    elif choice.fitting[0].protocol is Protocol.SCTP:
        problems.add(
            place["port" if target.port is not None else "service"].spot, "not yet: this version cannot send SCTP"
        )


def _check_pod(subject: _Subject, target: PodTargetShape, place: Place) -> None:
    problems, inventory = subject.problems, subject.inventory
    if target.pod not in inventory.pods:
        inventory.refuse(place["pod"].spot, target.pod, "a pod", inventory.pods, problems)
        return
    pod = subject.parts.pods[inventory.pods[target.pod]]
    ports = pod.ports if pod else []
    protocol = subject.probe.send.protocol
    spelled = [f"{port.name or port.port} ({port.port}/{port.protocol})" for port in ports]
    if target.port is None:
        if len([port for port in ports if protocol in (None, port.protocol)]) != 1:
            what = f"is missing: {target.pod} has not just one port"
            problems.add(place["port"].key, what, allowed=f"there: {listed(spelled)}")
        return
    called = [port for port in ports if target.port in (port.name, port.port)]
    if isinstance(target.port, str) and not called:
        names = [port.name for port in ports if port.name]
        what = f"{target.pod} has no port {shown(target.port)}"
        problems.add(place["port"].spot, what, allowed=f"there: {listed(spelled)}", word=target.port, known=names)
    elif isinstance(target.port, str) and protocol not in (None, called[0].protocol):
        what = f"{target.pod} has that port over {called[0].protocol}, not {protocol}"
        problems.add(subject.place["send"]["protocol"].spot, what)
    elif len(called) > 1 and protocol is None:
        what = f"port {target.port} of {target.pod} is there over several protocols"
        problems.add(place["port"].spot, what, allowed="use the port's name, or say send.protocol")


def _check_expectation(subject: _Subject) -> None:
    expect, place, problems = subject.probe.expect, subject.place["expect"], subject.problems
    delivered = expect.outcome is Outcome.DELIVERED
    if delivered and expect.source is None:
        what = "is missing: with delivered, say whom the backend sees"
        problems.add(place["source"].key, what, allowed="allowed: preserved, an address, or {node, device}")
    if delivered and expect.at is not None:
        problems.add(place["at"].key, "a flow that is delivered ends at its backend", allowed="leave it out")
    if not delivered:
        for key in ("backends", "source", "spread"):
            if place[key].exists:
                problems.add(
                    place[key].key, f"nothing arrives when flows are {expect.outcome}", allowed="only with delivered"
                )
    if isinstance(expect.source, NodeDeviceShape) and expect.source.node not in subject.inventory.nodes:
        spot = place["source"]["node"].spot
        subject.inventory.refuse(spot, expect.source.node, "a node", subject.inventory.nodes, problems)
    _check_end(subject)
    _check_backends(subject)
    if delivered and expect.spread is not None:
        _check_spread(subject)


def _check_end(subject: _Subject) -> None:
    if subject.probe.expect.at is None:
        return
    spot, inventory = subject.place["expect"]["at"].spot, subject.inventory
    name = subject.probe.expect.at.partition("/")[0]
    if name in inventory.pods or name in inventory.hosts:
        what = "not yet: this version cannot prove that a flow ends at a pod or host"
        subject.problems.add(spot, what, allowed=f"allowed: {listed(inventory.nodes)}")
    elif name not in inventory.nodes:
        inventory.refuse(spot, name, "a node", inventory.nodes, subject.problems)


def _check_backends(subject: _Subject) -> None:
    backends = subject.probe.expect.backends or []
    place, inventory = subject.place["expect"]["backends"], subject.inventory
    for index, name in enumerate(backends):
        if name not in inventory.pods:
            inventory.refuse(place[index].spot, name, "a pod", inventory.pods, subject.problems)
        elif name in backends[:index]:
            subject.problems.add(place[index].spot, f"{name} stands twice")
    flows = subject.probe.send.flows
    if flows < len(backends):
        allowed = f"needed: send.flows of {len(backends)} or more, since each backend must be reached"
        subject.problems.add(place.spot, f"{flows} flows cannot reach {len(backends)} backends", allowed=allowed)


def _check_spread(subject: _Subject) -> None:
    probe, problems = subject.probe, subject.problems
    place = subject.place["expect"]["spread"]
    if not isinstance(probe.target, ServiceTargetShape):
        problems.add(place.key, "only a Service spreads flows", allowed="leave it out")
        return
    count = len(probe.expect.backends or []) or _endpoints(subject, probe.target)
    if count is None:
        return
    if count < 2:
        problems.add(place.spot, f"flows cannot be spread over {count} backends", allowed="needed: two or more")
    elif probe.send.flows < (needed := flows_needed(count)):
        problems.add(
            subject.place["send"]["flows"].spot if subject.place["send"]["flows"].exists else place.spot,
            f"{probe.send.flows} flows cannot show an uneven spread over {count} backends",
            allowed=f"needed: {needed}",
        )


def _endpoints(subject: _Subject, target: ServiceTargetShape) -> int | None:
    """The number of ready pods behind the Service, or ``None`` where that cannot be known."""
    service = subject.manifests.services.get(service_id(target.service, target.namespace))
    if service is None or subject.inventory.doubtful:
        return None
    return ready_pods(service, subject.parts)
