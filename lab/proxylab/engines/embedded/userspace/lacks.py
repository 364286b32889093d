"""What mode userspace lacks of what scenarios ask for: kube-proxy stopped adding to it long before 1.26 removed it."""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from proxylab.addresses import Family, IPAddress, Protocol, Transport
from proxylab.cluster.objects import SERVICE_PROXY_NAME_LABEL, EndpointSlice, KubeObject, Service, TrafficPolicy
from proxylab.engines.proxy_mode import Lacks
from proxylab.plan.assembly import Assembly
from proxylab.plan.endpoints import Dialled, LabEndpoints
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.expect import ConntrackExpect, Expect, Preserved
from proxylab.scenario.model import Scenario
from proxylab.scenario.network import Network, PodNetwork
from proxylab.scenario.node_engines import EngineAction
from proxylab.scenario.nodes import Daemon, LabNode
from proxylab.scenario.probes import Probe, ServiceTarget, Stream
from proxylab.scenario.steps import Step
from proxylab.scenario.words import Frontend, Manner, Outcome

_SERVICES_CHAIN: Final = "KUBE-SERVICES"
_REFUSALS: Final = frozenset({Outcome.REJECTED, Outcome.DROPPED, Outcome.UNTRANSLATED})
_NO_CLIENT: Final = "mode userspace never preserves the client's address: its process opens the connection to the pod"
_NO_ENTRY: Final = (
    "mode userspace leaves no entry that leads to an endpoint: its process opens the connection to the pod"
)


def _of_scenario(scenario: Scenario, upstream: bool, changes: bool) -> Iterator[str]:
    if any(step.until is not None and step.until.balancers for step in scenario.steps):
        yield "with health-check node ports, by which load balancers choose nodes"
    if any(
        step.until is not None
        and step.until.backends
        and any(each.action is EngineAction.KILL for each in step.change.engines.values())
        for step in scenario.steps
    ):
        yield "whose connections outlive the proxy, which a step waits for"
    if any(_is_held(daemon, node, scenario.services) for node in scenario.nodes for daemon in node.daemons):
        yield "that leaves ports of Services to daemons of the node"
    if any(_SERVICES_CHAIN in node.leftovers.iptables + node.leftovers.ip6tables for node in scenario.nodes):
        yield "that removes the rules of another mode from its node"
    if upstream and changes:
        yield "that removes its rules when another mode takes its place"


def _of_server(scenario: Scenario, server: IPAddress) -> Iterator[str]:
    """A query to a server's cluster IP of a family that the proxy does not serve."""
    network = scenario.network
    if any(server in each for each in network.service_cidrs) and Family.of(server) is not network.families[0]:
        yield f"that serves {Family.of(server)}: {_one_family(network)}"


def _of_probe(assembly: Assembly, probe: Probe, resolved: ResolvedProbe) -> Iterator[str]:
    now = assembly.timeline[assembly.scenario.steps_before(probe)]
    own = probe.source.port if probe.source.name in assembly.nodes else None
    if own is not None and own in {port.node_port for service in now.services for port in service.ports}:
        yield f"mode userspace keeps other programs of a node off its node ports, and the probe leaves from port {own}"
    service = _service_of(assembly, probe, resolved)
    if service is None or SERVICE_PROXY_NAME_LABEL in service.labels:  # another proxy's
        yield from _kept(assembly, probe, resolved)
        return
    if service.headless:  # its name leads past the proxy, but the query for the name does not
        if Family.of(resolved.destination) is not assembly.scenario.network.families[0]:
            yield _one_family(assembly.scenario.network)
        return
    by_packet = resolved.protocol is Transport.TCP and probe.send.manner is Manner.PACKET
    if by_packet and any(port.protocol is Protocol.TCP for port in service.ports):
        yield (
            "mode userspace ends connections, and a single crafted SYN opens none; write send: {as: connect}, or "
            "{as: either} for packets in the modes that forward"
        )
    yield from _of_packets(assembly, probe, resolved, service)
    yield from _of_service(assembly, probe, service)
    yield from _of_expectations(probe.expect, resolved, service)
    yield from _of_endpoints(now.objects, service)


def _of_stream(assembly: Assembly, step: Step, stream: Stream, resolved: ResolvedProbe) -> Iterator[tuple[str, str]]:
    made, expect = assembly.scenario.steps_before(step), step.expect.streams.get(stream.name)
    # A step begins with a packet just before its change.
    services = (_service_at(assembly, number, stream, resolved) for number in (made, made - 1))
    service = next(filter(None, services), None)
    if service is None:
        return
    for reason in _of_packets(assembly, stream, resolved, service):
        yield stream.name, reason
    for reason in _of_service(assembly, stream, service):
        yield stream.name, reason
    if expect is not None and isinstance(expect.source, Preserved):
        yield f"{stream.name}.source", _NO_CLIENT
    if expect is not None and expect.rejected is not None and 0 not in expect.rejected:
        yield f"{stream.name}.rejected", _no_rule(Outcome.REJECTED)


def _of_step(assembly: Assembly, step: Step, nodes: Collection[str]) -> Iterator[tuple[str, str]]:
    if _names_endpoints(assembly, step.expect.conntrack):
        yield "conntrack", _NO_ENTRY
    if any(metric.node in nodes for metric in step.expect.metrics or ()):
        yield "metrics", "mode userspace exports no metric of what its rules do"


def _is_held(daemon: Daemon, node: LabNode, services: Sequence[Service]) -> bool:
    """Whether the proxy's process keeps a daemon's port for itself (claimNodePort in pkg/proxy/userspace/proxier.go).

    It keeps node ports, and the ports of Services at external IPs and load balancer IPs that the node itself has.
    """
    own = {each.interface.ip for each in node.addresses if daemon.address in (None, each.interface.ip)}
    for service in services:
        at_node = own.intersection((*service.external_ips, *(each.ip for each in service.load_balancer_ingress)))
        for port in service.ports:
            kept = (port.node_port, port.port) if at_node else (port.node_port,)
            if daemon.protocol is port.protocol and daemon.port in kept:
                return True
    return False


def _service_of(assembly: Assembly, probe: Probe, resolved: ResolvedProbe) -> Service | None:
    """The Service that a probe dials, in whatever way it names it."""
    named = resolved.service_port.partition(":")[0]
    if isinstance(probe.target, ServiceTarget):
        named = f"{probe.target.namespace}/{probe.target.service}"
    services = assembly.timeline[assembly.scenario.steps_before(probe)].services
    return next((each for each in services if f"{each.namespace}/{each.name}" == named), None)


def _kept(assembly: Assembly, probe: Probe, resolved: ResolvedProbe) -> Iterator[str]:
    """Why the proxy still serves a port that a Service had before a step."""
    for cluster in assembly.timeline[: assembly.scenario.steps_before(probe)]:
        for service in cluster.services:
            other = _of_other_family(assembly, service)
            addressed = resolved.destination in (*service.cluster_ips, *service.external_ips)
            if other is not None and addressed and _has_port(service, resolved):
                name = f"{service.namespace}/{service.name}"
                yield f"mode userspace never removes the rules of {name}: iptables refuses to delete one for {other}"


def _has_port(service: Service, resolved: ResolvedProbe) -> bool:
    return any((each.port, Transport(each.protocol)) == (resolved.port, resolved.protocol) for each in service.ports)


def _of_other_family(assembly: Assembly, service: Service) -> IPAddress | None:
    """An address of a Service that iptables refuses, since it is none of the family that the proxy serves."""
    first = assembly.scenario.network.families[0]
    balanced = (each.ip for each in service.load_balancer_ingress if each.ip is not None)
    return next((each for each in (*service.external_ips, *balanced) if Family.of(each) is not first), None)


def _service_at(assembly: Assembly, made: int, stream: Stream, resolved: ResolvedProbe) -> Service | None:
    """The Service that a stream dials after that many steps."""
    services = assembly.timeline[made].services
    nodes = [address for name in assembly.nodes for address in assembly.addresses[name]]
    dialled = Dialled(resolved.destination, resolved.port, resolved.protocol)
    expected = LabEndpoints(services, (), nodes).expected(stream.target, stream.send.protocol, dialled)
    named = expected.service_port.partition(":")[0]
    return next((each for each in services if f"{each.namespace}/{each.name}" == named), None)


def _names_endpoints(assembly: Assembly, expect: ConntrackExpect | None) -> bool:
    pods = {pod.name for pod in assembly.plan.pods}
    expected = (expect.some, expect.none) if expect is not None else ()
    return any(each is not None and each.reply_from in pods for each in expected)


def _one_family(network: Network) -> str:
    return f"mode userspace serves one family, and this cluster's first is {network.families[0]}"


def _no_rule(outcome: Outcome) -> str:
    return f"mode userspace has no rule that lets a flow be {outcome}: its process accepts every connection"


def _of_packets(assembly: Assembly, probe: Probe | Stream, resolved: ResolvedProbe, service: Service) -> Iterator[str]:
    """What the probe or stream sends, and from where."""
    network = assembly.scenario.network
    if resolved.request is not None and isinstance(probe, Probe) and "outcome" in probe.expect.positions:
        yield (
            "mode userspace ends the connection before the controller does, and the lab follows it through one of them"
        )
    if resolved.protocol is Transport.SCTP:
        yield "mode userspace has no SCTP"
    if Family.of(resolved.destination) is not network.families[0]:
        yield _one_family(network)
    elif network.families == (Family.IPV6, Family.IPV4):
        # The node's address is that of its IPv4 default route, if it has one (ResolveBindAddress in apimachinery).
        yield "mode userspace takes the node's IPv4 address for its rules, and so serves no IPv6 beside IPv4"
    if network.pod_network is PodNetwork.PTP_UNNUMBERED and any(
        probe.source.name == pod.name for pod in assembly.plan.pods
    ):
        yield "mode userspace redirects to an address of the device by which a packet came, and ptp-unnumbered has none"
    leaves_alone = isinstance(probe, Probe) and probe.expect.outcome is Outcome.UNTRANSLATED
    elsewhere = resolved.destination not in assembly.addresses[probe.source.name]
    from_node = probe.source.name in assembly.nodes and not leaves_alone
    if from_node and elsewhere and resolved.destination in service.external_ips:
        yield "mode userspace leads a node's own packets to external IPs only where the node has the address"


def _of_service(assembly: Assembly, probe: Probe | Stream, service: Service) -> Iterator[str]:
    """What the Service and the proxy's configuration ask for at the frontend that the probe dials."""
    target, name = probe.target, f"{service.namespace}/{service.name}"
    from_outside = isinstance(target, ServiceTarget) and target.via is not Frontend.CLUSTER_IP
    policies = {service.internal_traffic_policy, *([service.external_traffic_policy] if from_outside else [])}
    other, first = _of_other_family(assembly, service), assembly.scenario.network.families[0]
    if len(service.cluster_ips) > 1 and Family.of(service.cluster_ips[0]) is not first:
        yield f"mode userspace serves clusterIP alone, and that of {name} is no {first} address"
    if isinstance(target, ServiceTarget) and target.via is Frontend.HEALTH_CHECK_NODE_PORT:
        yield "mode userspace serves no health-check node port"
    if TrafficPolicy.LOCAL in policies:
        yield f"mode userspace has no traffic policy Local, which {name} asks for"
    if service.source_ranges and from_outside:
        yield f"mode userspace has no loadBalancerSourceRanges, which {name} asks for"
    if assembly.scenario.proxy is not None and assembly.scenario.proxy.node_port_addresses:
        yield "mode userspace has no nodePortAddresses"
    # It writes address by address, node ports last, and stops at the first one that iptables refuses (openPortal in
    # pkg/proxy/userspace/proxier.go).
    if from_outside and other is not None:
        yield f"mode userspace serves no frontend of {name} behind {other}, which is no {first} address"


def _of_expectations(expect: Expect, resolved: ResolvedProbe, service: Service) -> Iterator[str]:
    """What only a proxy that forwards can fulfil."""
    if expect.conntrack is not None:
        yield _NO_ENTRY
    if expect.error is not None:
        yield "mode userspace sends packets of its own to the endpoint, and no ICMP error about them reaches the client"
    if isinstance(expect.source, Preserved):
        yield _NO_CLIENT
    discards = expect.outcome is Outcome.DROPPED and resolved.protocol is Transport.UDP
    # The rules for external IPs are the only ones that leave some packets to the Service alone.
    passes = expect.outcome is Outcome.UNTRANSLATED and resolved.destination in service.external_ips
    if expect.outcome in _REFUSALS and not (discards or passes):
        yield _no_rule(expect.outcome)


def _of_endpoints(objects: Sequence[KubeObject], service: Service) -> Iterator[str]:
    """What the slices of a Service ask for beyond ready endpoints, which is all that Endpoints can say."""
    endpoints = [
        endpoint
        for each in objects
        if isinstance(each, EndpointSlice) and (each.namespace, each.service) == (service.namespace, service.name)
        for endpoint in each.endpoints
    ]
    ready = {address for endpoint in endpoints if endpoint.ready for address in endpoint.addresses}
    if any(endpoint.for_zones or endpoint.for_nodes for endpoint in endpoints):
        yield "mode userspace has no topology hints"
    if any(endpoint.terminating and not ready.issuperset(endpoint.addresses) for endpoint in endpoints):
        yield "mode userspace does not use terminating endpoints"


LACKS: Final = Lacks(
    of_scenario=_of_scenario, of_server=_of_server, of_probe=_of_probe, of_stream=_of_stream, of_step=_of_step
)
