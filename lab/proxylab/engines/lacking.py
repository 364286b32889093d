"""What a mode lacks of what a probe asks for: the reason to skip the probe, in place of a verdict on the proxy.

Owns ``lacking`` for a probe, and ``refuse`` for what a whole scenario needs. Only mode userspace lacks anything:
kube-proxy stopped adding to it long before 1.26 removed it.
"""

from collections.abc import Iterator, Sequence

from proxylab.addresses import Family, Protocol, Transport
from proxylab.cluster.objects import EndpointSlice, KubeObject, Service, TrafficPolicy
from proxylab.errors import CapabilityError
from proxylab.plan.assembly import Assembly
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.expect import Expect, Preserved
from proxylab.scenario.model import Scenario
from proxylab.scenario.network import PodNetwork
from proxylab.scenario.probes import Probe, ServiceTarget
from proxylab.scenario.words import TERMINATING_MODES, Frontend, Manner, Outcome

__all__ = ["lacking", "refuse", "refuse_dialogue"]

_REFUSALS = frozenset({Outcome.REJECTED, Outcome.DROPPED, Outcome.UNTRANSLATED})


def refuse(mode: str, scenario: Scenario) -> None:
    """Refuse a scenario whose steps or nodes need what a proxy of that mode lacks.

    Raises:
        CapabilityError: naming what it lacks.
    """
    if mode not in TERMINATING_MODES:
        return
    node_ports = {port.node_port for service in scenario.services for port in service.ports}
    lacks = {
        "that forwards packets: the lab follows no stream through a program": scenario.streams,
        "with health-check node ports, by which load balancers choose nodes": [
            step for step in scenario.steps if step.until is not None and step.until.balancers
        ],
        "that leaves node ports to daemons of the node": [
            daemon for node in scenario.nodes for daemon in node.daemons if daemon.port in node_ports
        ],
    }
    for lack, found in lacks.items():
        if found:
            raise CapabilityError(f"a mode of the proxy {lack}", f"choose another engine than one in mode {mode}")


def refuse_dialogue(mode: str) -> None:
    """Refuse a dialogue of crafted segments through a proxy that ends connections. Raises ``CapabilityError``."""
    if mode in TERMINATING_MODES:
        lack = "a mode of the proxy that forwards packets: crafted segments open no connection to a program"
        raise CapabilityError(lack, f"choose another engine than one in mode {mode}")


def lacking(mode: str, assembly: Assembly, probe: Probe) -> str:
    """Why a proxy of that mode cannot show what the probe expects, as a clause; empty where it can."""
    resolved = assembly.resolved(probe)
    if reason := _no_answer(assembly, resolved):
        return reason
    if mode not in TERMINATING_MODES:
        return ""
    service = _service_of(assembly, probe, resolved)
    if service is None:
        return ""
    return next(_lacks(mode, assembly, probe, resolved, service), "")


def _no_answer(assembly: Assembly, resolved: ResolvedProbe) -> str:
    """Why a real program in a pod does not answer the probe's packets, as a clause; empty where none gets them."""
    if resolved.question is not None or resolved.protocol in (Transport.ICMP, Transport.SCTP):
        return ""
    dialled = {(each.address, each.port) for each in resolved.endpoints}
    for placed in assembly.plan.pods:
        for each in assembly.plan.namespace(placed.namespace).listeners:
            if each.program and each.name == placed.name and dialled & {(one, each.port) for one in placed.addresses}:
                return f"{each.program} in pod {each.name} answers questions about names alone; write via: dnsName"
    return ""


def _service_of(assembly: Assembly, probe: Probe, resolved: ResolvedProbe) -> Service | None:
    """The Service that a probe dials, in whatever way it names it."""
    named = resolved.service_port.partition(":")[0]
    if isinstance(probe.target, ServiceTarget):
        named = f"{probe.target.namespace}/{probe.target.service}"
    services = assembly.timeline[assembly.scenario.steps_before(probe)].services
    return next((each for each in services if f"{each.namespace}/{each.name}" == named), None)


def _lacks(mode: str, assembly: Assembly, probe: Probe, resolved: ResolvedProbe, service: Service) -> Iterator[str]:
    yield from _of_packets(mode, assembly, probe, resolved, service)
    yield from _of_service(mode, assembly, probe, service)
    yield from _of_expectations(mode, probe.expect)
    yield from _of_endpoints(mode, assembly.timeline[assembly.scenario.steps_before(probe)].objects, service)


def _of_packets(
    mode: str, assembly: Assembly, probe: Probe, resolved: ResolvedProbe, service: Service
) -> Iterator[str]:
    """What the probe sends, and from where."""
    network, protocols = assembly.scenario.network, {port.protocol for port in service.ports}
    if resolved.protocol is Transport.SCTP:
        yield f"mode {mode} has no SCTP"
    if resolved.protocol is Transport.TCP and probe.send.manner is Manner.PACKET and Protocol.TCP in protocols:
        yield (
            f"mode {mode} ends connections, and a single crafted SYN opens none; write send: {{as: connect}}, or "
            f"{{as: either}} for packets in the modes that forward"
        )
    if Family.of(resolved.destination) is not network.families[0]:
        yield f"mode {mode} serves one family, and this cluster's first is {network.families[0]}"
    if network.pod_network is PodNetwork.PTP_UNNUMBERED and any(
        probe.source.name == pod.name for pod in assembly.plan.pods
    ):
        yield f"mode {mode} redirects to an address of the device by which a packet came, and ptp-unnumbered has none"
    if resolved.destination in service.external_ips and probe.source.name in assembly.nodes:
        yield f"mode {mode} leads a node's own packets to external IPs only where the node has the address"


def _of_service(mode: str, assembly: Assembly, probe: Probe, service: Service) -> Iterator[str]:
    """What the Service and the proxy's configuration ask for at the frontend that the probe dials."""
    target, name = probe.target, f"{service.namespace}/{service.name}"
    from_outside = isinstance(target, ServiceTarget) and target.via is not Frontend.CLUSTER_IP
    policies = {service.internal_traffic_policy, *([service.external_traffic_policy] if from_outside else [])}
    if isinstance(target, ServiceTarget) and target.via is Frontend.HEALTH_CHECK_NODE_PORT:
        yield f"mode {mode} serves no health-check node port"
    if TrafficPolicy.LOCAL in policies:
        yield f"mode {mode} has no traffic policy Local, which {name} asks for"
    if service.source_ranges and from_outside:
        yield f"mode {mode} has no loadBalancerSourceRanges, which {name} asks for"
    if assembly.scenario.proxy is not None and assembly.scenario.proxy.node_port_addresses:
        yield f"mode {mode} has no nodePortAddresses"


def _of_expectations(mode: str, expect: Expect) -> Iterator[str]:
    """What only a proxy that forwards can fulfil."""
    if expect.conntrack is not None:
        yield f"mode {mode} leaves no entry that leads to an endpoint: its process opens the connection to the pod"
    if isinstance(expect.source, Preserved):
        yield f"mode {mode} never preserves the client's address: its process opens the connection to the pod"
    if expect.outcome in _REFUSALS:
        yield f"mode {mode} has no rule that lets a flow be {expect.outcome}: its process accepts every connection"


def _of_endpoints(mode: str, objects: Sequence[KubeObject], service: Service) -> Iterator[str]:
    """What the slices of a Service ask for beyond ready endpoints, which is all that Endpoints can say."""
    for each in objects:
        if isinstance(each, EndpointSlice) and (each.namespace, each.service) == (service.namespace, service.name):
            if any(endpoint.for_zones or endpoint.for_nodes for endpoint in each.endpoints):
                yield f"mode {mode} has no topology hints"
            if any(endpoint.terminating for endpoint in each.endpoints):
                yield f"mode {mode} does not use terminating endpoints"
