"""What a reproduction sends and what it expects, as the document that ``programs/play.py`` reads.

Owns: the shape of that document, and which pods a reproduction needs.
Must not: judge.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from lab.ip import Protocol, Transport
from lab.plan.errand import STACK, Errand
from lab.plan.model import Namespace, Plan, Role
from lab.plan.places import own_addresses_of
from lab.plan.sysctls import device_of
from lab.report.reproduction.entries import entry_case, entry_of, strangers, tables_case
from lab.report.reproduction.name import homes_of_names, name_case
from lab.scenario.model import Expect, HttpExpect, Manner, Outcome, Preserved, Reply, Shares, Spread
from lab.spread import flows_to_hit_all
from lab.verdict.evidence import Capture, Direction, Observation, Packet
from lab.verdict.model import ProbeVerdict, expectations
from lab.verdict.naming import led_nowhere
from lab.verdict.rules import translations

__all__ = ["MOST_FRAMES", "case_of", "frames_of", "needed", "remembered"]

MOST_FRAMES = 4096
"""A reproduction of more crafted flows sends the first of them, and says so."""


_AROUND_PAYLOAD = 20 + 8 + 48
"""What a datagram has beside its payload at least: headers, and the token of its flow."""


def needed(verdict: ProbeVerdict, plan: Plan, rules: Mapping[str, str]) -> Plan:
    """The plan without the pods and hosts that no packet of the probe can have met.

    Those stay that send, that were seen to take part, that are expected to, or to drop, that serve the name that is
    dialled, and whose address is in any rule.
    """
    errand, expect = verdict.errand, verdict.probe.expect
    text = "\n".join(rules.values())
    taking_part = {errand.sender.namespace, *errand.watched, *(seen.place for seen in verdict.evidence.observations)}
    taking_part |= homes_of_names(errand.question, plan) if errand.question is not None else set()
    for pod in errand.receivers:
        named = pod.name in (expect.backends or ()) or pod.address == errand.destination
        if named or pod.name in taking_part or f"{pod.address}:" in text or f"[{pod.address}]:" in text:
            taking_part.add(pod.namespace)
    kept = {each.name for each in plan.namespaces if each.role not in (Role.POD, Role.HOST) or each.name in taking_part}
    gone = {
        (end.namespace, end.device)
        for link in plan.links
        for end in link.ends
        if not all(each.namespace in kept for each in link.ends)
    }
    return Plan(
        namespaces=tuple(_without(each, gone) for each in plan.namespaces if each.name in kept),
        links=tuple(link for link in plan.links if all(end.namespace in kept for end in link.ends)),
        pods=tuple(pod for pod in plan.pods if pod.namespace in kept),
    )


def _without(namespace: Namespace, gone: Collection[tuple[str, str]]) -> Namespace:
    """The namespace without what names a device that is gone."""

    def stays(device: str) -> bool:
        return (namespace.name, device) not in gone

    return replace(
        namespace,
        device_sysctls=tuple(each for each in namespace.device_sysctls if stays(device_of(each.name) or "")),
        addresses=tuple(each for each in namespace.addresses if stays(each.device)),
        routes=tuple(each for each in namespace.routes if stays(each.device)),
        neighbours=tuple(each for each in namespace.neighbours if stays(each.device)),
    )


def case_of(verdict: ProbeVerdict, plan: Plan) -> dict[str, Any]:
    """The document. ``plan`` is what is rebuilt. Where a name led nowhere, it is asked for, and no flow is sent."""
    errand, expect = verdict.errand, verdict.probe.expect
    here = {namespace.name for namespace in plan.namespaces}
    own = {each.name: frozenset(address.interface.ip for address in each.addresses) for each in plan.namespaces}
    flows = min(errand.flows, MOST_FRAMES) if _is_crafted(errand) else errand.flows
    delivered = expect.outcome is Outcome.DELIVERED
    if led_nowhere(errand, verdict.evidence.lookups):
        flows = 0
    return {
        "name": name_case(verdict, plan),
        "version": errand.destination.version,
        "protocol": str(errand.protocol),
        "sender": {
            **_place(errand.sender.name, errand.sender.namespace, errand.sender.device, errand.sender.address),
            "addresses": list(map(str, errand.sender.addresses)),
        },
        "dialled": str(errand.destination),
        "port": errand.port,
        "flows": flows,
        "payload": errand.payload,
        "ports": list(_ports(errand, verdict.evidence.observations)) if not _is_crafted(errand) else [],
        "pods": [
            _place(pod.name, pod.namespace, pod.device, pod.address)
            for pod in errand.receivers
            if pod.namespace in here
            and pod.address.version == errand.destination.version
            and (pod.device != STACK or pod.address.is_loopback or pod.address in own[pod.namespace])
        ],
        "listeners": [*_listeners(errand, plan), *_health_server(verdict, plan)],
        "http": _http(expect.http),
        "nodes": list(errand.nodes) if expect.outcome is Outcome.UNTRANSLATED or expect.at else [],
        "remembered": list(remembered(verdict)),
        "conntrack": expect.conntrack
        and tables_case(expect.conntrack, errand.nodes, errand.addresses, (errand.protocol,)),
        "expect": {
            "outcome": str(expect.outcome) if "outcome" in expectations(expect) else "",
            "backends": sorted(set(expect.backends or ())) if delivered else [],
            "source": _source(verdict) if delivered and verdict.source else "",
            "at": _where(expect.at, plan) if expect.at else [],
            "hit all": delivered and _must_hit_all(verdict, flows),
            "shares": dict(_shares(expect)) if delivered else {},
            "sticky": delivered and expect.spread is Spread.STICKY,
            "reply": str(expect.reply or Reply.TRANSLATED),
        },
    }


def _source(verdict: ProbeVerdict) -> str:
    """Whom pods must see; a sender with several addresses is ``preserved`` with each of them."""
    several = verdict.errand.sender.others and isinstance(verdict.probe.expect.source, Preserved)
    return "preserved" if several else str(verdict.source)


def _where(at: str, plan: Plan) -> list[str]:
    """The namespace of the place where flows must end, its device if one is named, and the author's words."""
    place, _, device = at.partition("/")
    return [next((pod.namespace for pod in plan.pods if pod.name == place), place), device, at]


def _must_hit_all(verdict: ProbeVerdict, flows: int) -> bool:
    """Whether so many flows hit every backend but by a chance that nobody believes in."""
    errand, expect = verdict.errand, verdict.probe.expect
    if not expect.backends or expect.spread is Spread.STICKY or (errand.question and errand.question.headless):
        return False
    return flows >= flows_to_hit_all(len(set(expect.backends)))


def _listeners(errand: Errand, plan: Plan) -> Iterator[dict[str, Any]]:
    """Who can answer what is sent."""
    for namespace in plan.namespaces:
        for each in namespace.listeners:
            if each.address is not None and each.address.version != errand.destination.version:
                continue
            if each.protocol is errand.protocol.served:
                yield {
                    "namespace": namespace.name,
                    "name": each.name,
                    "protocol": str(each.protocol),
                    "address": str(each.address) if each.address else "",
                    "port": each.port,
                    "says": [],
                }


def _http(wanted: HttpExpect | None) -> dict[str, Any] | None:
    if wanted is None:
        return None
    return {"status": wanted.status, "local endpoints": wanted.local_endpoints}


def _health_server(verdict: ProbeVerdict, plan: Plan) -> Iterator[dict[str, Any]]:
    """Who answered by HTTP for a node, which is the proxy under test: it says again what it said to each flow.

    A pod that answered says its name, and answers again by itself.
    """
    errand, evidence = verdict.errand, verdict.evidence
    pods = {pod.name for pod in plan.pods}
    by_pods = {report.flow for report in evidence.connects if report.backend in pods}
    answered = {
        each.flow: (each.status, each.local_endpoints)
        for each in evidence.http
        if not each.error and each.flow not in by_pods
    }
    for namespace in plan.namespaces:
        if answered and errand.destination in own_addresses_of(namespace):
            yield {
                "namespace": namespace.name,
                "name": namespace.name,
                "protocol": str(Protocol.TCP),
                "address": str(errand.destination),
                "port": errand.port,
                "says": [answered.get(flow) for flow in range(errand.flows)],
            }


def remembered(verdict: ProbeVerdict) -> Iterator[dict[str, Any]]:
    """The entries of connection tracking that were there before the probe.

    Those took packets of it where no rule did; or they are of others, where the author expects something of the tables.
    An echo request has no port that an author could choose, so none goes on with what was there before.
    """
    errand, evidence = verdict.errand, verdict.evidence
    left = dict(enumerate(_ports(errand, evidence.observations)))
    if errand.protocol is not Transport.ICMP and set(errand.nodes) <= set(evidence.counted):
        ruled = {rule.translates_to for rule in translations(evidence.counts)}
        for flow in evidence.tracked or ():
            answers = (flow.reply_source, flow.reply_source_port)
            if answers not in ruled and answers != (errand.destination, errand.port) and left.get(flow.flow):
                yield entry_case(entry_of(errand, left[flow.flow], flow))
    own = {(errand.sender.of(flow), port) for flow, port in left.items()}
    own |= {(each.reply_destination, each.reply_destination_port) for each in evidence.tracked or ()}
    yield from map(entry_case, strangers(evidence.entries or (), own))


def _shares(expect: Expect) -> Iterator[tuple[str, float]]:
    """The share that is due to each backend, where the author says anything of shares."""
    if isinstance(expect.spread, Shares):
        yield from expect.spread.of.items()
    elif expect.spread is Spread.EVEN:
        names = sorted(set(expect.backends or ()))
        yield from ((name, 1 / len(names)) for name in names)


def frames_of(verdict: ProbeVerdict, capture: Capture) -> tuple[str, ...]:
    """The frames of a crafted probe as they left the sender, as hexadecimal digits; none where sockets sent."""
    errand = verdict.errand
    if not _is_crafted(errand) or led_nowhere(errand, verdict.evidence.lookups):
        return ()
    sent = [
        frame.data
        for frame in capture.frames
        if (frame.place, frame.device) == (errand.sender.name, errand.sender.device)
        and frame.direction is Direction.OUT
        and frame.packet is Packet.REQUEST
    ]
    return tuple(sent[:MOST_FRAMES])


def _is_crafted(errand: Errand) -> bool:
    """Whether packets are sent as they were made. Of a node's own its sockets send all for which there are any.

    So they do what was crafted in fragments: of each datagram only one is kept, and the kernel makes its own.
    """
    own = errand.sender.device == STACK and errand.protocol in (Transport.TCP, Transport.UDP)
    cut = errand.protocol in (Transport.UDP, Transport.ICMP) and errand.payload + _AROUND_PAYLOAD > errand.sender.mtu
    return errand.manner is Manner.PACKET and not own and not cut


def _place(name: str, namespace: str, device: str, address: object) -> dict[str, str]:
    return {"name": name, "namespace": namespace, "device": device, "address": str(address)}


def _ports(errand: Errand, observations: Iterable[Observation]) -> Iterable[int]:
    """The source port of each flow, as it left the sender; any port for a flow that was not seen to leave."""
    left = {
        seen.flow: seen.source_port
        for seen in reversed(list(observations))
        if seen.packet is Packet.REQUEST and seen.direction is Direction.OUT and seen.place == errand.sender.name
    }
    return (left.get(flow, 0) for flow in range(errand.flows))
