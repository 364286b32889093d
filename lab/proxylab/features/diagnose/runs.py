"""Diagnoses a Service in a standing lab: gathers what each stage needs, until a stage is broken.

``Round`` decides in which order the lab is queried and probed. The modules beside it judge. Nothing here prints, or
changes the lab.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Final

from proxylab.addresses import Family, IPAddress, Protocol, Transport
from proxylab.client.open_lab import OpenLab
from proxylab.cluster.configuration import TERMINATING_MODES, Mode, ProxyConfiguration
from proxylab.cluster.kube_dns import KUBE_DNS
from proxylab.cluster.objects import KubeObject, Service
from proxylab.engines.engine_names import mode_of
from proxylab.engines.modes import MODES
from proxylab.errors import ScenarioError
from proxylab.evidence.engine_progress import ProxyRecord
from proxylab.evidence.evidence import HttpReport
from proxylab.evidence.lookups import Lookup
from proxylab.evidence.words import listed
from proxylab.features.diagnose.endpoints_stage import Dial, judge_endpoints, ready_endpoints, without_backing
from proxylab.features.diagnose.engine_stage import judge_engines
from proxylab.features.diagnose.health_stage import Checked, expected_on, judge_health
from proxylab.features.diagnose.model import Diagnosis, Finding, Stage, nothing
from proxylab.features.diagnose.name_stage import judge_name, judge_name_server, missing_service, whole_name
from proxylab.features.diagnose.path_test_results import (
    PathTestResult,
    judge_hairpin,
    judge_masquerade,
    judge_translation,
)
from proxylab.features.diagnose.path_tests import (
    Dialler,
    DiallerKind,
    PathTest,
    Terms,
    askers,
    diallers,
    hairpin_tests,
    nodes_at,
    path_tests,
)
from proxylab.features.diagnose.rules_stages import (
    SOCKETS,
    Rules,
    judge_balancing,
    judge_entries,
    judge_programs,
    judge_targets,
    listening,
)
from proxylab.features.diagnose.subject import Backend, DiagnosedService
from proxylab.oracle.setting import ProxySetting
from proxylab.report.view import ProbeView
from proxylab.scenario.expect import Backend as ExpectedBackend
from proxylab.scenario.expect import Expect, HttpExpect
from proxylab.scenario.probes import MOST_FLOWS, AddressTarget, Probe, Send, ServiceTarget, Source
from proxylab.scenario.words import Frontend, Manner, Outcome, Position
from proxylab.statistics import flows_to_hit_all
from proxylab.verdict.model import Judgement, ProbeVerdict

_MOST_DIALS: Final = 32
_FEW_FLOWS: Final = 4
"""Where flows stick to an endpoint, a few are enough: no other endpoint is due."""


class Round:
    """The stages of one Service.

    ``sender`` is ``None`` for the likeliest one, ``node`` is ``None`` for all nodes.
    """

    def __init__(self, lab: OpenLab, namespace: str, name: str, sender: str | None, node: str | None) -> None:
        self._lab = lab
        self._namespace = namespace
        self._name = name
        self._sender = sender
        self._node = node

    def go(self) -> Diagnosis:
        """Examine one stage after the other, until one is broken or none is left."""
        found: list[Finding] = []
        for finding in self._stages():
            found.append(finding)
            if finding.stops:
                break
        engines = dict.fromkeys(each.engine for each in self._proxies if each.node in self._nodes)
        return Diagnosis.of(f"{self._namespace}/{self._name}", listed(list(engines)), tuple(found))

    def _stages(self) -> Iterator[Finding]:
        if self._service is None:
            yield missing_service(self._namespace, self._name, self._services)
            return
        subject = self._subject
        yield self._ask_for_name(subject)
        if subject.why_no_rules and not subject.service.headless:
            yield nothing(Stage.ENDPOINTS, subject.why_no_rules)
            return
        yield without_backing(subject, self._node, self._senders_node) or judge_endpoints(
            subject, tuple(self._dials(subject))
        )
        yield judge_engines([each for each in self._proxies if each.node in self._nodes])
        if subject.why_no_rules:
            yield nothing(Stage.ENTRY, subject.why_no_rules)
            return
        if self._ends_connections:
            yield judge_programs(subject, self._rules, self._listening, self._nodes)
            yield nothing(
                Stage.BALANCING, "the proxy's process chooses an endpoint for each connection, and no rule does"
            )
            yield from self._test_paths(subject)
            return
        yield judge_entries(subject, self._rules, self._nodes)
        yield judge_balancing(subject, self._rules, self._nodes)
        yield from self._test_paths(subject)

    def _test_paths(self, subject: DiagnosedService) -> Iterator[Finding]:
        finding = judge_targets(subject, self._rules, self._nodes)
        if finding is None and subject.service.key == KUBE_DNS:
            yield judge_name_server(subject, [(each.name, self._question(each.name)) for each in self._resolvers()])
            yield nothing(Stage.MASQUERADE, "the lab's own name server answers questions, and no probes")
            return
        chosen = path_tests(subject, self._terms, self._diallers_of_lab, self._nodes, self._sender)
        results = () if finding is not None else self._run_all(subject, chosen)
        yield finding or judge_translation(subject, results)
        if self._ends_connections:
            yield nothing(Stage.MASQUERADE, "the proxy's process opens connections from the node's own address")
        else:
            yield judge_masquerade(subject, self._rules, results, self._addresses)
        own = hairpin_tests(subject, self._terms, self._diallers_of_lab, self._nodes)
        yield judge_hairpin(subject, self._run_all(subject, own))
        yield judge_health(subject, tuple(self._health_checks(subject)))

    def _run_all(self, subject: DiagnosedService, chosen: Sequence[PathTest]) -> tuple[PathTestResult, ...]:
        """The path tests that this network allows: some senders cannot reach some frontends."""
        results = []
        for each in chosen:
            with suppress(ScenarioError):
                results.append(self._run(subject, each))
        return tuple(results)

    @cached_property
    def _proxies(self) -> tuple[ProxyRecord, ...]:
        return self._lab.proxies()

    @property
    def _modes(self) -> Mapping[str, str]:
        """The mode of each node's engine, which a step may have changed."""
        return {each.node: each.mode for each in self._proxies}

    @cached_property
    def _nodes(self) -> tuple[str, ...]:
        """The nodes to examine: not a machine that has yet to become one. Raises ``ScenarioError`` for such a one."""
        there = {each.node for each in self._proxies}
        chosen = [each.name for each in self._lab.scenario.nodes if self._node in (None, each.name)]
        if found := tuple(each for each in chosen if each in there):
            return found
        raise ScenarioError(
            [f"{', '.join(chosen)} is no node yet; make its Node object with kubectl, or name another one"]
        )

    @property
    def _ends_connections(self) -> bool:
        """Whether a proxy of an examined node ends connections. It serves the cluster's first family alone."""
        return any(self._modes[node] in TERMINATING_MODES for node in self._nodes)

    @cached_property
    def _listening(self) -> Mapping[str, frozenset[tuple[Protocol, int]]]:
        return {node: listening(self._lab.execute(node, "cat", *SOCKETS).stdout) for node in self._nodes}

    @cached_property
    def _terms(self) -> Mapping[str, Terms]:
        return {node: Terms.of(self._lab.scenario, mode) for node, mode in self._modes.items()}

    @cached_property
    def _objects(self) -> tuple[KubeObject, ...]:
        return self._lab.objects()

    @property
    def _services(self) -> list[Service]:
        return [each for each in self._objects if isinstance(each, Service)]

    @property
    def _service(self) -> Service | None:
        wanted = (self._namespace, self._name)
        return next((each for each in self._services if (each.namespace, each.name) == wanted), None)

    @cached_property
    def _subject(self) -> DiagnosedService:
        service = self._service
        if service is None:
            raise LookupError(self._name)
        scenario, engine = self._lab.scenario, self._lab.engine
        families = scenario.network.families[:1] if self._ends_connections else scenario.network.families
        setting = ProxySetting(
            mode=Mode(mode_of(engine.name)),
            version=engine.version,
            configuration=scenario.proxy or ProxyConfiguration(),
        )
        return DiagnosedService.of(service, self._objects, families, setting)

    @cached_property
    def _addresses(self) -> Mapping[str, tuple[IPAddress, ...]]:
        return self._lab.addresses

    @cached_property
    def _diallers_of_lab(self) -> tuple[Dialler, ...]:
        return diallers(self._subject, self._lab.scenario, self._addresses)

    @cached_property
    def _rules(self) -> Rules:
        families, found = self._lab.scenario.network.families, {}
        for node in self._nodes:
            mode = MODES[self._modes[node]]
            for family, text in mode.by_family(self._lab.rules_of(node), families).items():
                found[node, family] = mode.read(text)
        return found

    @property
    def _senders_node(self) -> str | None:
        """The node of the sending pod; ``None`` where the sender is no pod."""
        pods = (
            each.node for each in self._diallers_of_lab if each.name == self._sender and each.kind is DiallerKind.POD
        )
        return next(pods, None)

    def _resolver(self) -> str:
        """The pod or node that resolves names: the sender, if it is in the cluster, or the first pod, else a node."""
        if self._sender is not None and self._sender not in {host.name for host in self._lab.scenario.hosts}:
            return self._sender
        pods = [each.name for each in self._diallers_of_lab if each.kind is DiallerKind.POD]
        return (pods or [each.name for each in self._diallers_of_lab if each.kind is DiallerKind.NODE])[0]

    def _resolvers(self) -> Iterator[Dialler]:
        """A pod on every examined node, or the node itself where it has none."""
        for node in self._nodes:
            here = [each for each in self._diallers_of_lab if each.node == node]
            yield next((each for each in here if each.kind is DiallerKind.POD), here[-1])

    def _ask_for_name(self, subject: DiagnosedService) -> Finding:
        resolver = self._resolver()
        if not any(service.key == KUBE_DNS for service in self._services):
            return judge_name(subject, resolver, None)
        return judge_name(subject, resolver, self._lab.lookups.resolve(resolver, whole_name(subject.service)))

    def _question(self, netns_name: str, server: IPAddress | None = None) -> Lookup:
        return self._lab.lookups.query(netns_name, whole_name(self._subject.service).rstrip("."), "A", server)

    def _dials(self, subject: DiagnosedService) -> Iterator[Dial]:
        """Dial every endpoint by its own address, until one does not answer; dial that one from its own node, too."""
        found = list(subject.endpoints())
        protocols = {(each.endpoint.addresses[0], each.number): each.port.protocol for each in found}
        homes = {each.endpoint.addresses[0]: each.endpoint.node_name for each in found}
        for backend in ready_endpoints(subject)[:_MOST_DIALS]:
            senders = self._diallers(backend, homes[backend[0]])
            if subject.service.key == KUBE_DNS:
                lookup = self._question(senders[0], backend[0])
                yield Dial(backend=backend, sender=senders[0], answered=not lookup.error, why=f"{lookup.error}.")
                continue
            protocol, home = Transport(protocols[backend]), homes[backend[0]]
            sender, verdict = self._dial(senders, backend, protocol)
            answered = verdict.overall is Judgement.PASS
            at_home = None
            if not answered and home in self._all_nodes and home != sender:
                at_home = self._dial([home], backend, protocol)[1].overall is Judgement.PASS
            reason = "" if answered else _because(verdict)
            yield Dial(backend=backend, sender=sender, answered=answered, why=reason, at_home=at_home, node=home)
            if not answered:
                return

    @property
    def _all_nodes(self) -> Sequence[str]:
        return [each.name for each in self._lab.scenario.nodes]

    def _diallers(self, backend: Backend, home: str) -> list[str]:
        """The candidates for dialling an endpoint directly: the sender; or other pods, then nodes not its own."""
        chosen = [each for each in self._diallers_of_lab if self._sender in (None, each.name)]
        found = [
            each.name
            for each in sorted(chosen, key=lambda dialler: (dialler.kind is not DiallerKind.POD, dialler.backs))
            if backend[0] not in each.addresses
            and (each.kind, each.name) != (DiallerKind.NODE, home)
            and any(own.version == backend[0].version for own in each.addresses)
        ]
        return found or [home or self._nodes[0]]

    def _dial(self, senders: Sequence[str], backend: Backend, protocol: Transport) -> tuple[str, ProbeVerdict]:
        """Dial from the first sender that can reach the endpoint, and return that sender and the verdict.

        Raises:
            ScenarioError: none can.
        """
        address, port = backend
        target = AddressTarget(address=address, port=port)
        for sender in senders[:-1]:
            with suppress(ScenarioError):
                return sender, self._send(f"{sender} to {address}", sender, target, protocol, 1)
        return senders[-1], self._send(f"{senders[-1]} to {address}", senders[-1], target, protocol, 1)

    def _health_checks(self, subject: DiagnosedService) -> Iterator[Checked]:
        """The answer of each node in each family of the Service; empty for a Service without a health-check port."""
        if not subject.service.health_check_node_port:
            return
        for node, address in nodes_at(subject, self._terms, self._nodes):
            for sender in askers(self._diallers_of_lab, node, address):
                with suppress(ScenarioError):
                    yield self._check_health(subject, sender, node, address)
                    break

    def _check_health(self, subject: DiagnosedService, sender: str, node: str, address: IPAddress) -> Checked:
        expected = expected_on(subject, node, Family.of(address))
        wanted = HttpExpect(status=200 if expected else 503, local_endpoints=len(expected))
        target = ServiceTarget(
            service=subject.service.name,
            namespace=subject.service.namespace,
            via=Frontend.HEALTH_CHECK_NODE_PORT,
            node=node,
            address=address,
        )
        name = f"{sender} asks {address} on {node}"
        verdict = self._send(name, sender, target, Transport.TCP, 1, http=wanted)
        (response,) = verdict.evidence.http or (HttpReport(0, 0, error="timeout"),)
        return Checked(
            node=node,
            address=address,
            sender=sender,
            status=response.status,
            reported=response.local_endpoints,
            error=response.error,
            proven=verdict.overall is not Judgement.INCONCLUSIVE,
        )

    def _run(self, subject: DiagnosedService, path_test: PathTest) -> PathTestResult:
        service, expected = subject.service, path_test.expected
        flows = min(flows_to_hit_all(len(expected)), MOST_FLOWS) if service.affinity_timeout is None else _FEW_FLOWS
        frontend = path_test.frontend
        enters = path_test.node if path_test.dialler.kind is DiallerKind.HOST else None
        target = ServiceTarget(
            service=service.name,
            namespace=service.namespace,
            port=frontend.port.name or frontend.port.port,
            via=frontend.via,
            node=path_test.node if frontend.via is Frontend.NODE_PORT else enters,
            address=path_test.at or frontend.address,
        )
        protocol = Transport(frontend.port.protocol)
        names = [self._name_of(subject, each) for each in expected]
        backends = tuple(ExpectedBackend(name) for name in dict.fromkeys(names)) if all(names) else None
        verdict = self._send(str(path_test), path_test.dialler.name, target, protocol, flows, backends)
        return PathTestResult(path_test=path_test, verdict=verdict)

    def _name_of(self, subject: DiagnosedService, backend: Backend) -> str:
        """The name that observations give to an endpoint's pod; empty for an endpoint with a node's address."""
        if subject.is_of_node(backend[0]):
            return ""
        there = (each.endpoint for each in subject.endpoints() if each.endpoint.addresses[0] == backend[0])
        targets = (each.target for each in there if each.target)
        by_address = (name for name, own in self._addresses.items() if backend[0] in own)
        return next(targets, "") or next(by_address, "")

    def _send(
        self,
        name: str,
        sender: str,
        target: AddressTarget | ServiceTarget,
        protocol: Transport,
        flows: int,
        backends: tuple[ExpectedBackend, ...] | None = None,
        http: HttpExpect | None = None,
    ) -> ProbeVerdict:
        """The verdict on a probe, which is sent again if it is undecided: on a busy machine, a tap may miss a frame."""
        manner = Manner.CONNECT if http or self._ends_connections else Manner.PACKET
        for title in (name, f"{name}, again"):
            # The position is unique: a probe sent before some step is not sent again after it.
            position = Position(f"proxylab diagnose {self._name}", len(self._lab.scenario.all_probes) + 1, 1)
            probe = Probe(
                name=title,
                source=Source(name=sender),
                target=target,
                send=Send(protocol=protocol, manner=manner, flows=flows),
                expect=Expect(outcome=Outcome.DELIVERED, backends=backends, http=http, position=position),
                position=position,
            )
            self._lab.add(probe)
            verdict = self._lab.probe(probe)
            if verdict.overall is not Judgement.INCONCLUSIVE:
                break
        return verdict


def _because(verdict: ProbeVerdict) -> str:
    """Why a probe did not pass, as a sentence."""
    reasons = [reason for each in verdict.verdicts for reason in each.reasons]
    return ProbeView(verdict).cause or f"{'; '.join(reasons[:2])}."
