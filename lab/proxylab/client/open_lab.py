"""An open lab, as pytest and the verbs of the command line use it to send probes.

``OpenLab`` makes the steps in order, sends the requests for each probe and step, and passes the answers to the judge.
``proxylab.client.session`` builds labs, and ``proxylab.client.standing_lab`` opens those that other clients have built.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from proxylab.addresses import IPAddress
from proxylab.client.connection import Connection
from proxylab.client.edit import Edit, assemble_within, edit
from proxylab.client.lab_process import LabProcess
from proxylab.client.lookups import DialledProbe, Lookups
from proxylab.client.node_engines import engines_by_step
from proxylab.client.requests import (
    advance_to,
    changing,
    circumstances_of,
    record_of,
    single_packet,
    trace_alike,
    with_state_after,
)
from proxylab.client.together import NumberedProbe, batches
from proxylab.cluster.objects import KubeObject
from proxylab.engines.engine_names import mode_of
from proxylab.engines.lacking import lacking, lacking_of_step, refuse_dialogue
from proxylab.engines.modes import MODES
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import CapabilityError, InternalError, LabError
from proxylab.evidence.engine_progress import ProxyRecord
from proxylab.evidence.evidence import Capture, Evidence
from proxylab.evidence.lookups import Lookup
from proxylab.evidence.segments import DialogueRecord
from proxylab.plan.assembly import Assembly, assemble, prepare_dialogue
from proxylab.plan.cluster_timeline import ClusterMoment
from proxylab.plan.dialled_service import DialledService, dialled_service
from proxylab.plan.dialogue import Turn
from proxylab.plan.model import Plan
from proxylab.plan.outages import Absences
from proxylab.plan.present import at_present, streams_at_present, with_probe
from proxylab.plan.resolved import Query, ResolvedProbe
from proxylab.protocol.messages import (
    AnswerOf,
    Built,
    CollectedState,
    CollectState,
    Conclude,
    Converse,
    Dump,
    Execute,
    Executed,
    Inspect,
    LookAround,
    LookUp,
    PresentLab,
    Request,
    SendProbe,
    SendTogether,
)
from proxylab.protocol.standing_labs import LabRecord, ListObjects
from proxylab.report.bundle import NodeState, bundle
from proxylab.report.step_bundle import step_bundle
from proxylab.scenario.model import Scenario
from proxylab.scenario.probes import Probe
from proxylab.scenario.steps import Step
from proxylab.timing import Deadline
from proxylab.verdict.dns import has_no_address
from proxylab.verdict.expectations.metrics import exported_names
from proxylab.verdict.judge import judge, judge_step, skip
from proxylab.verdict.model import UNRESOLVED, Judgement, ProbeVerdict, StepVerdict
from proxylab.verdict.shared_counts import evidence_of_each

BUILD_SECONDS: Final = 300.0
"""More than the engines may take (``proxylab.engines.fleet``), whose errors say more."""
_PROBE_SECONDS: Final = 300.0
_LOOKS: Final = 3
"""How often a probe is sent in a cluster that changes meanwhile, before its verdict is inconclusive."""


class OpenLab:
    """A lab, until the session opens the next one or closes; or a detached one (``proxylab.client.standing_lab``).

    Attributes:
        connection: to its lab process, for feeds (``proxylab.protocol.standing_labs.Feed``).
        engine: the engine in every node.
        made: how many steps of the scenario have been made.
    """

    def __init__(
        self,
        connection: Connection,
        assembly: Assembly,
        built: Built,
        engine: EngineChoice,
        seed: int,
        source: str = "",
        made: int = 0,
    ) -> None:
        self.connection: Final = connection
        self._assembly = assembly
        self.built = built
        self.engine: Final = engine
        self._seed = seed
        self._source = source
        self._collected: tuple[Probe, CollectedState] | None = None
        self._given_back = False
        self.made = made
        self._concluded = False
        self._sent: set[str] = set()
        self._failed: LabError | None = None
        self._looks = False  # whether each probe is judged by the lab as it is then
        self._now: Assembly | None = None  # with the probe that was sent last, if it was judged so
        self._unforetold: list[ClusterMoment] = []  # the cluster after each step that the scenario does not foretell

    @property
    def scenario(self) -> Scenario:
        """The scenario it was built for."""
        return self._assembly.scenario

    @property
    def assembly(self) -> Assembly:
        """The scenario with everything that follows from it."""
        return self._assembly

    @property
    def addresses(self) -> Mapping[str, tuple[IPAddress, ...]]:
        """The addresses of every node, pod and host."""
        return self._assembly.addresses

    @property
    def is_open(self) -> bool:
        """Whether it still takes requests from here."""
        return not self._given_back and not self.connection.closed

    def is_past(self, judged: Probe | Step) -> bool:
        """Whether the lab has gone beyond this probe or step, which then needs a new lab."""
        before = self.scenario.steps_before(judged)
        return self.made > before or (isinstance(judged, Step) and self.made == before and self._concluded)

    def step(self) -> None:
        """Make the next step of the scenario, and wait as it says.

        Raises:
            CapabilityError: the machine lacks something that the change needs.
            EngineError: an engine did not start, or what the step waits for did not come. Every later step raises it
                again.
        """
        if self._failed is not None:
            raise self._failed
        step = self.scenario.steps[self.made]
        seconds = BUILD_SECONDS + (self.engine.sync_seconds or 0)
        waits = 3 if step.change.kubectl else 1  # kubectl, then the controllers, then the engines
        seconds += ((step.until.within or 0) * waits + (step.until.elapsed or 0)) / 1000 if step.until else 0.0
        seconds += sum(stage.delay / 1000 + 1 for each in step.change.workloads for stage in each.stages)
        try:
            lacks = lacking_of_step(mode_of(self.engine.name), self._assembly, step)
            before, after = engines_by_step(self.engine, self.scenario)[self.made : self.made + 2]
            others = {node: engine for node, engine in after.items() if engine != before[node]}
            self._ask(advance_to(self._assembly, self.made, lacks, others), seconds)
        except LabError as error:
            self._failed = error
            raise
        self.made += 1
        self._concluded, self._now = False, None
        if self.made > self.scenario.foretold:
            self._looks = True
            self._unforetold.append(self._at_present(self._look()).timeline[-1])

    def conclude(self, step: Step) -> StepVerdict:
        """Make the steps up to this one, end it, and judge what was seen in it.

        Raises:
            CapabilityError: a step cannot be made on this machine.
            EngineError: a step failed (see ``step``).
            InternalError: the lab is gone, past the step, or at fault.
        """
        self._come_to(step)
        self._concluded = True
        concluding = Conclude(step.expect.conntrack is not None, exported_names(step.expect.metrics))
        evidence = self._ask(concluding, _PROBE_SECONDS)
        number, assembly = self.made, self._assembly
        streams, sources = assembly.streams_by_step[number - 1], assembly.stream_sources[number - 1]
        plan = assembly.plan_after(number)
        if number > self.scenario.foretold:
            now = self._at_present(self._look())
            plan = now.plan_after(0)
            streams, sources = streams_at_present(assembly, now, [*self._unforetold, now.timeline[-1]], step)
        lacks = lacking_of_step(mode_of(self.engine.name), assembly, step)
        verdict = judge_step(step, number, streams, sources, assembly.nodes, plan.addresses_by_name, evidence, lacks)
        return replace(verdict, plan=plan, options=self._options)

    @property
    def _options(self) -> tuple[str, ...]:
        return options_of(self.engine, self._seed)

    def _come_to(self, judged: Probe | Step) -> None:
        """Make the earlier steps, without judging them."""
        if self.is_past(judged):
            raise InternalError(f"{self.scenario.file}: its lab is past {judged.name!r}; open the scenario again")
        while self.made < self.scenario.steps_before(judged):
            self._leave_traces()
            self.step()

    def _leave_traces(self) -> None:
        """Send the unsent probes of the current step: the next step may build on their connection tracking entries."""
        step = self.scenario.steps[self.made - 1] if self.made else None
        for probe in self.scenario.probes if step is None else step.probes:
            if probe.name in self._sent:
                continue
            if self._looks:
                self.judged(probe)
            elif not self._lacking(probe):
                self._send(probe, self.lookups.resolved(probe))

    def add(self, *probes: Probe) -> None:
        """Add probes that are not the scenario's own. Raises ``ScenarioError``."""
        self._assembly = self._assembly.with_probes(probes, self.made)

    def look_around(self) -> None:
        """Take up what people have made by the lab's real control plane, if it has one: pods, Services, endpoints.

        From then on the lab has no steps to come, and probes are added to what there is.
        """
        if self.built.has_kubernetes:
            self._assembly = self._at_present(self._look())
            self.made, self._looks = 0, True

    def _look(self) -> PresentLab:
        return self._ask(LookAround(), _PROBE_SECONDS)

    def _at_present(self, found: PresentLab) -> Assembly:
        return at_present(self._assembly, self.made, found.plan, found.objects)

    def replace_scenario(self, scenario: Scenario) -> None:
        """Replace the scenario by another one with the same network, and the same steps as far as they are made.

        Raises:
            ScenarioError: it names an object that the lab does not have, or needs pods that the lab has no room for.
        """
        self._assembly = assemble_within(self._assembly.plan, scenario)

    def edit(self, wanted: Scenario) -> Edit:
        """The changes that the edited scenario would make. Raises ``ScenarioError`` where it cannot be laid out."""
        return edit(self._assembly, self.made, wanted)

    def bring_to(self, found: Edit) -> None:
        """Make the change: it is then the edited scenario's lab, with no step made. Raises what ``step`` raises."""
        self._assembly = assemble(found.scenario)
        self.made = 0
        if found.changes:
            self._ask(found.advance, BUILD_SECONDS + (self.engine.sync_seconds or 0))

    def converse(self, there: Probe, server: str, turns: Sequence[Turn]) -> DialogueRecord:
        """Hold a dialogue by crafted TCP segments, with a pod or outside host that answers as ``server``.

        Raises:
            ScenarioError: a side is no pod with a namespace of its own and no outside host, or does not exist.
            CapabilityError: the kernel cannot be kept out of it, or the proxy ends connections.
        """
        refuse_dialogue(self._modes.values())
        dialogue = prepare_dialogue(self._assembly, there, server, turns)
        return self._ask(Converse(dialogue), _PROBE_SECONDS)

    def probe(self, probe: Probe, *, trace: bool = False) -> ProbeVerdict:
        """Make the earlier steps, send one probe of the scenario, and judge what was seen.

        After a probe that did not pass, and with ``trace`` after every probe, one more packet is sent and followed
        through the rules. Without ``trace``, a machine that cannot trace only shortens the explanation.

        Raises:
            CapabilityError: ``trace`` is set, and the machine cannot trace; or a step cannot be made on it.
            EngineError: a step before it failed (see ``step``).
            InternalError: the lab is gone, past the probe, or at fault.
        """
        verdict = self.judged(probe)
        if verdict.overall is Judgement.SKIP:
            return verdict
        if verdict.overall in UNRESOLVED:
            collected = self._collect_state()  # before the traced packet replaces the probe's frames
            self._collected = verdict.probe, collected
            verdict = replace(verdict, plan=with_state_after(self._plan, collected))
        elif not trace:
            return verdict
        try:
            return replace(verdict, traced=trace_alike(verdict, partial(self._trace, verdict.resolved)))
        except CapabilityError:
            if trace:
                raise
            return verdict

    def judged(self, probe: Probe) -> ProbeVerdict:
        """``probe`` without a trace.

        Where people and controllers may change the cluster, the verdict holds only if nothing has changed meanwhile.
        """
        self._come_to(probe)
        if not self._looks:
            return self._judged(probe)
        found = self._look()
        for _ in range(_LOOKS):
            self._now, sent = with_probe(self._at_present(found), probe)
            verdict = self._judged(sent)
            before, found = found, self._look()
            if found.is_alike(before):
                return verdict
        return changing(verdict)

    def _judged(self, probe: Probe) -> ProbeVerdict:
        if reason := self._lacking(probe):
            return self.left_out(probe, reason)
        dialled = self.lookups.resolved(probe)
        return self._verdict(probe, dialled.resolved, dialled.source, self._send(probe, dialled))

    @property
    def _current(self) -> tuple[Assembly, int]:
        """The assembly that the last probe was judged by, and how many of its steps were made."""
        return (self._assembly, self.made) if self._now is None else (self._now, 0)

    @property
    def _plan(self) -> Plan:
        assembly, made = self._current
        return assembly.plan_after(made)

    def judged_together(self, probes: Sequence[Probe]) -> Iterator[tuple[int, ProbeVerdict]]:
        """``judged`` for many probes of one moment: each verdict with its number among them, in any order.

        The lab sends the next ones while one is judged, and sends those together whose evidence can be told apart
        (``proxylab.client.together``). Unless all of these pass, each is sent by itself.

        They dial no names. Every verdict must be taken before the lab is asked for something else.
        """
        if self._looks:
            yield from enumerate(map(self.judged, probes))
            return
        for number, probe in enumerate(probes):
            self._come_to(probe)
            if reason := self._lacking(probe):
                yield number, self.left_out(probe, reason)
        asked = (
            NumberedProbe(number, probe, self._assembly.resolved(probe))
            for number, probe in enumerate(probes)
            if not self._lacking(probe)
        )
        counts_divide = all(MODES[mode].counts_divide for mode in self._modes.values())
        alone: list[NumberedProbe] = []
        yield from self._judged_in_batches(batches(asked, counts_divide=counts_divide), alone)
        by_itself = (SendProbe(_without_names(each.resolved)) for each in alone)
        for each, evidence in zip(alone, self._ask_ahead(by_itself), strict=True):
            self._sent.add(each.probe.name)
            yield each.number, self._verdict_on(each, evidence)

    def _judged_in_batches(
        self, found: Iterable[Sequence[NumberedProbe]], alone: list[NumberedProbe]
    ) -> Iterator[tuple[int, ProbeVerdict]]:
        """The verdicts of batches in which all pass; ``alone`` gets the probes of others, and batches of one."""
        sent = deque[Sequence[NumberedProbe]]()

        def wanted() -> Iterator[SendTogether]:
            for batch in found:
                if len(batch) == 1:
                    alone.extend(batch)
                else:
                    sent.append(batch)
                    yield SendTogether(tuple(_without_names(each.resolved) for each in batch))

        for answer in self._ask_ahead(wanted()):
            batch = sent.popleft()
            evidence = evidence_of_each(answer, [each.resolved for each in batch]) or ()
            verdicts = list(map(self._verdict_on, batch, evidence))
            if not verdicts or any(each.overall is not Judgement.PASS for each in verdicts):
                alone.extend(batch)  # what is wrong with one may have made up for what another one lacks
                continue
            for each, verdict in zip(batch, verdicts, strict=True):
                self._sent.add(each.probe.name)
                yield each.number, verdict

    def _verdict_on(self, asked: NumberedProbe, evidence: Evidence) -> ProbeVerdict:
        return self._verdict(asked.probe, asked.resolved, self._assembly.expected_source(asked.probe), evidence)

    def _verdict(
        self, probe: Probe, resolved: ResolvedProbe, source: IPAddress | None, evidence: Evidence
    ) -> ProbeVerdict:
        verdict = judge(probe, resolved, source, evidence)
        service = self.service_of(resolved) if verdict.overall in UNRESOLVED else None
        return replace(verdict, plan=self._plan, options=self._options, service=service)

    def service_of(self, resolved: ResolvedProbe) -> DialledService | None:
        """The Service that a probe dials, as the API server has it now; ``None`` where it dials none."""
        assembly, made = self._current
        return dialled_service(assembly.timeline[made], resolved)

    def left_out(self, probe: Probe, reason: str) -> ProbeVerdict:
        """The verdict on a probe that the lab does not send, for that reason."""
        assembly = self._current[0]
        if self._now is not None:
            assembly, probe = with_probe(self._now, probe)
        return replace(skip(probe, assembly.resolved(probe), reason), options=self._options)

    @property
    def engines(self) -> Mapping[str, EngineChoice]:
        """The engine of each node as the lab is now."""
        return engines_by_step(self.engine, self.scenario)[self.made]

    @property
    def _modes(self) -> Mapping[str, str]:
        return self.scenario.modes_after(mode_of(self.engine.name), self.made)

    def _lacking(self, probe: Probe) -> str:
        """What the engine's mode lacks of what the probe asks for."""
        return lacking(mode_of(self.engine.name), self._current[0], probe)

    def trace(self, probe: Probe) -> tuple[ResolvedProbe, Evidence]:
        """Trace one more packet of a probe; ``steps`` of the evidence are the rules that it met.

        Raises:
            CapabilityError: the kernel cannot trace in a network namespace.
        """
        return self._trace(self.lookups.resolved(probe).resolved)

    def current_plan(self) -> Plan:
        """The lab's plan, with the sysctls that its nodes have now."""
        return with_state_after(self._assembly.plan_after(self.made), self._collect_state())

    @property
    def lookups(self) -> Lookups:
        """DNS look-ups in the lab as it is now."""
        return Lookups(*self._current, self._look_up)

    def _look_up(self, netns_name: str, query: Query) -> Lookup:
        return self._ask(LookUp(netns_name, query), _PROBE_SECONDS)

    def _send(self, probe: Probe, dialled: DialledProbe) -> Evidence:
        """Send the probe, if it has an address."""
        self._sent.add(probe.name)
        if has_no_address(dialled.resolved, dialled.lookups):
            return Evidence(sent=0, lookups=dialled.lookups)
        evidence = self._ask(SendProbe(_without_names(dialled.resolved)), _PROBE_SECONDS)
        return replace(evidence, lookups=dialled.lookups)

    def _trace(self, resolved: ResolvedProbe) -> tuple[ResolvedProbe, Evidence]:
        single = single_packet(resolved, self._modes.values())
        return single, self._ask(SendProbe(_without_names(single), trace=True), _PROBE_SECONDS)

    def bundle(self, verdict: ProbeVerdict | StepVerdict) -> dict[str, bytes]:
        """The files of an evidence bundle (``proxylab.report.bundle``) for the probe or step that was judged last."""
        collected = self._state_after(verdict)
        circumstances = circumstances_of(self.engine, self.built, self._seed)
        assembly, made = self._current
        plan = with_state_after(self._plan, collected)
        nodes = {each.node: NodeState(each.rules, each.log) for each in collected.nodes}
        scenario = self._source.encode() or Path(self.scenario.file).read_bytes()
        if isinstance(verdict, StepVerdict):
            return step_bundle(verdict, circumstances=circumstances, plan=plan, nodes=nodes, scenario=scenario)
        cluster = assembly.timeline[made]
        return bundle(
            verdict,
            circumstances=circumstances,
            plan=plan,
            capture=collected.capture,
            nodes=nodes,
            scenario=scenario,
            absences=Absences(frozenset(cluster.gone), cluster.links),
        )

    def capture(self, verdict: ProbeVerdict | StepVerdict) -> Capture:
        """The frames of the probe that was judged last; for a step, those of the last probe before its end."""
        return self._state_after(verdict).capture

    def _state_after(self, verdict: ProbeVerdict | StepVerdict) -> CollectedState:
        if isinstance(verdict, ProbeVerdict) and self._collected and self._collected[0] is verdict.probe:
            return self._collected[1]
        return self._collect_state()

    def rules(self) -> dict[str, str]:
        """The rules of every node as the kernel has them, by its name."""
        return {each.name: self.rules_of(each.name) for each in self.scenario.nodes}

    def rules_of(self, node: str) -> str:
        """The rules of one node as the kernel has them, with counters."""
        return self._ask(Dump(node), _PROBE_SECONDS)

    def proxies(self) -> tuple[ProxyRecord, ...]:
        """The state of every node's engine."""
        return self._ask(Inspect(), _PROBE_SECONDS)

    def objects(self) -> tuple[KubeObject, ...]:
        """All objects that the API server shows, by kind, namespace and name."""
        return self._ask(ListObjects(), _PROBE_SECONDS).objects

    def _collect_state(self) -> CollectedState:
        return self._ask(CollectState(), _PROBE_SECONDS)

    def execute(self, netns_name: str, *argv: str) -> Executed:
        """Run a command in a node, pod or host of the lab and wait for its end."""
        request = Execute(netns_name, argv)
        return self._ask(request, request.seconds + 10)

    def record(self, name: str) -> LabRecord:
        """The record that other clients need to go on with it."""
        return record_of(name, self.scenario, self._source, self.engine, self._seed, self.built, self.made)

    def detach(self, name: str, seconds: float | None) -> None:
        """Open the lab to other clients under that name, for ``seconds``, or with ``None`` until the session ends.

        Raises:
            NameTakenError: a lab of that name is running.
            InternalError: its lab process has no control socket.
        """
        if not isinstance(self.connection, LabProcess):
            raise InternalError(f"the lab {name} is detached already")
        self.connection.detach(self.record(name), seconds)
        self._given_back = seconds is not None

    def close(self) -> None:
        """Give the lab back: no more requests from here. The lab process closes it once it has built the next one."""
        self._given_back = True

    def _ask(self, request: Request[AnswerOf], seconds: float) -> AnswerOf:
        self._raise_if_gone()
        return self.connection.request(request, Deadline.after(seconds))

    def _ask_ahead(self, requests: Iterable[Request[AnswerOf]]) -> Iterator[AnswerOf]:
        self._raise_if_gone()
        return self.connection.requests(requests, _PROBE_SECONDS)

    def _raise_if_gone(self) -> None:
        if self._given_back or self.connection.closed:
            raise InternalError(f"{self.scenario.file}: its lab is gone; open the scenario again")


def _without_names(resolved: ResolvedProbe) -> ResolvedProbe:
    """The probe as the lab process needs it: only the judge asks whose a chain is, and 5,000 Services have 25,000."""
    return replace(resolved, chain_hashes=None)


def options_of(engine: EngineChoice, seed: int) -> tuple[str, ...]:
    """The options of a run beyond the defaults, as its command line spells them."""
    return (*engine.options, *(("--seed", str(seed)) if seed else ()))
