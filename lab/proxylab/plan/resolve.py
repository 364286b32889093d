"""Resolve probes and streams: look up every name and every address."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache, partial
from ipaddress import ip_address, ip_network
from typing import Final, assert_never

from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress, Transport
from proxylab.cluster.http_routes import choose, routing
from proxylab.cluster.kube_dns import DNS_PORT
from proxylab.cluster.objects import EndpointSlice, Service, Unstructured
from proxylab.errors import ScenarioError
from proxylab.plan.device_names import ROUTER
from proxylab.plan.endpoints import Dialled, LabEndpoints, everywhere
from proxylab.plan.forwarding import UnreachableError, next_hop, route_to
from proxylab.plan.lookup import (
    find,
    frame_mac,
    namespace_of,
    own_address,
    own_addresses_of,
    request_of,
    through_ingress,
    with_role,
)
from proxylab.plan.model import Plan, PlannedNamespace, PodPlacement, Role
from proxylab.plan.name_servers import Questions
from proxylab.plan.node_ports import NodePortAddresses
from proxylab.plan.outages import Links
from proxylab.plan.resolved import (
    DEFAULT_TTL,
    STACK,
    Destination,
    HttpRequest,
    PolicyRoute,
    Question,
    Receiver,
    ResolvedProbe,
    Sender,
    Sentinel,
)
from proxylab.plan.sources import own_source
from proxylab.scenario.keys import RefusedError, refused
from proxylab.scenario.model import Scenario
from proxylab.scenario.network import NODES, UPLINK
from proxylab.scenario.probes import (
    STREAM_EVERY,
    AddressTarget,
    HostTarget,
    PodTarget,
    Probe,
    ServiceTarget,
    Source,
    Stream,
    Target,
)
from proxylab.scenario.targets import (
    find_service,
    frontend_addresses,
    host_port,
    pod_port,
    require_address,
    require_frontend,
    service_port,
)
from proxylab.scenario.words import Frontend, Manner, PodWay, Program

_Sent = Probe | Stream

_ETHERNET_MTU: Final = 1500
_NO_PORT: Final = 0
_NO_MAC: Final = "00:00:00:00:00:00"
_OF_NODE: Final = (Frontend.NODE_PORT, Frontend.HEALTH_CHECK_NODE_PORT)


def resolve_streams(
    scenario: Scenario, plan: Plan, services: Sequence[Service], serving: NodePortAddresses
) -> tuple[ResolvedProbe, ...]:
    """The scenario's streams, resolved, in order. Their targets are those when the lab begins.

    Raises:
        ScenarioError: a line for every stream that names something unknown.
    """
    resolver = _Resolver(scenario, plan, services, (), (), Links(), serving)
    return _resolved(resolver, scenario.streams, 0, "stream")


def resolve(
    scenario: Scenario,
    plan: Plan,
    services: Sequence[Service],
    slices: Iterable[EndpointSlice],
    *,
    first: int = 0,
    gone: Collection[str] = (),
    links: Links = Links(),  # noqa: B008 - frozen
    chain_hashes: frozenset[str] | None = None,
    kept: Sequence[Unstructured] | None = None,
    serving: NodePortAddresses | None = None,
) -> tuple[ResolvedProbe, ...]:
    """``scenario.probes``, resolved, in order.

    The Services have everything allocated, and the slices are those at the time of the probes. ``first`` is the number
    of the first probe, ``gone`` are deleted pods, which do not even answer sentinel packets, and ``links`` the cut
    links. ``chain_hashes`` are those of all Service ports until then, and ``kept`` the objects that the API only
    serves, such as Ingresses; ``None`` if they are unknown. ``serving`` is the scenario's, if the caller has it.
    Raises ``ScenarioError``.
    """
    slices = tuple(slices)
    resolver = _Resolver(scenario, plan, services, slices, gone, links, serving or NodePortAddresses(scenario, plan))
    found = _resolved(resolver, scenario.probes, first, "probe")
    names = {name for group in scenario.pods if group.program is Program.NGINX for name in group.pod_names}
    controllers = [pod for pod in plan.pods if pod.name in names]

    def whole(each: ResolvedProbe) -> ResolvedProbe:
        if each.request is None or kept is None:
            return replace(each, chain_hashes=chain_hashes)
        request = _with_endpoints(each.request, controllers, kept, services, slices)
        return replace(each, chain_hashes=chain_hashes, request=request)

    return tuple(map(whole, found))


def _with_endpoints(
    request: HttpRequest,
    controllers: Iterable[PodPlacement],
    kept: Iterable[Unstructured],
    services: Iterable[Service],
    slices: Sequence[EndpointSlice],
) -> HttpRequest:
    """The request with the endpoints that it may reach; none where no rule matches, or no endpoint is ready.

    The controller dials endpoints in the first family of its own pods (``cluster.http_routes`` reads the objects).
    ``kept`` are the objects that the API only serves, the oldest first, and ``controllers`` the pods with nginx.
    """
    versions = [pod.addresses[0].version for pod in controllers if pod.addresses]
    if not versions:
        return request
    servers = choose(routing(kept, services, slices, versions[:1]), request.host, request.path) or ()
    return replace(
        request, endpoints=tuple(Destination(address=ip_address(each.address), port=each.port) for each in servers)
    )


def _resolved(resolver: "_Resolver", asked: "Sequence[_Sent]", first: int, what: str) -> tuple[ResolvedProbe, ...]:
    resolved_probes: list[ResolvedProbe] = []
    problems: list[str] = []
    for number, each in enumerate(asked, first):
        try:
            resolved_probes.append(resolver.resolved(number, each))
        except (RefusedError, UnreachableError) as error:
            problems.append(f"{each.position}: {what} {each.name!r}: {error}")
    if problems:
        raise ScenarioError(problems)
    return tuple(resolved_probes)


class _Resolver:
    """The objects of one scenario, by name and by address."""

    def __init__(
        self,
        scenario: Scenario,
        plan: Plan,
        services: Sequence[Service],
        slices: Iterable[EndpointSlice],
        gone: Collection[str],
        links: Links,
        serving: NodePortAddresses,
    ) -> None:
        self._plan = plan
        self._gone = gone
        self._links = links
        self._families = scenario.network.families
        self._services = {(service.namespace, service.name): service for service in services}
        self._service_networks = (*scenario.network.service_cidrs, *scenario.network.further_service_cidrs)
        self._shared = [(each.network, each.nodes) for each in scenario.network.routed]
        for balancer in plan.balancers:
            entered = (balancer.announced_by,) if balancer.announced_by else tuple(balancer.nodes)
            self._shared += [(pool, entered) for pool in balancer.pool]
        self._is_balanced = bool(scenario.load_balancers)
        self._nodes = with_role(plan, Role.NODE)
        self._hosts = with_role(plan, Role.HOST)
        left = [each.text for node in self._nodes.values() for each in node.leftovers]
        self._leftovers = tuple(line.strip() for text in left for line in text.splitlines())
        slices = tuple(slices)
        self._behind = LabEndpoints(services, slices, serving.local, serving.surely_serves, serving.led)
        self._endpoints = frozenset(each.addresses[0] for slice_ in scenario.slices for each in slice_.endpoints)
        self._pods = {pod.name: pod for pod in plan.pods}
        self._questions = Questions(plan, services, self._families, slices, scenario.name_server.corefile)
        self._groups = {name: group for group in scenario.pods for name in group.pod_names}
        self._placements: dict[str, PlannedNamespace | PodPlacement] = {**self._pods, **self._hosts, **self._nodes}
        self._forwarders = tuple(pod.namespace for pod in plan.pods if pod.forwards)
        pods = [pod for pod in plan.pods if pod.namespace not in self._nodes and not pod.forwards]
        # What probes share is made once, since it has a part for every pod.
        self._everywhere = cache(partial(everywhere, pods, self._nodes.values(), self._hosts.values()))
        self._sentinels = cache(self._sentinels_of)
        self._machines = {each.name: each for each in plan.namespaces}
        self._next_hop = cache(partial(next_hop, plan))

    def resolved(self, number: int, probe: _Sent) -> ResolvedProbe:
        expect = probe.expect if isinstance(probe, Probe) else None
        named = expect is not None and expect.names_addresses
        request, probe = request_of(probe), through_ingress(probe, self._services.values(), self._groups.values())
        question = self._question(probe)
        if question is None:
            destination, port, protocol = self._dialled(probe)
        else:
            destination, port, protocol = Dialled(_resolver(question, probe), DNS_PORT, Transport.UDP)
        if probe.source.loopback and _is_of_node(probe.target):
            destination = Family.of(destination).loopback
        expected = self._behind.expected(probe.target, probe.send.protocol, Dialled(destination, port, protocol))
        sender, family = self._sender(probe, destination), Family.of(destination)
        echo = probe.send.protocol is Transport.ICMP
        return ResolvedProbe(
            number=number,
            name=probe.name,
            sender=sender,
            destination=destination,
            port=port,
            protocol=protocol,
            manner=Manner.PACKET if echo else probe.send.manner,
            flows=probe.send.flows_for(expect, names_pods=question is not None and question.headless),
            concurrency=probe.send.concurrency,
            payload=probe.send.payload,
            ttl=probe.send.ttl or DEFAULT_TTL,
            dscp=probe.send.dscp or 0,
            receivers=(*self._everywhere(family, protocol), *self._receivers(probe, family)),
            sentinels=self._sentinels(probe.source.name, self._entrances(probe, destination), family),
            nodes=tuple(self._nodes),
            watched=() if expect is None else self._watched(expect.at),
            policy_route=self._policy_route(probe, destination),
            every=(probe.send.every or STREAM_EVERY) if expect is None else 0,
            http=expect is not None and expect.http is not None,
            path=probe.target.path if isinstance(probe.target, AddressTarget) else "",
            request=request,
            tables=expect is not None and expect.conntrack is not None,
            addresses=self._plan.addresses_by_name if named else {},
            question=question,
            service_port=expected.service_port,
            endpoints=expected.endpoints,
            affinity_timeout=expected.affinity_timeout,
            or_dialled=expected.or_dialled,
            leftovers=self._leftovers,
            bridged=any(node.bridges for node in self._nodes.values()),
            forwarders=self._forwarders,
            translators=(*self._forwarders, *self._dialling(destination)),
        )

    def _dialling(self, destination: IPAddress) -> Iterable[str]:
        """The router, where a balancer dials node ports for packets to that address."""
        return with_role(self._plan, Role.ROUTER) if self._plan.dialler(destination) is not None else ()

    def _question(self, probe: _Sent) -> Question | None:
        target = probe.target
        if not isinstance(target, ServiceTarget) or target.via is not Frontend.DNS_NAME:
            return None
        service, group = find_service(self._services, target), self._groups.get(probe.source.name)
        home = group.namespace if group else None
        asker = self._pods.get(probe.source.name)
        question = self._questions.about(service, target, probe.send.protocol, home, self._plan.addresses_by_name)
        return replace(question, own=asker.addresses if asker else ())

    def _sender(self, probe: _Sent, destination: IPAddress) -> Sender:
        source = probe.source
        placement = find("from", source.name, self._placements)
        namespace = namespace_of(placement)
        if source.address is not None and source.address.version != destination.version:
            what = f"{source.address} cannot dial {destination}"
            raise refused(what, key="from.address", allowed="use one of the same IP family")
        if namespace in self._nodes:
            return self._stack_sender(probe, placement.name, namespace, destination)
        machine = self._machines[namespace]
        # A step to a gateway is looked up once for all destinations behind it: there may be thousands.
        gateway = None if machine.has(destination) else route_to(machine, destination).via
        hop = self._next_hop(namespace, gateway or destination)
        return Sender(
            name=placement.name,
            namespace=namespace,
            device=hop.out.device,
            address=source.address or own_address(placement, Family.of(destination)),
            mac=hop.out.mac,
            next_hop_mac=hop.into.mac,
            port=source.port,
            mtu=hop.out.mtu or _ETHERNET_MTU,
            others=self._others(source, Family.of(destination)),
            frame_mac=frame_mac(self._plan, (namespace, hop.out.device), probe.send.frame_to, self._placements),
        )

    def _others(self, source: Source, family: Family) -> tuple[IPAddress, ...]:
        """The further addresses of a host that sends from all of its addresses."""
        if not source.all_addresses:
            return ()
        own = own_addresses_of(self._hosts[source.name])
        return tuple(address for address in own if Family.of(address) is family)[1:]

    def _stack_sender(self, probe: _Sent, name: str, namespace: str, destination: IPAddress) -> Sender:
        source = probe.source
        if source.loopback:
            address = Family.of(destination).loopback
        elif destination.is_loopback:
            address = destination
        else:
            address = source.address or own_source(self._plan, namespace, destination)
        return Sender(
            name=name,
            namespace=namespace,
            device=STACK,
            address=address,
            mac=_NO_MAC,
            next_hop_mac=_NO_MAC,
            port=source.port,
            on_links=own_address(self._nodes[namespace], Family.IPV6) if address == Family.IPV6.loopback else None,
        )

    def _dialled(self, probe: _Sent) -> Dialled:
        asked, target = probe.send.protocol, probe.target
        match target:
            case ServiceTarget():
                return self._frontend(probe, target)
            case PodTarget(via=PodWay.HOST_PORT):
                return self._by_host_port(target, asked)
            case PodTarget():
                pod = find("to.pod", target.pod, self._pods)
                address = own_address(pod, target.family or self._families[0])
                if asked is Transport.ICMP:
                    return Dialled(address, _NO_PORT, asked)
                group = self._groups.get(pod.name)
                return Dialled(address, *pod_port(pod.name, group.ports if group else (), target.port, asked))
            case HostTarget():
                host = find("to.host", target.host, self._hosts)
                address = own_address(host, target.family or self._families[0])
                return Dialled(address, target.port or _NO_PORT, asked or Transport.TCP)
            case AddressTarget():
                return Dialled(target.address, target.port or _NO_PORT, asked or Transport.TCP)
            case _:
                assert_never(target)

    def _by_host_port(self, target: PodTarget, asked: Transport | None) -> Dialled:
        """The address and port of its node that lead to a pod's port."""
        pod = find("to.pod", target.pod, self._pods)
        group = self._groups.get(pod.name)
        port = host_port(pod.name, group.ports if group else (), target, asked)
        family = target.family or (Family.of(port.host_ip) if port.host_ip else self._families[0])
        address = own_address(self._nodes[pod.node], family)
        if port.host_ip is not None and not port.host_ip.is_unspecified:
            address = port.host_ip
        return Dialled(address, port.host_port or _NO_PORT, asked or Transport(port.protocol))

    def _frontend(self, probe: _Sent, target: ServiceTarget) -> Dialled:
        service = find_service(self._services, target)
        require_frontend(service, target.via, balanced=self._is_balanced)
        if target.via is Frontend.HEALTH_CHECK_NODE_PORT:
            return self._health(probe, target, service)
        asked = probe.send.protocol
        if asked is Transport.ICMP:
            return Dialled(self._chosen(target, service, frontend_addresses(service, target.via)), _NO_PORT, asked)
        port = service_port(service, target.port, asked)
        number = port.port
        match target.via:
            case Frontend.NODE_PORT:
                node = self._entrance(probe) if target.node is None else find("to.node", target.node, self._nodes)
                addresses: tuple[IPAddress, ...] = own_addresses_of(node) if port.node_port else ()
                number = port.node_port
            case _:
                addresses = frontend_addresses(service, target.via)
        return Dialled(self._chosen(target, service, addresses), number, asked or Transport(port.protocol))

    def _health(self, probe: _Sent, target: ServiceTarget, service: Service) -> Dialled:
        node = self._entrance(probe) if target.node is None else find("to.node", target.node, self._nodes)
        addresses = own_addresses_of(node) if service.health_check_node_port else ()
        return Dialled(self._chosen(target, service, addresses), service.health_check_node_port, Transport.TCP)

    def _watched(self, at: str | None) -> tuple[str, ...]:
        """The namespace of the pod or host where the author expects flows to end, if any."""
        placement = self._placements.get((at or "").partition("/")[0])
        return () if placement is None or namespace_of(placement) in self._nodes else (namespace_of(placement),)

    def _chosen(self, target: ServiceTarget, service: Service, addresses: Sequence[IPAddress]) -> IPAddress:
        """The address that the probe names, or the first one of the Service's first family that the lab has."""
        require_address(service, target, addresses)
        if target.address is not None:
            return target.address
        families = self._families if target.family is None else (target.family,)
        for family in service.ip_families or self._families:
            for address in addresses:
                if family in families and Family.of(address) is family:
                    return address
        what = f"Service {service.namespace}/{service.name} has no {' or '.join(families)} {target.via}"
        raise refused(what, key="to.via", allowed="dial a frontend that it has")

    def _receivers(self, probe: _Sent, family: Family) -> Iterator[Receiver]:
        """The receivers that depend on the target."""
        if probe.send.protocol is Transport.ICMP:
            return
        target = probe.target
        if isinstance(target, ServiceTarget) and target.via is Frontend.HEALTH_CHECK_NODE_PORT:
            port = self._services[target.namespace, target.service].health_check_node_port
            for node in self._nodes.values():
                address = own_address(node, family)
                yield Receiver(name=node.name, namespace=node.name, device=STACK, address=address, ports=(port,))
        for host in self._hosts.values():
            dialled = isinstance(target, HostTarget) and target.host == host.name
            for address in [own_address(host, family)] if dialled else self._serving(host, family):
                yield Receiver(name=host.name, namespace=host.name, device=UPLINK, address=address)

    def _serving(self, host: PlannedNamespace, family: Family) -> list[IPAddress]:
        """The addresses of a host that are endpoints in the author's slices."""
        own = (address for address in own_addresses_of(host) if Family.of(address) is family)
        return [address for address in own if address in self._endpoints]

    def _sentinels_of(self, sender: str, entrances: tuple[str, ...], family: Family) -> tuple[Sentinel, ...]:
        """Sentinels at the nodes that a sender's packets may enter, at every pod, and at hosts that are endpoints.

        No sentinel is in the sender's own namespace, at a deleted pod, or behind a cut link.
        """
        hosts = [each for each in self._hosts.values() if self._serving(each, family)]
        pods = [pod for pod in self._pods.values() if pod.name not in self._gone]
        home = namespace_of(find("from", sender, self._placements))
        placements: list[PlannedNamespace | PodPlacement] = [*map(self._nodes.__getitem__, entrances), *pods, *hosts]
        return tuple(
            Sentinel(name=placement.name, address=own_address(placement, family))
            for placement in placements
            if namespace_of(placement) != home and not self._links.part(self._plan, sender, placement.name)
        )

    def _entrances(self, probe: _Sent, destination: IPAddress) -> tuple[str, ...]:
        """The node that the sender's packets enter, or all nodes over which the router spreads their flows."""
        return self._sharing(probe, destination) or (self._entrance(probe).name,)

    def _sharing(self, probe: _Sent, destination: IPAddress) -> tuple[str, ...]:
        """The nodes over which the router spreads a host's flows, unless the probe names one of them.

        Raises ``RefusedError`` where another node than the named one answers for the address.
        """
        if probe.source.name not in self._hosts:
            return ()
        if isinstance(probe.target, ServiceTarget) and probe.target.node is not None:
            if announcer := self._plan.announcer(destination):
                what = f"packets for {destination} enter at {announcer}, which announces it"
                raise refused(what, key="to.node", allowed="leave it out")
            if dialler := self._plan.dialler(destination):
                what = f"packets for {destination} enter at the node whose node port {dialler.name} dials"
                raise refused(what, key="to.node", allowed="leave it out")
            return ()
        return next((nodes for network, nodes in self._shared if destination in network), ())

    def _entrance(self, probe: _Sent) -> PlannedNamespace:
        sender = probe.source.name
        if sender in self._nodes:
            return self._nodes[sender]
        if probe.send.frame_to in self._nodes:
            return self._nodes[probe.send.frame_to]
        if sender in self._pods:
            return self._nodes[self._pods[sender].node]
        named = probe.target.node if isinstance(probe.target, ServiceTarget) else None
        return next(iter(self._nodes.values())) if named is None else find("to.node", named, self._nodes)

    def _policy_route(self, probe: _Sent, destination: IPAddress) -> PolicyRoute | None:
        """The router's route for a Service's address that no node has and that the router does not spread already."""
        if probe.source.name not in self._hosts or self._sharing(probe, destination):
            return None
        network = next((each for each in self._service_networks if destination in each), None)
        if network is None and isinstance(probe.target, ServiceTarget) and probe.target.via not in _OF_NODE:
            network = ip_network(destination)  # an external or a load-balancer IP
        if network is None:
            return None
        via = own_address(self._entrance(probe), Family.of(destination))
        return PolicyRoute(namespace=ROUTER, destination=network, device=NODES, via=via)


def _is_of_node(target: Target) -> bool:
    """Whether the dialled address is a node's, so that the node may dial its loopback address instead."""
    if isinstance(target, PodTarget):
        return target.via is PodWay.HOST_PORT
    return isinstance(target, ServiceTarget) and target.via in _OF_NODE


def _resolver(question: Question, probe: _Sent) -> IPAddress:
    """The address of kube-dns to query: the first, or one of the family that the author chose."""
    family = None if isinstance(probe.target, AddressTarget) else probe.target.family
    if probe.source.address is not None:
        family = Family.of(probe.source.address)
    fitting = (each for each in question.resolvers if family in (None, Family.of(each)))
    return next(fitting, question.resolvers[0])
