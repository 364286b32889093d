"""The checks of ``spec.streams`` and ``spec.steps`` against the scenario."""

from collections.abc import Sequence

from msgspec import Struct

from proxylab.scenario.changes import ClusterState
from proxylab.scenario.check_expect import check_conntrack, check_source
from proxylab.scenario.document import Location, Problems, listed, shown
from proxylab.scenario.flows import check_flow, check_probes
from proxylab.scenario.inventory import Inventory, Subject
from proxylab.scenario.keys import declared_keys
from proxylab.scenario.manifests import Manifests
from proxylab.scenario.node_engines import EngineAction
from proxylab.scenario.parts import Parts
from proxylab.scenario.probes import ServiceTarget
from proxylab.scenario.steps import EngineState, Step, StepExpect, StreamExpect, Until
from proxylab.scenario.targets import FRONTENDS_OF_PORTS
from proxylab.scenario.words import Manner

_DISTURBING = (EngineAction.KILL, EngineAction.STOP, EngineAction.FLUSH, EngineAction.PAUSE)


def check_streams(parts: Parts, inventory: Inventory, manifests: Manifests, problems: Problems) -> None:
    """Note every stream that the lab cannot send."""
    spec = parts.location["spec"]
    for name, stream in parts.streams.items():
        subject = Subject(stream, spec["streams"][name], parts, inventory, manifests, parts.single_pods, problems)
        check_flow(subject)
        _check_stream(subject)
    if parts.streams and not parts.steps:
        problems.add(
            spec["streams"].key, "streams need steps, which expect something of them", allowed="add spec.steps"
        )


def _check_stream(subject: Subject) -> None:
    """Note packets that only a probe sends, and frontends that only a probe dials."""
    target, send, location, problems = subject.probe.target, subject.probe.send, subject.location, subject.problems
    if isinstance(target, ServiceTarget) and target.via not in FRONTENDS_OF_PORTS:
        what = f"a stream cannot dial {target.via}"
        problems.add(location["to"]["via"].spot, what, allowed=f"allowed: {listed(FRONTENDS_OF_PORTS)}")
    if send is None:
        return
    for key, number in (("flows", send.flows), ("concurrency", send.concurrency)):
        if number not in (None, 1):
            problems.add(location["send"][key].spot, "a stream is one flow", allowed="remove the key")
    if subject.echo:
        what = "a stream cannot send echo requests: it needs answers from a backend"
        problems.add(location["send"]["protocol"].spot, what, allowed="allowed: TCP, UDP, SCTP")
    if send.manner is not Manner.CONNECT:
        what = "a stream is a flow of the kernel's sockets"
        problems.add(location["send"]["as"].spot, what, allowed=f"allowed: {Manner.CONNECT}")


def check_steps(parts: Parts, inventory: Inventory, states: Sequence[ClusterState], problems: Problems) -> None:
    """Note every step that waits for a condition that cannot occur, or expects something that does not exist."""
    names: dict[str, Location] = {}
    for index, (step, state) in enumerate(zip(parts.steps, states, strict=True)):
        location = parts.location["spec"]["steps"][index]
        check_probes(
            step.probes,
            location["probes"],
            lambda probe, at, now=state: Subject(  # type: ignore[misc]
                probe, at, parts, inventory, now.manifests, now.pods, problems
            ),
            problems,
        )
        if step.whole is None:
            continue
        first = names.setdefault(step.whole.name, location)
        if first is not location:
            line = first["name"].key.position.line
            what = f"another step has the name {shown(step.whole.name)}, in line {line}"
            problems.add(location["name"].spot, what, allowed="the names of steps are unique")
        _Checker(parts, inventory, state, problems).check(step.whole, location)


class _Checker(Struct, frozen=True):
    """Checks one step."""

    parts: Parts
    inventory: Inventory
    state: ClusterState
    problems: Problems

    def check(self, step: Step, location: Location) -> None:
        if step.until is not None:
            self._until(step.until, location["until"])
        elif any(each.action in _DISTURBING for each in self.state.change.engines.values()):
            what = "is missing: an engine that is killed, stopped, paused or flushed does not sync the change"
            self.problems.add(location["until"].key, what, allowed="say what the step waits for")
        elif any(each.rule_loads and each.rule_loads.fails for each in self.state.change.nodes.values()):
            what = "is missing: an engine whose loads fail does not sync the change"
            self.problems.add(location["until"].key, what, allowed="say what the step waits for")
        self._expect(step.expect, step.until, location["expect"])
        for index, exception in enumerate(step.exceptions):
            self._expect(exception.expect, step.until, location["except"][index]["expect"])

    def _until(self, until: Until, location: Location) -> None:
        if not {*location.keys} - {"within"} and not self.state.change.kubectl:  # what follows kubectl takes its time
            self.problems.add(location.spot, "waits for nothing", allowed="remove it, or add a condition")
        for node, state in until.engines.items():
            self._node(node, location["engines"][node])
            runs, is_paused = node in self.state.running, node in self.state.paused
            if node in self.inventory.nodes and (is_paused or runs is (state is EngineState.STOPPED)):
                is_now = "is paused" if is_paused else "runs" if runs else "does not run"
                what = f"the engine of {node} {is_now} at this step and never becomes {state}"
                self.problems.add(
                    location["engines"][node].spot, what, allowed="wait for another state, or change the engine first"
                )
        for node in until.rules:
            self._node(node, location["rules"][node])
        if until.conntrack is not None:
            check_conntrack(until.conntrack, location["conntrack"], self.inventory, self.problems)
        for balancer, nodes in until.balancers.items():
            self._balancer(balancer, nodes, location["balancers"][balancer])
        for stream, backend in until.backends.items():
            self._stream(stream, location["backends"][stream], tuple(self.parts.streams))
            self._backend(backend, location["backends"][stream])

    def _balancer(self, name: str, nodes: Sequence[str], location: Location) -> None:
        if name not in self.parts.load_balancers:
            known = tuple(self.parts.load_balancers)
            what = f"no load balancer is called {shown(name)}"
            self.problems.add(location.key, what, allowed=f"allowed: {listed(known)}", word=name, known=known)
        elif (balancer := self.parts.load_balancers[name]) and balancer.announced_by:
            what = f"{name} sends to the node that announces it, as soon as the step makes its change"
            self.problems.add(location.key, what, allowed="change.loadBalancers names another node")
        for index, node in enumerate(nodes):
            if node not in self.inventory.nodes:
                self.inventory.refuse(location[index].spot, node, "a node", self.inventory.nodes, self.problems)

    def _expect(self, expect: StepExpect, until: Until | None, location: Location) -> None:
        for name, each in expect.streams.items():
            self._stream(name, location[name], (*self.parts.streams, *(key.alias for key in declared_keys(StepExpect))))
            self._stream_expect(each, location[name])
        if expect.conntrack is not None:
            check_conntrack(expect.conntrack, location["conntrack"], self.inventory, self.problems)
        for index, metric in enumerate(expect.metrics):
            spot = location["metrics"][index]["node"].spot
            if metric.node not in self.inventory.nodes:
                self.inventory.refuse(spot, metric.node, "a node", self.inventory.nodes, self.problems)
            elif metric.node not in self.state.running or metric.node in self.state.paused:
                is_now = "is paused" if metric.node in self.state.paused else "does not run"
                what = f"the engine of {metric.node} {is_now} at the end of this step"
                self.problems.add(spot, what, allowed="name a node whose engine runs, or start it")
            elif until is not None and until.engines.get(metric.node) is not EngineState.SYNCED:
                # An engine writes its metrics at the end of a sync, after its rules.
                what = f"the step does not wait for the sync of {metric.node}, which sets its metrics"
                self.problems.add(spot, what, allowed=f"add until.engines: {{{metric.node}: synced}}")

    def _stream_expect(self, expect: StreamExpect, location: Location) -> None:
        if not location.keys:
            allowed = f"needed: {listed(key.alias for key in declared_keys(StreamExpect))}"
            self.problems.add(location.spot, "expects nothing", allowed=allowed)
        if expect.backend is not None:
            self._backend(expect.backend, location["backend"])
        for index, name in enumerate(expect.backends or ()):
            self._backend(name, location["backends"][index])
        if expect.backend is not None and expect.backends and expect.backend not in expect.backends:
            what = f"{expect.backend} is not among this step's backends"
            self.problems.add(location["backend"].spot, what, allowed=f"allowed: {listed(expect.backends)}")
        check_source(expect.source, location["source"], self.inventory, self.problems)

    def _stream(self, name: str, location: Location, known: Sequence[str]) -> None:
        if name not in self.parts.streams:
            what = f"no stream is called {shown(name)}"
            self.problems.add(location.key, what, allowed=f"allowed: {listed(known)}", word=name, known=known)

    def _backend(self, name: str, location: Location) -> None:
        if name not in self.inventory.backends:
            self.inventory.refuse(location.spot, name, "a backend", self.inventory.backends, self.problems)

    def _node(self, name: str, location: Location) -> None:
        if name not in self.inventory.nodes:
            self.inventory.refuse(location.key, name, "a node", self.inventory.nodes, self.problems)
