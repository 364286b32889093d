"""What a mode lacks of what a scenario asks for: the reason to skip that part, in place of a verdict on the proxy.

Owns ``lacking`` for a probe, ``lacking_of_step`` for the expectations of a step, and ``refuse`` for what a whole
scenario needs. Mode userspace lacks most: kube-proxy stopped adding to it long before 1.26 removed it. A proxy accepts
settings that it does not read in its mode: they are no reason to skip, and ``ignored_settings`` lists them for a
warning.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from proxylab.addresses import Family, IPAddress, Protocol, Transport
from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.cluster.objects import EndpointSlice, KubeObject, Service, TrafficPolicy
from proxylab.engines.engine_names import mode_of, read_engine
from proxylab.errors import CapabilityError
from proxylab.plan.assembly import Assembly
from proxylab.plan.endpoints import Endpoints
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.change import EngineAction
from proxylab.scenario.expect import ConntrackExpect, Expect, Preserved
from proxylab.scenario.model import Scenario
from proxylab.scenario.network import Network, PodNetwork
from proxylab.scenario.nodes import Daemon, Node
from proxylab.scenario.probes import Probe, ServiceTarget, Stream
from proxylab.scenario.steps import Step, StreamExpect
from proxylab.scenario.words import TERMINATING_MODES, Frontend, Manner, Mode, Outcome

_ANSWERS = {
    "coredns": "questions about names alone; write via: dnsName",
    "nginx": "HTTP requests alone; write via: ingress",
}
_SERVICES_CHAIN = "KUBE-SERVICES"
_REFUSALS = frozenset({Outcome.REJECTED, Outcome.DROPPED, Outcome.UNTRANSLATED})

_BY_IPTABLES: Final = frozenset((Mode.IPTABLES,))
_BY_MASQUERADING_MODES: Final = frozenset((Mode.IPTABLES, Mode.IPVS))
_READ_BY: Final = {
    ("localhost_node_ports", "iptables.localhostNodePorts"): _BY_IPTABLES,
    ("masquerade_all", "iptables.masqueradeAll"): _BY_MASQUERADING_MODES,
    ("masquerade_bit", "iptables.masqueradeBit"): _BY_MASQUERADING_MODES,
    ("nftables", "nftables"): frozenset((Mode.NFTABLES,)),
    ("ipvs", "ipvs"): frozenset((Mode.IPVS,)),
    ("udp_idle_timeout", "udpIdleTimeout"): frozenset((Mode.USERSPACE,)),
    ("node_port_addresses", "nodePortAddresses"): frozenset(Mode) - {Mode.USERSPACE},
    ("node_port_primary", "nodePortAddresses"): frozenset(Mode) - {Mode.USERSPACE},
}
"""The modes that read a field, by its name and its key."""

_DEFAULT_CONFIGURATION: Final = ProxyConfiguration()


def refuse(engine: str, scenario: Scenario) -> None:
    """Refuse a scenario whose steps or nodes need what the engine lacks in its mode, or in one that a step gives it.

    Raises:
        CapabilityError: naming what it lacks.
    """
    changes = [action.mode for step in scenario.steps for action in step.change.engines.values() if action.mode]
    mode = next((each for each in (mode_of(engine), *changes) if each in TERMINATING_MODES), "")
    if not mode:
        return
    lacks = {
        "with health-check node ports, by which load balancers choose nodes": [
            step for step in scenario.steps if step.until is not None and step.until.balancers
        ],
        "whose connections outlive the proxy, which a step waits for": [
            step
            for step in scenario.steps
            if any(action is EngineAction.KILL for action in step.change.engines.values())
            and step.until is not None
            and step.until.backends
        ],
        "that leaves ports of Services to daemons of the node": [
            daemon for node in scenario.nodes for daemon in node.daemons if _is_held(daemon, node, scenario.services)
        ],
        "that removes the rules of another mode from its node": [
            node for node in scenario.nodes if _SERVICES_CHAIN in node.leftovers.iptables + node.leftovers.ip6tables
        ],
        "that removes its rules when another mode takes its place": changes if read_engine(engine).is_upstream else [],
    }
    for lack, found in lacks.items():
        if found:
            raise CapabilityError(f"a mode of the proxy {lack}", f"choose another engine than one in mode {mode}")


def _is_held(daemon: Daemon, node: Node, services: Sequence[Service]) -> bool:
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


def refuse_dialogue(modes: Collection[str]) -> None:
    """Refuse a dialogue of crafted segments where a proxy may end connections. Raises ``CapabilityError``."""
    for mode in TERMINATING_MODES.intersection(modes):
        lack = "a mode of the proxy that forwards packets: crafted segments open no connection to a program"
        raise CapabilityError(lack, f"choose another engine than one in mode {mode}")


def refuse_server(mode: str, scenario: Scenario, server: IPAddress) -> None:
    """Refuse a query to a server's cluster IP of a family that the proxy does not serve. Raises ``CapabilityError``."""
    network = scenario.network
    if mode in TERMINATING_MODES and any(server in each for each in network.service_cidrs):
        family = Family.of(server)
        if family is not network.families[0]:
            lack = f"a mode of the proxy that serves {family}: {_one_family(mode, network)}"
            raise CapabilityError(lack, f"choose another engine than one in mode {mode}")


def lacking(mode: str, assembly: Assembly, probe: Probe) -> str:
    """Why a proxy of that mode cannot show what the probe expects, as a clause; empty where it can.

    ``mode`` is the one in which the proxies began. A step may have changed it.
    """
    resolved = assembly.resolved(probe)
    if reason := _no_answer(assembly, resolved):
        return reason
    mode = _mode_on_the_way(mode, assembly, probe, assembly.scenario.steps_before(probe))
    if mode == Mode.IPVS:
        return _lack_of_ipvs(assembly, probe, resolved)
    if mode not in TERMINATING_MODES:
        return ""
    services = assembly.timeline[assembly.scenario.steps_before(probe)].services
    own = probe.source.port if probe.source.name in assembly.nodes else None
    if own is not None and own in {port.node_port for service in services for port in service.ports}:
        return f"mode {mode} keeps other programs of a node off its node ports, and the probe leaves from port {own}"
    service = _service_of(assembly, probe, resolved)
    if service is None:
        return _kept(mode, assembly, probe, resolved)
    if service.headless:  # its name leads past the proxy, but the query for the name does not
        network = assembly.scenario.network
        return "" if Family.of(resolved.destination) is network.families[0] else _one_family(mode, network)
    return next(_lacks(mode, assembly, probe, resolved, service), "")


def _lack_of_ipvs(assembly: Assembly, probe: Probe, resolved: ResolvedProbe) -> str:
    """The one thing that mode ipvs lacks.

    A node's program reaches a Service by a route to the node itself, whose MTU is large. IPVS then refuses to fragment
    its datagram (``ensure_mtu_is_adequate``, net/netfilter/ipvs/ip_vs_xmit.c), and the program must send it again.
    """
    large = resolved.protocol is Transport.UDP and probe.send.payload > resolved.sender.mtu
    if large and probe.send.manner is Manner.CONNECT and probe.source.name in assembly.nodes:
        return "in mode ipvs a node's program gets EMSGSIZE for its first datagram above the MTU"
    return ""


def modes_after(mode: str, scenario: Scenario, made: int) -> Mapping[str, str]:
    """The mode of each node's proxy after that many steps, where all began in ``mode``."""
    modes = {node.name: mode for node in scenario.nodes}
    for step in scenario.steps[:made]:
        modes |= {node: action.mode for node, action in step.change.engines.items() if action.mode}
    return modes


def _mode_on_the_way(mode: str, assembly: Assembly, sent: Probe | Stream, made: int) -> str:
    """The mode of the proxy that a probe or stream meets first: its sender's node's, or the one at which it enters."""
    modes, name = modes_after(mode, assembly.scenario, made), sent.source.name
    home = next((pod.node for pod in assembly.plan.pods if pod.name == name), name)
    entry = sent.target.node if home not in modes and isinstance(sent.target, ServiceTarget) else home
    if entry is not None and entry in modes:
        return modes[entry]
    return next((each for each in modes.values() if each in TERMINATING_MODES), mode)


def _no_answer(assembly: Assembly, resolved: ResolvedProbe) -> str:
    """Why a real program in a pod does not answer the probe's packets, as a clause; empty where none gets them."""
    if resolved.question is not None or resolved.request is not None or resolved.protocol is Transport.ICMP:
        return ""
    dialled = {(each.address, each.port) for each in resolved.endpoints}
    by_packet = (resolved.protocol, resolved.manner) == (Transport.TCP, Manner.PACKET)
    for placed in assembly.plan.pods:
        if placed.commands and by_packet:
            continue  # the pod's kernel answers a SYN, whatever runs there
        for each in assembly.plan.namespace(placed.namespace).listeners:
            if each.program and each.name == placed.name and dialled & {(one, each.port) for one in placed.addresses}:
                if placed.commands:
                    return f"{each.program} in pod {each.name} is not the lab's own program; write as: packet, over TCP"
                return f"{each.program} in pod {each.name} answers {_ANSWERS[each.program]}"
    return ""


def _service_of(assembly: Assembly, probe: Probe, resolved: ResolvedProbe) -> Service | None:
    """The Service that a probe dials, in whatever way it names it."""
    named = resolved.service_port.partition(":")[0]
    if isinstance(probe.target, ServiceTarget):
        named = f"{probe.target.namespace}/{probe.target.service}"
    services = assembly.timeline[assembly.scenario.steps_before(probe)].services
    return next((each for each in services if f"{each.namespace}/{each.name}" == named), None)


def _lacks(mode: str, assembly: Assembly, probe: Probe, resolved: ResolvedProbe, service: Service) -> Iterator[str]:
    if resolved.protocol is Transport.TCP and probe.send.manner is Manner.PACKET and _serves_tcp(service):
        yield (
            f"mode {mode} ends connections, and a single crafted SYN opens none; write send: {{as: connect}}, or "
            f"{{as: either}} for packets in the modes that forward"
        )
    yield from _of_packets(mode, assembly, probe, resolved, service)
    yield from _of_service(mode, assembly, probe, service)
    yield from _of_expectations(mode, probe.expect, resolved, service)
    yield from _of_endpoints(mode, assembly.timeline[assembly.scenario.steps_before(probe)].objects, service)


def _kept(mode: str, assembly: Assembly, probe: Probe, resolved: ResolvedProbe) -> str:
    """Why the proxy still serves a port that a Service had before a step, as a clause; empty where it does not."""
    for cluster in assembly.timeline[: assembly.scenario.steps_before(probe)]:
        for service in cluster.services:
            other = _of_other_family(assembly, service)
            addressed = resolved.destination in (*service.cluster_ips, *service.external_ips)
            if other is not None and addressed and _has_port(service, resolved):
                name = f"{service.namespace}/{service.name}"
                return f"mode {mode} never removes the rules of {name}: iptables refuses to delete one for {other}"
    return ""


def _has_port(service: Service, resolved: ResolvedProbe) -> bool:
    return any((each.port, Transport(each.protocol)) == (resolved.port, resolved.protocol) for each in service.ports)


def _of_other_family(assembly: Assembly, service: Service) -> IPAddress | None:
    """An address of a Service that iptables refuses, since it is none of the family that the proxy serves."""
    first = assembly.scenario.network.families[0]
    balanced = (each.ip for each in service.load_balancer_ingress if each.ip is not None)
    return next((each for each in (*service.external_ips, *balanced) if Family.of(each) is not first), None)


def _serves_tcp(service: Service) -> bool:
    return any(port.protocol is Protocol.TCP for port in service.ports)


def lacking_of_step(mode: str, assembly: Assembly, step: Step) -> Mapping[str, str]:
    """What a proxy of that mode cannot show of a step's expectations: a clause for each, by its name in verdicts.

    The name of a stream alone stands for all that is expected of the stream.
    """
    return dict(_lacks_of_step(mode, assembly, step))


def _lacks_of_step(mode: str, assembly: Assembly, step: Step) -> Iterator[tuple[str, str]]:
    made = assembly.scenario.steps_before(step)
    for stream, resolved in zip(assembly.scenario.streams, assembly.streams, strict=True):
        # A step begins with a packet just before its change.
        met = (_mode_on_the_way(mode, assembly, stream, number) for number in (made, made - 1))
        services = (_service_at(assembly, number, stream, resolved) for number in (made, made - 1))
        ending = next((each for each in met if each in TERMINATING_MODES), None)
        if ending is not None and (service := next(filter(None, services), None)) is not None:
            expect = step.expect.streams.get(stream.name)
            yield from _lacks_of_stream(ending, assembly, stream, resolved, service, expect)
    modes = modes_after(mode, assembly.scenario, made)
    for present in TERMINATING_MODES.intersection(modes.values()):
        if _names_endpoints(assembly, step.expect.conntrack):
            yield "conntrack", _no_entry(present)
        if any(modes[metric.node] == present for metric in step.expect.metrics or ()):
            yield "metrics", f"mode {present} exports no metric of what its rules do"


def _service_at(assembly: Assembly, made: int, stream: Stream, resolved: ResolvedProbe) -> Service | None:
    """The Service that a stream dials after that many steps."""
    services = assembly.timeline[made].services
    nodes = [address for name in assembly.nodes for address in assembly.addresses[name]]
    dialled = resolved.destination, resolved.port, resolved.protocol
    due = Endpoints(services, (), nodes).due(stream.target, stream.send.protocol, dialled)
    named = due.service_port.partition(":")[0]
    return next((each for each in services if f"{each.namespace}/{each.name}" == named), None)


def _lacks_of_stream(
    mode: str,
    assembly: Assembly,
    stream: Stream,
    resolved: ResolvedProbe,
    service: Service,
    expect: StreamExpect | None,
) -> Iterator[tuple[str, str]]:
    for reason in _of_packets(mode, assembly, stream, resolved, service):
        yield stream.name, reason
    for reason in _of_service(mode, assembly, stream, service):
        yield stream.name, reason
    if expect is not None and isinstance(expect.source, Preserved):
        yield f"{stream.name}.source", _no_client(mode)
    if expect is not None and expect.rejected is not None and 0 not in expect.rejected:
        yield f"{stream.name}.rejected", _no_rule(mode, Outcome.REJECTED)


def _names_endpoints(assembly: Assembly, expect: ConntrackExpect | None) -> bool:
    pods = {pod.name for pod in assembly.plan.pods}
    wanted = (expect.some, expect.none) if expect is not None else ()
    return any(each is not None and each.reply_from in pods for each in wanted)


def _one_family(mode: str, network: Network) -> str:
    return f"mode {mode} serves one family, and this cluster's first is {network.families[0]}"


def _no_client(mode: str) -> str:
    return f"mode {mode} never preserves the client's address: its process opens the connection to the pod"


def _no_entry(mode: str) -> str:
    return f"mode {mode} leaves no entry that leads to an endpoint: its process opens the connection to the pod"


def _no_rule(mode: str, outcome: Outcome) -> str:
    return f"mode {mode} has no rule that lets a flow be {outcome}: its process accepts every connection"


def _of_packets(
    mode: str, assembly: Assembly, probe: Probe | Stream, resolved: ResolvedProbe, service: Service
) -> Iterator[str]:
    """What the probe or stream sends, and from where."""
    network = assembly.scenario.network
    if resolved.request is not None and isinstance(probe, Probe) and "outcome" in probe.expect.positions:
        yield f"mode {mode} ends the connection before the controller does, and the lab follows it through one of them"
    if resolved.protocol is Transport.SCTP:
        yield f"mode {mode} has no SCTP"
    if Family.of(resolved.destination) is not network.families[0]:
        yield _one_family(mode, network)
    elif network.families == (Family.IPV6, Family.IPV4):
        # The node's address is that of its IPv4 default route, if it has one (ResolveBindAddress in apimachinery).
        yield f"mode {mode} takes the node's IPv4 address for its rules, and so serves no IPv6 beside IPv4"
    if network.pod_network is PodNetwork.PTP_UNNUMBERED and any(
        probe.source.name == pod.name for pod in assembly.plan.pods
    ):
        yield f"mode {mode} redirects to an address of the device by which a packet came, and ptp-unnumbered has none"
    leaves_alone = isinstance(probe, Probe) and probe.expect.outcome is Outcome.UNTRANSLATED
    elsewhere = resolved.destination not in assembly.addresses[probe.source.name]
    from_node = probe.source.name in assembly.nodes and not leaves_alone
    if from_node and elsewhere and resolved.destination in service.external_ips:
        yield f"mode {mode} leads a node's own packets to external IPs only where the node has the address"


def _of_service(mode: str, assembly: Assembly, probe: Probe | Stream, service: Service) -> Iterator[str]:
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
    # It writes address by address, node ports last, and stops at the first one that iptables refuses (openPortal in
    # pkg/proxy/userspace/proxier.go).
    other, first = _of_other_family(assembly, service), assembly.scenario.network.families[0]
    if from_outside and other is not None:
        yield f"mode {mode} serves no frontend of {name} behind {other}, which is no {first} address"


def _of_expectations(mode: str, expect: Expect, resolved: ResolvedProbe, service: Service) -> Iterator[str]:
    """What only a proxy that forwards can fulfil."""
    if expect.conntrack is not None:
        yield _no_entry(mode)
    if isinstance(expect.source, Preserved):
        yield _no_client(mode)
    discards = expect.outcome is Outcome.DROPPED and resolved.protocol is Transport.UDP
    # The rules for external IPs are the only ones that leave some packets to the Service alone.
    passes = expect.outcome is Outcome.UNTRANSLATED and resolved.destination in service.external_ips
    if expect.outcome in _REFUSALS and not (discards or passes):
        yield _no_rule(mode, expect.outcome)


def _of_endpoints(mode: str, objects: Sequence[KubeObject], service: Service) -> Iterator[str]:
    """What the slices of a Service ask for beyond ready endpoints, which is all that Endpoints can say."""
    for each in objects:
        if isinstance(each, EndpointSlice) and (each.namespace, each.service) == (service.namespace, service.name):
            if any(endpoint.for_zones or endpoint.for_nodes for endpoint in each.endpoints):
                yield f"mode {mode} has no topology hints"
            if any(endpoint.terminating for endpoint in each.endpoints):
                yield f"mode {mode} does not use terminating endpoints"


def ignored_settings(mode: str, configuration: ProxyConfiguration | None) -> Iterator[str]:
    """The keys with another value than the default that no proxy of the mode reads."""
    for (name, key), modes in _READ_BY.items() if configuration is not None else ():
        if mode not in modes and getattr(configuration, name) != getattr(_DEFAULT_CONFIGURATION, name):
            yield key
