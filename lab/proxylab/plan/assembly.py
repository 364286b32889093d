"""Compute everything that follows from a scenario before a run: plan, cluster objects, resolved probes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import IPAddress, Transport
from proxylab.cluster.chain_names import chain_hashes
from proxylab.cluster.configuration import Mode
from proxylab.cluster.kube_dns import DNS_PORT
from proxylab.cluster.objects import EndpointSlice, KubeObject, Service, Unstructured
from proxylab.errors import ScenarioError
from proxylab.plan.cluster_timeline import ClusterMoment, begin
from proxylab.plan.dialogue import MOST_TURNS, Dialogue, Turn
from proxylab.plan.expected_sources import ExpectedSources
from proxylab.plan.model import Plan
from proxylab.plan.name_servers import Questions, resolv_confs
from proxylab.plan.node_ports import NodePortAddresses
from proxylab.plan.refusals import refuse_neighbours
from proxylab.plan.resolve import resolve, resolve_streams
from proxylab.plan.resolved import Question, ResolvedProbe, Sentinel
from proxylab.plan.stream_ends import streams_by_step
from proxylab.plan.topology import draw
from proxylab.scenario.cases import cases
from proxylab.scenario.expect import Expect
from proxylab.scenario.keys import RefusedError
from proxylab.scenario.model import Scenario
from proxylab.scenario.probes import AddressTarget, Probe, Send, ServiceTarget, Source
from proxylab.scenario.words import Frontend, Outcome, Position

__all__ = ["Assembly", "LabLayout", "assemble", "assemble_in", "check_every_case", "lay_out", "prepare_dialogue"]

_FRONTENDS = ", ".join(frontend for frontend in Frontend if frontend is not Frontend.DNS_NAME)


class Assembly(Struct, frozen=True, kw_only=True, dict=True):
    """A scenario with everything that follows from it.

    ``timeline`` is the cluster when the lab begins, and after each step. ``resolved_probes`` and ``expected_sources``
    are in the order of all of the scenario's probes that it foretells, including those of its steps. ``streams`` are
    the resolved streams, and ``streams_by_step`` the same with their endpoints until the end of each step.
    ``stream_sources`` are, for each step, the source addresses that backends must see, by stream and by backend (see
    ``ExpectedSources.of_stream``).
    """

    scenario: Scenario
    plan: Plan
    timeline: tuple[ClusterMoment, ...]
    resolved_probes: tuple[ResolvedProbe, ...]
    expected_sources: tuple[IPAddress | None, ...]
    streams: tuple[ResolvedProbe, ...] = ()
    streams_by_step: tuple[tuple[ResolvedProbe, ...], ...] = ()
    stream_sources: tuple[Mapping[str, Mapping[str, IPAddress]], ...] = ()

    @property
    def objects(self) -> tuple[KubeObject, ...]:
        """The objects when the lab begins: nodes, pods, Services with everything allocated, and slices."""
        return self.timeline[0].objects

    @property
    def addresses(self) -> Mapping[str, tuple[IPAddress, ...]]:
        """The addresses of every node, pod and host."""
        return self.plan.addresses_by_name

    def plan_after(self, steps: int) -> Plan:
        """The plan as neighbours know it after that many steps: with nodes' addresses and announcers of then."""
        return self.timeline[steps].plan(self.plan)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes."""
        return tuple(node.name for node in self.scenario.nodes)

    def resolved(self, probe: Probe) -> ResolvedProbe:
        """One of the scenario's probes, resolved. Raises ``ScenarioError`` for one that it does not foretell."""
        number = self._number(probe)
        if number >= len(self.resolved_probes):
            what = "kubectl changes the cluster before it, so only its lab knows what it meets"
            raise ScenarioError([f"{probe.position}: {probe.name}: {what}; run it with `proxylab run`"])
        return self.resolved_probes[number]

    def expected_source(self, probe: Probe) -> IPAddress | None:
        """The one address that the probe's backends must see; ``None`` where it is the sender's or differs."""
        return self.expected_sources[self._number(probe)]

    def _number(self, probe: Probe) -> int:
        number = self._numbers.get(id(probe))
        return self.scenario.all_probes.index(probe) if number is None else number

    @cached_property
    def _numbers(self) -> dict[int, int]:
        """The number of each probe by its ``id``: a comparison with each one before it would take ever longer."""
        return {id(probe): number for number, probe in enumerate(self.scenario.all_probes)}

    @property
    def resolv_confs(self) -> Mapping[str, str]:
        """The /etc/resolv.conf of each pod's own network namespace."""
        return resolv_confs(self.scenario, self.plan, self.timeline[0].services)

    def with_address(self, probe: Probe, address: IPAddress) -> tuple[ResolvedProbe, IPAddress | None]:
        """A probe that dials a name, resolved to ``address``, with the source that backends must see.

        Raises:
            ScenarioError: the sender cannot dial it, or ``expect.source`` has no address of its family.
        """
        lookup = self.resolved(probe)
        if lookup.question is None:
            return lookup, self.expected_source(probe)
        cluster = self.timeline[self.scenario.steps_before(probe)]
        target = AddressTarget(address=address, port=lookup.question.port)
        send = replace(probe.send, protocol=lookup.question.protocol)
        dialling = replace(probe, target=target, send=send)
        now = replace(self.scenario, probes=(dialling,), dns=True, slices=tuple(cluster.slices.values()))
        (resolved,) = resolve(
            now,
            cluster.plan(self.plan),
            cluster.services,
            _slices(cluster),
            first=lookup.number,
            gone=cluster.gone,
            chain_hashes=lookup.chain_hashes,
            serving=NodePortAddresses(self.scenario, self.plan).after(cluster.moves),
        )
        sources = ExpectedSources(cluster.plan(self.plan))
        resolved, source = sources.of_probe(probe, resolved, cluster.services)
        sources.close()
        return replace(resolved, question=lookup.question), source

    def lookup(self, placement: str, name: str, steps: int = 0) -> tuple[ResolvedProbe, Question]:
        """How a program in a node, pod or host resolves a name after that many steps. Raises ``ScenarioError``.

        Returns:
            The resolved probe to the name server, and the question.
        """
        scenario, cluster = self.scenario, self.timeline[steps]
        home = next((each.namespace for each in scenario.pods if placement in each.pod_names), None)
        try:
            families, corefile = scenario.network.families, scenario.name_server.corefile
            questions = Questions(self.plan, cluster.services, families, _slices(cluster), corefile)
            question = questions.about_name(name, home)
        except RefusedError as error:
            raise ScenarioError([f"{scenario.file}: {placement} resolves {name}: {error}"]) from None
        at = Position(scenario.file, 1, 1)
        lookup = Probe(
            name=f"{placement} resolves {name}",
            source=Source(name=placement),
            target=AddressTarget(address=question.resolvers[0], port=DNS_PORT),
            send=Send(protocol=Transport.UDP),
            expect=Expect(outcome=Outcome.DELIVERED, position=at),
            position=at,
        )
        now = replace(scenario, probes=(lookup,))
        plan = cluster.plan(self.plan)
        (resolved,) = resolve(now, plan, cluster.services, _slices(cluster), gone=cluster.gone)
        return resolved, question

    def with_probes(self, probes: Sequence[Probe], made: int = 0) -> "Assembly":
        """The assembly with more probes, sent after that many steps, without those that it has already.

        Raises:
            ScenarioError: a probe names something unknown.
        """
        known = self.scenario.all_probes
        new = [probe for probe in probes if probe not in known]
        if not new:
            return self
        if made:
            steps = list(self.scenario.steps)
            steps[made - 1] = replace(steps[made - 1], probes=(*steps[made - 1].probes, *new))
            more = replace(self.scenario, steps=tuple(steps))
        else:
            more = replace(self.scenario, probes=(*self.scenario.probes, *new))
        if more.has_names and not self.scenario.has_names:
            via = f"{new[0].position}: to.via"
            raise ScenarioError([f"{via}: the lab has no name server; set dns: true in its scenario"])
        return assemble_in(more, self.plan, self.timeline)


class LabLayout(Struct, frozen=True, kw_only=True):
    """The part of an ``Assembly`` that needs no probe: the network and the cluster's objects."""

    scenario: Scenario
    plan: Plan
    services: tuple[Service, ...]
    objects: tuple[KubeObject, ...]


def lay_out(scenario: Scenario) -> LabLayout:
    """Lay a scenario's cluster out, without its probes. The same scenario always gives the same layout.

    Raises:
        ScenarioError: with a line for each request that the lab cannot meet.
    """
    cluster = begin(scenario)
    return LabLayout(scenario=scenario, plan=draw(scenario), services=cluster.services, objects=cluster.objects)


def assemble(scenario: Scenario) -> Assembly:
    """Lay a scenario out, with its probes. The same scenario always gives the same assembly.

    Raises:
        ScenarioError: with a line for each request that the lab cannot meet, and each unknown name.
    """
    return assemble_in(scenario, draw(scenario), tuple(_timeline(scenario)))


def assemble_in(scenario: Scenario, plan: Plan, timeline: Sequence[ClusterMoment]) -> Assembly:
    """The assembly of a scenario for a lab that has this plan, where the cluster has these moments.

    Raises:
        ScenarioError: with a line for each unknown name.
    """
    foretold = scenario.foretold
    asked = [scenario.probes, *(step.probes if at < foretold else () for at, step in enumerate(scenario.steps))]
    resolved_probes: list[tuple[ResolvedProbe, IPAddress | None]] = []
    sources = ExpectedSources(plan)
    hashes, serving = frozenset[str](), NodePortAddresses(scenario, plan)
    for cluster, probes in zip(timeline, asked, strict=True):
        objects = cluster.objects
        hashes = hashes.union(chain_hashes(objects))
        now = replace(scenario, probes=probes, slices=tuple(cluster.slices.values()))
        slices = [each for each in objects if isinstance(each, EndpointSlice)]
        there = cluster.plan(plan)
        refuse_neighbours(now, there, slices)
        found = resolve(
            now,
            there,
            cluster.services,
            slices,
            first=len(resolved_probes),
            gone=cluster.gone,
            links=cluster.links,
            chain_hashes=hashes,
            kept=[each for each in cluster.further.values() if isinstance(each, Unstructured)],
            serving=serving.after(cluster.moves),
        )
        now_expected = sources.after_steps(there)
        resolved_probes += (
            now_expected.of_probe(probe, each, cluster.services) for probe, each in zip(probes, found, strict=True)
        )
    streams = resolve_streams(scenario, plan, timeline[0].services, serving)
    of_streams = tuple(
        {
            each.name: sources.of_stream(step, each.name, each, cluster.services)
            for each in streams
            if each.name in step.expect.streams
        }
        for step, cluster in zip(scenario.steps, timeline[1:], strict=True)
    )
    sources.close()
    tracked = [connection for namespace in plan.namespaces for connection in namespace.conntrack]
    return Assembly(
        scenario=scenario,
        plan=plan,
        timeline=tuple(timeline),
        resolved_probes=tuple(each for each, _ in resolved_probes),
        expected_sources=tuple(source for _, source in resolved_probes),
        streams=streams,
        streams_by_step=streams_by_step(streams, timeline, scenario.steps, serving, tracked),
        stream_sources=of_streams,
    )


def check_every_case(scenarios: Iterable[Scenario]) -> None:
    """Assemble every case of the scenarios. Raises ``ScenarioError`` with each mistake once."""
    problems: dict[str, None] = {}
    for case in (each for scenario in scenarios for each in _different_cases(scenario)):
        try:
            assemble(case)
        except ScenarioError as error:
            problems |= dict.fromkeys(error.problems)
    if problems:
        raise ScenarioError(tuple(problems))


def _different_cases(scenario: Scenario) -> list[Scenario]:
    """The cases of a scenario in all modes, each once: most scenarios are the same in every mode."""
    found: list[Scenario] = []
    for mode in Mode:
        # A case without its mode stands for all modes where nothing else of it differs.
        of_mode = (replace(each, case=replace(each.case, mode="")) for each in cases(scenario, mode))
        found += [case for case in of_mode if case not in found]
    return found


def _slices(cluster: ClusterMoment) -> list[EndpointSlice]:
    return [each for each in cluster.objects if isinstance(each, EndpointSlice)]


def _timeline(scenario: Scenario) -> Iterator[ClusterMoment]:
    cluster = begin(scenario)
    yield cluster
    for step in scenario.steps:
        cluster = cluster.after(step)
        yield cluster


def prepare_dialogue(assembly: Assembly, there: Probe, server: str, turns: Sequence[Turn]) -> Dialogue:
    """Prepare a dialogue between a client (a pod, host or node) and a server (a pod or host).

    Both ends send crafted segments, so the lab keeps their kernels' own TCP out of the dialogue. A server therefore
    needs a network namespace of its own. ``there`` is a probe from the client to its target; the lab ignores its
    expectations. Raises ``ScenarioError``.
    """
    client, scenario = there.source.name, assembly.scenario
    nodes = {node.name for node in scenario.nodes}
    alone = {host.name for host in scenario.hosts}
    alone |= {pod.name for pod in assembly.plan.pods if pod.namespace not in nodes}
    problems = [
        f"{there.position}: dialogue: {name!r} is neither a pod with its own network namespace nor an outside host"
        for name, may_be in ((client, alone | nodes), (server, alone))
        if name not in may_be
    ]
    if not problems and client == server:
        problems.append(f"{there.position}: dialogue: {client!r} cannot talk to itself; name two ends")
    if isinstance(there.target, ServiceTarget) and there.target.via is Frontend.DNS_NAME:
        problems.append(f"{there.position}: dialogue: the address of a DNS name is unknown before; use {_FRONTENDS}")
    if not 0 < len(turns) <= MOST_TURNS:
        problems.append(f"{there.position}: dialogue: {len(turns)} turns; allowed: 1 to {MOST_TURNS}")
    if problems:
        raise ScenarioError(problems)
    bare = replace(scenario, steps=(), streams=(), dns=scenario.has_names)
    (forth,) = assemble(replace(bare, probes=(there,))).resolved_probes
    straight = AddressTarget(address=forth.sender.address, port=1)
    back = replace(there, name=f"{there.name}, and back", source=Source(name=server), target=straight)
    (home,) = assemble(replace(bare, probes=(back,))).resolved_probes
    sentinel = Sentinel(name=client, address=home.destination)
    if sentinel not in home.sentinels:
        home = replace(home, sentinels=(*home.sentinels, sentinel))
    return Dialogue(forth, home, tuple(turns))
