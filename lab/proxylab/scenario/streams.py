"""Streams and steps against the scenario they stand in.

Owns: the checks of ``spec.streams`` and ``spec.steps``, but for what changes (``proxylab.scenario.changes``).
Must not: check senders and targets itself (``proxylab.scenario.probes`` does, for probes and streams alike).
"""

from collections.abc import Sequence

from proxylab.frozen import dataclass
from proxylab.addresses import Transport
from proxylab.scenario.changes import Moment
from proxylab.scenario.conntrack import check_conntrack
from proxylab.scenario.document import Place
from proxylab.scenario.expectations import check_source
from proxylab.scenario.inventory import Inventory
from proxylab.scenario.manifests import Manifests
from proxylab.scenario.model import EngineAction, EngineState
from proxylab.scenario.parts import Parts
from proxylab.scenario.probes import check_flow, check_probes
from proxylab.scenario.problems import Problems, listed, shown
from proxylab.scenario.references import single_pods
from proxylab.scenario.schema.change import UntilShape
from proxylab.scenario.schema.step import StepExpectShape, StepShape, StreamExpectShape
from proxylab.scenario.subject import Subject

__all__ = ["check_steps", "check_streams"]

_DISTURBING = (EngineAction.KILL, EngineAction.STOP, EngineAction.FLUSH)


def check_streams(parts: Parts, inventory: Inventory, manifests: Manifests, problems: Problems) -> None:
    """Note every stream that cannot be sent.

    Args:
        parts: the scenario's well-formed parts.
        inventory: its names.
        manifests: its Services.
        problems: takes what is wrong.
    """
    spec = parts.place["spec"]
    for name, stream in parts.streams.items():
        place = spec["streams"][name]
        check_flow(Subject(stream, place, parts, inventory, manifests, single_pods(parts), problems))
        if stream.send is not None and stream.send.flows != 1:
            problems.add(place["send"]["flows"].spot, "a stream is one flow", allowed="leave it out")
        if stream.send is not None and stream.send.protocol is Transport.ICMP:
            what = "a stream is of packets that a backend answers, not of echo requests"
            problems.add(place["send"]["protocol"].spot, what, allowed="allowed: TCP, UDP")
    if parts.streams and not parts.steps:
        problems.add(spec["streams"].key, "nothing is expected of any stream", allowed="needed: steps")


def check_steps(parts: Parts, inventory: Inventory, moments: Sequence[Moment], problems: Problems) -> None:
    """Note every step that waits for what never comes, or expects what is not there.

    Args:
        parts: the scenario's well-formed parts.
        inventory: its names.
        moments: what stands at each step.
        problems: takes what is wrong.
    """
    names: dict[str, Place] = {}
    for index, (step, moment) in enumerate(zip(parts.steps, moments, strict=True)):
        place = parts.place["spec"]["steps"][index]
        check_probes(
            step.probes,
            place["probes"],
            lambda probe, at, now=moment: Subject(  # type: ignore[misc]
                probe, at, parts, inventory, now.manifests, now.pods, problems
            ),
            problems,
        )
        if step.shape is None:
            continue
        first = names.setdefault(step.shape.name, place)
        if first is not place:
            line = first["name"].key.position.line
            what = f"another step has the name {shown(step.shape.name)}, in line {line}"
            problems.add(place["name"].spot, what, allowed="the names of steps are unique")
        _Checker(parts, inventory, moment, problems).check(step.shape, place)


@dataclass(frozen=True, slots=True)
class _Checker:
    """Checks one step."""

    parts: Parts
    inventory: Inventory
    moment: Moment
    problems: Problems

    def check(self, step: StepShape, place: Place) -> None:
        if step.until is not None:
            self._until(step.until, place["until"])
        elif any(action in _DISTURBING for action in self.moment.change.engines.values()):
            what = "is missing: an engine that is down or flushed takes no change up"
            self.problems.add(place["until"].key, what, allowed="needed: what the step waits for")
        self._expect(step.expect, place["expect"])
        for index, exception in enumerate(step.exceptions):
            self._expect(exception.expect, place["except"][index]["expect"])

    def _until(self, until: UntilShape, place: Place) -> None:
        if not until.model_fields_set - {"within"}:
            self.problems.add(place.spot, "waits for nothing", allowed="leave it out, or say for what")
        for node, state in until.engines.items():
            self._node(node, place["engines"][node])
            runs = node in self.moment.running
            if node in self.inventory.nodes and runs is (state is EngineState.STOPPED):
                what = f"the engine of {node} {'runs' if runs else 'does not run'} at this step: it never comes to that"
                self.problems.add(
                    place["engines"][node].spot, what, allowed="wait for another state, or change it first"
                )
        for node in until.rules:
            self._node(node, place["rules"][node])
        if until.conntrack is not None:
            check_conntrack(until.conntrack, place["conntrack"], self.inventory, self.problems)
        for balancer, nodes in until.balancers.items():
            self._balancer(balancer, nodes, place["balancers"][balancer])
        for stream, backend in until.backends.items():
            self._stream(stream, place["backends"][stream], tuple(self.parts.streams))
            self._backend(backend, place["backends"][stream])

    def _balancer(self, name: str, nodes: Sequence[str], place: Place) -> None:
        if name not in self.parts.load_balancers:
            known = tuple(self.parts.load_balancers)
            what = f"no load balancer is called {shown(name)}"
            self.problems.add(place.key, what, allowed=f"allowed: {listed(known)}", word=name, known=known)
        for index, node in enumerate(nodes):
            if node not in self.inventory.nodes:
                self.inventory.refuse(place[index].spot, node, "a node", self.inventory.nodes, self.problems)

    def _expect(self, expect: StepExpectShape, place: Place) -> None:
        for name, each in expect.streams.items():
            self._stream(name, place[name], (*self.parts.streams, "conntrack"))
            self._stream_expect(each, place[name])
        if expect.conntrack is not None:
            check_conntrack(expect.conntrack, place["conntrack"], self.inventory, self.problems)

    def _stream_expect(self, expect: StreamExpectShape, place: Place) -> None:
        if not expect.model_fields_set:
            allowed = f"needed: {listed(str(field.alias) for field in StreamExpectShape.model_fields.values())}"
            self.problems.add(place.spot, "expects nothing", allowed=allowed)
        if expect.backend is not None:
            self._backend(expect.backend, place["backend"])
        for index, name in enumerate(expect.backends or []):
            self._backend(name, place["backends"][index])
        if expect.backend is not None and expect.backends and expect.backend not in expect.backends:
            what = f"{expect.backend} is none of the backends that answer in this step"
            self.problems.add(place["backend"].spot, what, allowed=f"allowed: {listed(expect.backends)}")
        check_source(expect.source, place["source"], self.inventory, self.problems)

    def _stream(self, name: str, place: Place, known: Sequence[str]) -> None:
        if name not in self.parts.streams:
            what = f"no stream is called {shown(name)}"
            self.problems.add(place.key, what, allowed=f"allowed: {listed(known)}", word=name, known=known)

    def _backend(self, name: str, place: Place) -> None:
        if name not in self.inventory.backends:
            self.inventory.refuse(place.spot, name, "a pod", self.inventory.pods, self.problems)

    def _node(self, name: str, place: Place) -> None:
        if name not in self.inventory.nodes:
            self.inventory.refuse(place.key, name, "a node", self.inventory.nodes, self.problems)
