"""Expectations: what an author may hope for, and whether it can be proven at all.

Owns: the checks of ``expect`` against the rest of the probe and the scenario.
Must not: judge (``lab.verdict`` does).
"""

from lab.scenario.document import Place
from lab.scenario.model import Outcome
from lab.scenario.problems import listed
from lab.scenario.references import ready_pods, service_id
from lab.scenario.schema.probe import NodeDeviceShape, ServiceTargetShape
from lab.scenario.subject import Subject
from lab.spread import flows_needed

__all__ = ["check_expectation"]


def check_expectation(subject: Subject) -> None:
    """Note why an expectation cannot be met, or not be judged."""
    expect, place, problems = subject.probe.expect, subject.place["expect"], subject.problems
    if expect is None:
        return
    delivered = expect.outcome is Outcome.DELIVERED
    if delivered and expect.source is None:
        what = "is missing: with delivered, say whom the backend sees"
        problems.add(place["source"].key, what, allowed="allowed: preserved, an address, or {node, device}")
    if delivered and expect.at is not None:
        problems.add(place["at"].key, "a flow that is delivered ends at its backend", allowed="leave it out")
    if not delivered:
        for key in [key for key in ("backends", "source", "spread") if place[key].exists]:
            what = f"nothing arrives when flows are {expect.outcome}"
            problems.add(place[key].key, what, allowed="only with delivered")
    if isinstance(expect.source, NodeDeviceShape) and expect.source.node not in subject.inventory.nodes:
        spot = place["source"]["node"].spot
        subject.inventory.refuse(spot, expect.source.node, "a node", subject.inventory.nodes, problems)
    if expect.at is not None:
        _check_end(subject, expect.at, place["at"])
    _check_backends(subject, expect.backends or [], place["backends"])
    if delivered and expect.spread is not None:
        _check_spread(subject, expect.backends or [], place["spread"])


def _check_end(subject: Subject, at: str, place: Place) -> None:
    inventory = subject.inventory
    name = at.partition("/")[0]
    if name in inventory.senders:
        what = "not yet: this version cannot prove that a flow ends at a pod or host"
        subject.problems.add(place.spot, what, allowed=f"allowed: {listed(inventory.nodes)}")
    elif name not in inventory.nodes:
        inventory.refuse(place.spot, name, "a node", inventory.nodes, subject.problems)


def _check_backends(subject: Subject, backends: list[str], place: Place) -> None:
    inventory, send = subject.inventory, subject.probe.send
    seen: set[str] = set()
    for index, name in enumerate(backends):
        if name not in inventory.pods:
            inventory.refuse(place[index].spot, name, "a pod", inventory.pods, subject.problems)
        elif name in seen:
            subject.problems.add(place[index].spot, f"{name} stands twice")
        seen.add(name)
    if send is not None and send.flows < len(backends):
        what = f"send.flows is {send.flows}, too few to reach {len(backends)} backends"
        subject.problems.add(place.spot, what, allowed=f"needed: {len(backends)}, since each of them must be reached")


def _check_spread(subject: Subject, backends: list[str], place: Place) -> None:
    target, send, problems = subject.probe.target, subject.probe.send, subject.problems
    if target is None or send is None:
        return
    if not isinstance(target, ServiceTargetShape):
        problems.add(place.key, "only a Service spreads flows", allowed="leave it out")
        return
    count = len(backends) or _endpoints(subject, target)
    if count is None:
        return
    if count < 2:
        problems.add(place.spot, f"the number of backends is {count}", allowed="needed: two or more")
    elif send.flows < (needed := flows_needed(count)):
        flows = subject.place["send"]["flows"]
        what = f"send.flows is {send.flows}, too few to show an uneven spread over {count} backends"
        problems.add(flows.spot if flows.exists else place.spot, what, allowed=f"needed: {needed}")


def _endpoints(subject: Subject, target: ServiceTargetShape) -> int | None:
    """The number of ready pods behind the Service, or ``None`` where that cannot be known."""
    service = subject.manifests.services.get(service_id(target.service, target.namespace))
    if service is None or subject.inventory.doubtful:
        return None
    return ready_pods(service, subject.parts)
