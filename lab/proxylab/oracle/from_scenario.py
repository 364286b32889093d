"""Asks the oracle about the probes of a scenario: at which moment, with which questions, and which are beyond it."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from itertools import chain

from msgspec import Struct

from proxylab.addresses import Family
from proxylab.cluster.configuration import Mode, ProxyConfiguration
from proxylab.cluster.objects import EndpointSlice
from proxylab.oracle.answers import FlowAnswer, FlowQuestion
from proxylab.oracle.flows import MOST_STEPS, Oracle
from proxylab.oracle.health import health_check
from proxylab.oracle.moment import Moment
from proxylab.oracle.names import NameAnswer, resolve_name
from proxylab.oracle.setting import ProxySetting
from proxylab.plan.assembly import Assembly
from proxylab.plan.balance import Followed, follow, followed_route, left_out, pool_routes
from proxylab.plan.device_names import ROUTER
from proxylab.plan.dialling import dialled_ports
from proxylab.plan.host_ports import host_ports
from proxylab.plan.resolved import Question, ResolvedProbe
from proxylab.plan.sysctls import OF_THE_KERNEL
from proxylab.scenario.model import Scenario
from proxylab.scenario.node_engines import EngineAction, EngineWords, NodeEngine
from proxylab.scenario.probes import Probe, ServiceTarget
from proxylab.scenario.steps import Step
from proxylab.scenario.versions import Version, read_version
from proxylab.scenario.words import Frontend


def moment_of(assembly: Assembly, made: int, mode: Mode, version: Version) -> Moment:
    """The moment of a scenario after that many steps; proxies are of that mode and version unless it says otherwise."""
    cluster = assembly.timeline[made]
    plan = assembly.plan_after(made)
    scenario, namespaces = assembly.scenario, {pod.name: pod.namespace for pod in plan.pods}
    nodes: Mapping[str, None] = dict.fromkeys(node.name for node in scenario.nodes)
    setting = ProxySetting(mode=mode, version=version, configuration=scenario.proxy or ProxyConfiguration())
    settings: dict[str, ProxySetting] = {}
    for node, said in _said_of_nodes(scenario, made):
        before, words = settings.get(node, setting), EngineWords.read(said.engine)
        settings[node] = ProxySetting(
            mode=words.mode if words else before.mode,
            version=read_version(words.version) if words and words.version else before.version,
            configuration=said.settings or before.configuration,
        )
    at = partial(
        Moment,
        services=cluster.services,
        slices=tuple(each for each in cluster.objects if isinstance(each, EndpointSlice)),
        nodes=cluster.nodes.values(),
        setting=setting,
        settings=settings,
        pod_networks=scenario.network.pod_cidrs,
        service_networks=(*scenario.network.service_cidrs, *scenario.network.further_service_cidrs),
        gone={namespaces[name] for name in cluster.gone if name in namespaces} - nodes.keys(),
        host_ports=host_ports(plan, cluster.pods.values(), cluster.nodes.values()),
    )
    excluded = left_out(plan.balancers, cluster.nodes.values())
    followed = follow(plan.balancers, cluster.services, excluded)
    unbalanced = at(plan=plan) if followed else None
    healthy = {each.address: _healthy(unbalanced, each) for each in followed if unbalanced is not None}
    checked = (followed_route(each, healthy[each.address]) for each in followed if each.has_route)
    routes = (*pool_routes(plan.balancers, excluded), *checked)
    if not routes:
        return at(plan=plan)
    narrowed = [each for each in plan.balancers if not each.announced_by and not excluded.isdisjoint(each.nodes)]
    return at(
        plan=plan.with_routes(ROUTER, routes),
        balanced={each.address for each in followed},
        narrowed=tuple(network for each in narrowed for network in each.pool),
        dialled=dialled_ports(
            plan.balancers, cluster.services, excluded, lambda address, node: node in healthy.get(address, {node})
        ),
    )


def _said_of_nodes(scenario: Scenario, made: int) -> Iterator[tuple[str, NodeEngine]]:
    """What a scenario says of the engines of nodes, at its beginning and in that many steps, in this order."""
    yield from scenario.engines.items()
    for step in scenario.steps[:made]:
        yield from ((node, change.becomes) for node, change in step.change.engines.items() if change.begins)


def _healthy(moment: Moment, followed: Followed) -> set[str]:
    """The nodes that a load balancer finds healthy."""
    checks = {name: health_check(moment, name, own, followed.port) for name, own in followed.nodes.items()}
    return {name for name, check in checks.items() if check is not None and check.answer.status == HTTPStatus.OK}


def question_of(resolved: ResolvedProbe) -> FlowQuestion:
    """The question of a resolved probe's first flow."""
    sender = resolved.sender
    return FlowQuestion(
        sender=sender.namespace,
        source=sender.address,
        destination=resolved.destination,
        port=resolved.port,
        protocol=resolved.protocol,
        policy_route=resolved.policy_route,
        frame_mac=sender.frame_mac,
        path=resolved.path,
    )


class AskedProbe(Struct, frozen=True, kw_only=True):
    """What the oracle says about a probe.

    ``name`` is the answer to the DNS question that precedes the flow of a probe that dials a name. ``flows`` are one
    for each address that it may dial then, with the probe as it is resolved to that address.
    """

    name: NameAnswer | None = None
    flows: tuple[tuple[ResolvedProbe, FlowAnswer], ...] = ()

    @property
    def outside(self) -> str:
        """Why the oracle does not say what must happen; empty if it does."""
        if not self.flows:
            return "the name gives no address that a probe could dial"
        return next((answer.outside for _, answer in self.flows if answer.outside), "")


def outside_reach(assembly: Assembly, probe: Probe, version: Version) -> str:
    """What decides about a probe besides objects, network and proxy at one moment; empty if nothing does."""
    return next(chain(_of_packets(assembly, probe), _deciding(assembly, probe, version)), "")


def _of_packets(assembly: Assembly, probe: Probe) -> Iterator[str]:
    """What decides about the packets that the probe sends."""
    if probe.send.ttl is not None and probe.send.ttl <= MOST_STEPS:
        yield "the time to live of the packets decides how far they come"
    if probe.send.payload and _has_mtus(assembly.scenario):
        yield "the packets may be above an MTU of the network"


def _has_mtus(scenario: Scenario) -> bool:
    """Whether some link or route of the network has another MTU than Ethernet's."""
    routes = (route for node in scenario.nodes for route in node.routes)
    return any((scenario.network.mtu, *(each.mtu for each in routes), *(each.mtu for each in scenario.pods)))


def _deciding(assembly: Assembly, probe: Probe, version: Version) -> Iterator[str]:
    """What decides about the nodes that they meet, and the ways between them."""
    scenario, target, number = assembly.scenario, probe.target, assembly.scenario.steps_before(probe)
    if isinstance(target, ServiceTarget) and target.via is Frontend.INGRESS:
        yield "an Ingress controller answers"
    if scenario.requires.version is not None and version not in scenario.requires.version:
        yield "the scenario is about other versions of the proxy"
    if scenario.failures:
        yield "the proxy refuses to start with this configuration"
    yield from _of_rules_and_tables(assembly, assembly.resolved(probe), scenario.steps[:number])
    yield from _changing(assembly, probe, number)


def _changing(assembly: Assembly, probe: Probe, number: int) -> Iterator[str]:
    """What of the first steps decides, of which it is that many."""
    scenario = assembly.scenario
    changes = [change for step in scenario.steps[:number] for change in step.change.engines.items()]
    if not all(change.begins or change.action is EngineAction.RESUME for change in dict(changes).values()):
        yield "a step stops, pauses or flushes a proxy, and no later one starts it anew"
    of_nodes = (each for step in scenario.steps[:number] for each in step.change.nodes.items())
    if any({node: each.rule_loads.fails for node, each in of_nodes if each.rule_loads is not None}.values()):
        yield "a step lets loads of rules fail on a node"
    words = (EngineWords.read(said.engine) for _, said in _said_of_nodes(scenario, number))
    if any(each is not None and each.proxy and not each.version for each in words):
        yield "the scenario names the proxy of a node without its version"
    if assembly.timeline[number].links != assembly.timeline[0].links:
        yield "a step cuts a link or changes it"
    if assembly.timeline[0].nodes.keys() - assembly.timeline[number].nodes.keys():
        yield "a step deletes a Node object, whose proxy may go on with the rules of before"
    dialled, unheard = assembly.resolved(probe).destination, assembly.timeline[number].unheard
    if any(dialled in pool for each in assembly.plan.balancers if each.name in unheard for pool in each.pool):
        yield "neighbours may still know the node that announced the address before"


def _of_rules_and_tables(assembly: Assembly, resolved: ResolvedProbe, made: Iterable[Step]) -> Iterator[str]:
    """What an author puts beside the proxies' rules: rules of the probe's family, connections, and their limit.

    Of connections of the probe's protocol those decide that the sender's packets may belong to, and those of nodes:
    these hold source ports that masquerading could choose.
    """
    nodes = [assembly.plan.namespace(name) for name in resolved.nodes]
    tools = {"nft", "iptables" if resolved.destination.version == 4 else "ip6tables"}
    if any(leftover.tool in tools for node in nodes for leftover in node.leftovers):
        yield "the author gives nodes rules of other programs"
    concerned = {each.interface.ip for node in nodes for each in node.addresses}
    concerned |= {resolved.sender.address, *resolved.sender.others}
    tracked = (each for node in nodes for each in node.conntrack if each.protocol.value == resolved.protocol.value)
    if any(connection.source.address in concerned for connection in tracked):
        yield "the author gives nodes connections that they track already"
    sysctls = [change.sysctls for step in made for change in step.change.nodes.values()]
    if any(OF_THE_KERNEL.keys() & each.keys() for each in sysctls):
        yield "a step sets the limit of connection tracking"


def ask(assembly: Assembly, probe: Probe, moment: Moment, oracle: Oracle) -> AskedProbe:
    """What the oracle says about a probe, at the moment when the lab sends it."""
    resolved = assembly.resolved(probe)
    if resolved.question is None:
        return AskedProbe(flows=((resolved, oracle.answer(question_of(resolved))),))
    answer = _resolved_name(moment, resolved.question)
    chosen = resolved.question.address
    addresses = answer.addresses if chosen is None else answer.addresses & {chosen}
    # Packets of a pod to itself cross no device, so a probe prefers other addresses.
    addresses = addresses - set(resolved.question.own) or addresses
    dialled = [assembly.with_address(probe, address)[0] for address in sorted(addresses, key=int)]
    return AskedProbe(name=answer, flows=tuple((each, oracle.answer(question_of(each))) for each in dialled))


def _resolved_name(moment: Moment, question: Question) -> NameAnswer:
    """What the name of a Service gives in the first family of the question for which it gives anything."""
    namespace, _, name = question.service.partition("/")
    service = moment.services[namespace, name]
    answers = [resolve_name(moment, service, Family(family)) for family in question.families]
    return next((each for each in answers if each.addresses), answers[0])
