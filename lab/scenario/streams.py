"""Streams and steps against the scenario they stand in.

Owns: the checks of ``spec.streams`` and ``spec.steps``.
Must not: check senders and targets itself (``lab.scenario.probes`` does, for probes and streams alike).
"""

from lab.scenario.conntrack import check_conntrack
from lab.scenario.document import Place
from lab.scenario.inventory import Inventory
from lab.scenario.manifests import Manifests
from lab.scenario.parts import Parts
from lab.scenario.probes import check_flow
from lab.scenario.problems import Problems, listed, shown
from lab.scenario.schema.stream import StepShape
from lab.scenario.subject import Subject

__all__ = ["check_streams"]


def check_streams(parts: Parts, inventory: Inventory, manifests: Manifests, problems: Problems) -> None:
    """Note every stream that cannot be sent, and every step that changes or expects what is not there.

    Args:
        parts: the scenario's well-formed parts.
        inventory: its names.
        manifests: its Services.
        problems: takes what is wrong.
    """
    spec = parts.place["spec"]
    for name, stream in parts.streams.items():
        place = spec["streams"][name]
        check_flow(Subject(stream, place, parts, inventory, manifests, problems))
        if stream.send is not None and stream.send.flows != 1:
            problems.add(place["send"]["flows"].spot, "a stream is one flow", allowed="leave it out")
    if parts.streams and not parts.steps:
        problems.add(spec["streams"].key, "nothing is expected of any stream", allowed="needed: steps")
    names: dict[str, Place] = {}
    for index, step in enumerate(parts.steps):
        place = spec["steps"][index]
        if step is None:
            continue
        first = names.setdefault(step.name, place)
        if first is not place:
            line = first["name"].key.position.line
            what = f"another step has the name {shown(step.name)}, in line {line}"
            problems.add(place["name"].spot, what, allowed="the names of steps are unique")
        _check_step(step, place, parts, inventory, problems)


def _check_step(step: StepShape, place: Place, parts: Parts, inventory: Inventory, problems: Problems) -> None:
    entries = tuple(parts.pods)
    for name in step.change.pods:
        if name not in entries:
            allowed = f"allowed: {listed(entries)}"
            what = f"{shown(name)} is no entry of spec.pods"
            problems.add(place["change"]["pods"][name].key, what, allowed=allowed, word=name, known=entries)
    for name, expect in step.expect.streams.items():
        at = place["expect"][name]
        if name not in parts.streams:
            streams = tuple(parts.streams)
            allowed = f"allowed: {listed((*streams, 'conntrack'))}"
            problems.add(at.key, f"no stream is called {shown(name)}", allowed=allowed, word=name, known=streams)
        if expect.backend is not None and expect.backend not in inventory.backends:
            inventory.refuse(at["backend"].spot, expect.backend, "a pod", inventory.pods, problems)
        if expect.backend is None and expect.lost is None:
            problems.add(at.spot, "expects nothing", allowed="needed: backend, lost, or both")
    if step.expect.conntrack is not None:
        check_conntrack(step.expect.conntrack, place["expect"]["conntrack"], inventory, problems)
