"""What no verdict may pass, as a second, independent implementation.

Straight from the observations, without a line of the verdict room: neither its flows nor its fates, its rules or its
words.
"""

from collections.abc import Callable, Iterator
from ipaddress import ip_address

from forbidden_entries import fits, in_tables, other_entries
from recorded import World

from proxylab.addresses import Transport
from proxylab.evidence.evidence import (
    Direction,
    Evidence,
    KernelCount,
    Observation,
    Packet,
)
from proxylab.scenario.words import Manner, Outcome

PODS = ("echo-1", "echo-2")
NODE = ip_address("172.18.0.2")
CLIENT = ip_address("10.244.1.2")
DIALLED = (ip_address("10.96.0.10"), 80)
POD_ADDRESS = {"echo-1": ip_address("10.244.2.3"), "echo-2": ip_address("10.244.2.4"), "debug": CLIENT}
GONE = {3, 11, 12}
FILTER = "TcpExtIPReversePathFilter"
NODES = ("node-a", "node-b")
PROBED = {Transport.TCP}
"""What all of these probes send."""


# What was seen, asked in the plainest way.


def of(evidence: Evidence, flow: int, packet: Packet, direction: Direction) -> list[Observation]:
    return [o for o in evidence.observations if (o.flow, o.packet, o.direction) == (flow, packet, direction)]


def at_pods(evidence: Evidence, flow: int) -> list[Observation]:
    coming = of(evidence, flow, Packet.REQUEST, Direction.IN)
    return [o for o in coming if POD_ADDRESS.get(o.netns_name) == o.destination]


def departures(evidence: Evidence, flow: int) -> list[Observation]:
    return [o for o in of(evidence, flow, Packet.REQUEST, Direction.OUT) if o.netns_name == "debug"]


def heard(evidence: Evidence, flow: int, *packets: Packet) -> list[Observation]:
    found = [o for packet in packets for o in of(evidence, flow, packet, Direction.IN) if o.netns_name == "debug"]
    return [o for o in found if not (o.icmp and (o.icmp[0] not in GONE or o.icmp == (3, 4)))]


def reports(evidence: Evidence, flow: int) -> list[object]:
    return [r for r in evidence.connects if r.flow == flow]


# The forbidden cases. Each yields a clause for whatever makes a pass of that expectation a lie.


def untrustworthy(world: World, evidence: Evidence) -> Iterator[str]:
    if evidence.unfinished:
        yield "the run did not finish"
    if any(loss.frames for loss in evidence.losses):
        yield "a tap lost frames"
    if not evidence.sent <= world.flows <= evidence.sent + len(evidence.refused_sends):
        yield "not as many sent as the probe has"
    if any(o.flow not in range(world.flows) for o in evidence.observations):
        yield "a flow that does not exist"
    if world.manner is Manner.CONNECT and any(len(reports(evidence, f)) != 1 for f in range(world.flows)):
        yield "a socket did not report once"


def stack_drops(evidence: Evidence) -> list[KernelCount]:
    """Counters of packets that a node's stack dropped; or received, where nothing else of that node moved."""
    named = [count for count in evidence.kernel if count.counter == FILTER]
    alone = [count for count in evidence.kernel if len(evidence.kernel) == 1 and count.counter == "IpInReceives"]
    dropping = {count.node for count in evidence.counts if "DROP" in count.text}
    return [*named, *(count for count in alone if count.node not in dropping)]


def mistracked(evidence: Evidence) -> Iterator[str]:
    """Conntrack knows nothing of what was seen at a pod, or knows otherwise."""
    for arrival in (o for o in evidence.observations if o.packet is Packet.REQUEST and o.direction is Direction.IN):
        if evidence.tracked is None or POD_ADDRESS.get(arrival.netns_name) != arrival.destination:
            continue
        there = (arrival.destination, arrival.destination_port, arrival.source, arrival.source_port)
        entries = [e for e in evidence.tracked if e.flow == arrival.flow]
        known = [(e.reply_source, e.reply_source_port, e.reply_destination, e.reply_destination_port) for e in entries]
        if there not in known:
            yield "conntrack contradicts what arrived"


def copies(evidence: Evidence, flow: int) -> list[Observation]:
    """Requests that came in at a pod or host under an address that is not its own."""
    arrived = at_pods(evidence, flow)
    came = of(evidence, flow, Packet.REQUEST, Direction.IN)
    return [o for o in came if o not in arrived and not o.netns_name.startswith("node-")]


def leading_to(evidence: Evidence, arrival: Observation) -> int:
    """Packets counted by DNAT rules to where a packet arrived."""
    ours = f"-j DNAT --to-destination {arrival.destination}:{arrival.destination_port}"
    return sum(count.packets for count in evidence.counts if count.text.endswith(ours))


def remembered(world: World, evidence: Evidence, arrival: Observation) -> bool:
    """Whether an entry that the author says must stand leads there: then no rule is asked."""
    wanted = world.conntrack
    if wanted is None or wanted.some is None:
        return False
    there = (arrival.destination, arrival.destination_port)
    leading = [e for e in in_tables(wanted, evidence.entries) if (e.reply_source, e.reply_source_port) == there]
    return any(fits(e, wanted.some, POD_ADDRESS, PROBED) for e in leading)


def no_delivery(world: World, evidence: Evidence) -> Iterator[str]:
    yield from mistracked(evidence)
    for flow in range(world.flows):
        arrivals = at_pods(evidence, flow)
        if len({o.netns_name for o in arrivals}) != 1:
            yield "not at exactly one pod"
        if not departures(evidence, flow) or len(arrivals) > len(departures(evidence, flow)):
            yield "more arrived than left"
        if copies(evidence, flow):
            yield "a copy somewhere else"
        if heard(evidence, flow, Packet.RESET, Packet.PORT_UNREACHABLE, Packet.OTHER_ICMP):
            yield "turned away"
        awaited = [o for o in arrivals if not remembered(world, evidence, o)]
        if evidence.metered_nodes and any(leading_to(evidence, o) < 1 for o in awaited):
            yield "no rule translated it"
        for report in reports(evidence, flow) if world.manner is Manner.CONNECT else ():
            if not report.error and report.backend not in {o.netns_name for o in arrivals}:
                yield "answered by another pod"


def no_reply(world: World, evidence: Evidence) -> Iterator[str]:
    yield from mistracked(evidence)
    for flow in range(world.flows):
        replies = heard(evidence, flow, Packet.REPLY)
        if not replies:
            yield "no reply"
        if any((o.source, o.source_port) != DIALLED for o in replies):
            yield "a reply from elsewhere"
        if any((o.destination, o.destination_port) != world.client(flow) for o in replies):
            yield "a reply to another sender"
        sent = of(evidence, flow, Packet.REPLY, Direction.OUT)
        if len(replies) > max(1, len(sent)):
            yield "more replies than were sent"
        senders = {o.netns_name for o in sent}
        if not {o.netns_name for o in at_pods(evidence, flow)} <= senders:
            yield "a reply that no pod sent"
        if world.manner is Manner.CONNECT and any(report.error for report in reports(evidence, flow)):
            yield "a socket that was not answered"


def no_rejection(world: World, evidence: Evidence) -> Iterator[str]:
    for flow in range(world.flows):
        if of(evidence, flow, Packet.REQUEST, Direction.IN):
            yield "it came in somewhere"
        if heard(evidence, flow, Packet.REPLY, Packet.RESET, Packet.OTHER_ICMP):
            yield "something else was heard"
        errors = heard(evidence, flow, Packet.PORT_UNREACHABLE)
        if not errors or any(o.icmp != (3, 3) or o.destination != CLIENT for o in errors):
            yield "no ICMP port unreachable to the sender"
        if any(o.source in POD_ADDRESS.values() for o in errors):
            yield "an ICMP error from a pod"
        if world.manner is Manner.CONNECT and any(r.error != "ECONNREFUSED" for r in reports(evidence, flow)):
            yield "a socket that was not refused"
    if rejections(evidence) < sum(max(1, len(departures(evidence, flow))) for flow in range(world.flows)):
        yield "no rule that counted it all"


def no_refusal(world: World, evidence: Evidence) -> Iterator[str]:
    for flow in range(world.flows):
        resets = heard(evidence, flow, Packet.RESET)
        if not resets or any((o.source, o.source_port) != DIALLED for o in resets):
            yield "no reset from the address dialled"
        if heard(evidence, flow, Packet.REPLY, Packet.PORT_UNREACHABLE, Packet.OTHER_ICMP):
            yield "something else was heard"
        if len({o.netns_name for o in at_pods(evidence, flow)}) > 1:
            yield "at two pods"
        if at_pods(evidence, flow) and copies(evidence, flow):
            yield "a copy somewhere else"


def drops(evidence: Evidence, node: str | None = None, end: str = "-j DROP") -> int:
    """Packets counted by the one dropping rule of this world that names what was dialled."""
    ours = [c for c in evidence.counts if c.text.endswith(f"--dport 80 {end}") and "-d 10.96.0.10/32 -p tcp" in c.text]
    return sum(c.packets for c in ours if node in (None, c.node))


def rejections(evidence: Evidence) -> int:
    """Packets counted by the rejecting one."""
    return drops(evidence, end="-j REJECT --reject-with icmp-port-unreachable")


def no_drop(world: World, evidence: Evidence) -> Iterator[str]:
    left = 0
    for flow in range(world.flows):
        left += max(1, len(departures(evidence, flow)))
        if of(evidence, flow, Packet.REQUEST, Direction.IN):
            yield "it came in somewhere"
        if heard(evidence, flow, Packet.REPLY, Packet.RESET, Packet.PORT_UNREACHABLE, Packet.OTHER_ICMP):
            yield "the sender heard something"
        if world.manner is Manner.CONNECT and any(not r.error for r in reports(evidence, flow)):
            yield "a socket that was answered"
    if all(count.packets != left for count in stack_drops(evidence)):
        yield from silence_that_may_break(world, evidence)
        if drops(evidence) < left and not seen_last_on_node_a(world, evidence):
            yield "no rule that counted it all"


def seen_last_on_node_a(world: World, evidence: Evidence) -> bool:
    """Where no rule says that it dropped anything, the last hop is a witness, if the author has named it."""
    if world.at != "node-a" or drops(evidence):
        return False
    requests = [
        [o for o in evidence.observations if (o.flow, o.packet) == (f, Packet.REQUEST)] for f in range(world.flows)
    ]
    return all(seen and sorted(seen, key=lambda o: o.at)[-1].netns_name == "node-a" for seen in requests)


def came_in(world: World, evidence: Evidence) -> bool:
    """Whether a drop is said to be at a pod, and anything came in anywhere."""
    coming = [o for o in evidence.observations if (o.packet, o.direction) == (Packet.REQUEST, Direction.IN)]
    return world.at == "echo-1" and any(o.netns_name not in NODES for o in coming)


def no_drop_at_the_pod(world: World, evidence: Evidence) -> Iterator[str]:
    """Said to end at echo-1: it came in there and nowhere else, nothing answered it, and echo-1 counted it."""
    left = 0
    for flow in range(world.flows):
        left += max(1, len(departures(evidence, flow)))
        coming = [o for o in of(evidence, flow, Packet.REQUEST, Direction.IN) if o.netns_name not in NODES]
        if {o.netns_name for o in coming} != {"echo-1"}:
            yield "it did not come in at echo-1, or also elsewhere"
        if of(evidence, flow, Packet.REPLY, Direction.OUT) and any(
            o.netns_name in PODS and o.source == POD_ADDRESS[o.netns_name]
            for o in of(evidence, flow, Packet.REPLY, Direction.OUT)
        ):
            yield "a pod answered"
        if heard(evidence, flow, Packet.REPLY, Packet.RESET, Packet.PORT_UNREACHABLE, Packet.OTHER_ICMP):
            yield "the sender heard something"
        if world.manner is Manner.CONNECT and any(not r.error for r in reports(evidence, flow)):
            yield "a socket that was answered"
    if not any(count.node == "echo-1" and count.packets == left for count in stack_drops(evidence)):
        yield "echo-1 did not count it"
    if drops(evidence):
        yield "a rule says that it dropped it, too"


def no_passing_by(world: World, evidence: Evidence) -> Iterator[str]:
    """Untranslated: it left a node or came in somewhere as it was dialled, and was nowhere seen as anything else."""
    for flow in range(world.flows):
        seen = [o for o in evidence.observations if (o.flow, o.packet) == (flow, Packet.REQUEST)]
        beyond = [o for o in seen if o.netns_name != "debug"]
        as_dialled = [o for o in beyond if (o.destination, o.destination_port) == DIALLED]
        outside = [o for o in as_dialled if o.netns_name not in NODES and o.direction is Direction.IN]
        if not outside and not any(o.netns_name in NODES and o.direction is Direction.OUT for o in as_dialled):
            yield "it was not seen to go on as it was dialled"
        if any(o.direction is Direction.IN and (o.destination, o.destination_port) != DIALLED for o in beyond):
            yield "it came in somewhere as something else"
        if any(o.netns_name in NODES and (o.destination, o.destination_port) != DIALLED for o in beyond):
            yield "it crossed a node as something else"
        if heard(evidence, flow, Packet.REPLY, Packet.RESET):
            yield "it was answered"
        if heard(evidence, flow, Packet.PORT_UNREACHABLE) and not outside:
            yield "it was rejected"
        if world.manner is Manner.CONNECT and any(not r.error for r in reports(evidence, flow)):
            yield "a socket that was answered"
    if any(" -j DNAT " in count.text and count.packets for count in evidence.counts):
        yield "a rule translated something"


def silence_that_may_break(world: World, evidence: Evidence) -> Iterator[str]:
    for flow in range(world.flows):
        for sentinel in evidence.sentinels:
            if not sentinel.answered or any(sentinel.at < o.at for o in departures(evidence, flow)[:1]):
                yield "a sentinel packet that proves nothing"
    if evidence.unpinned:
        yield "sentinel packets that may have overtaken a packet"
    if {sentinel.name for sentinel in evidence.sentinels} < {"node-a", *PODS}:
        yield "a sentinel packet that was not sent"


def wrong_source(world: World, evidence: Evidence) -> Iterator[str]:
    if any(c.packets > world.flows for c in evidence.counts if "-j MASQUERADE" in c.text):
        yield "more masqueraded than were sent"
    for flow in range(world.flows):
        arrivals = at_pods(evidence, flow)
        if not arrivals or any(o.source != CLIENT for o in arrivals):
            yield "another source, or none seen"
        if world.manner is Manner.CONNECT and any(not r.error and r.peer != CLIENT for r in reports(evidence, flow)):
            yield "the responder saw another peer"


def wrong_backend(world: World, evidence: Evidence) -> Iterator[str]:
    for flow in range(world.flows):
        if not {o.netns_name for o in at_pods(evidence, flow)} or "echo-2" in {
            o.netns_name for o in at_pods(evidence, flow)
        }:
            yield "a pod that is no backend, or none"


def too_few(world: World, evidence: Evidence) -> Iterator[str]:
    netns_names = {o.netns_name for flow in range(world.flows) for o in at_pods(evidence, flow)}
    if netns_names != {"echo-1"}:
        yield "a spread that three flows cannot show"


def elsewhere(world: World, evidence: Evidence) -> Iterator[str]:
    if world.outcome is Outcome.UNTRANSLATED:
        yield from not_on_node_a(world, evidence)
        return
    if world.at == "echo-1":
        yield from (lie for lie in no_drop_at_the_pod(world, evidence) if "count" not in lie and "rule" not in lie)
        return
    here = any(count.packets >= world.flows for count in stack_drops(evidence) if count.node == "node-a")
    here = here or seen_last_on_node_a(world, evidence)
    if world.outcome is Outcome.DROPPED and drops(evidence, "node-a") < world.flows and not here:
        yield "node-a did not count it"


def not_on_node_a(world: World, evidence: Evidence) -> Iterator[str]:
    for flow in range(world.flows):
        out = [o for o in of(evidence, flow, Packet.REQUEST, Direction.OUT) if o.netns_name in NODES]
        went_on = [o for o in out if (o.destination, o.destination_port) == DIALLED]
        if not went_on or went_on[0].netns_name != "node-a":
            yield "it did not go on from node-a first"


def another_answer(world: World, evidence: Evidence) -> Iterator[str]:
    """By HTTP: each flow was told once, by that status, and of that number of local endpoints if one is wanted."""
    assert world.http is not None
    for flow in range(world.flows):
        answers = [r for r in evidence.http if r.flow == flow]
        if len(answers) != 1:
            yield "not answered once"
        for answer in answers:
            if answer.error or answer.status != world.http.status:
                yield "no answer, or another status"
            if world.http.local_endpoints is not None and answer.local_endpoints != world.http.local_endpoints:
                yield "another number of local endpoints"
    if any(r.flow not in range(world.flows) for r in evidence.http):
        yield "an answer without a request"


def other_tables(world: World, evidence: Evidence) -> Iterator[str]:
    assert world.conntrack is not None
    yield from other_entries(world.conntrack, evidence.entries, POD_ADDRESS, PROBED)


FORBIDDEN: dict[str, Callable[[World, Evidence], Iterator[str]]] = {
    "reply": no_reply,
    "source": wrong_source,
    "backends": wrong_backend,
    "spread": too_few,
    "at": elsewhere,
    "http": another_answer,
    "conntrack": other_tables,
}
NO_OUTCOME = {
    Outcome.DELIVERED: no_delivery,
    Outcome.REJECTED: no_rejection,
    Outcome.REFUSED: no_refusal,
    Outcome.DROPPED: lambda world, evidence: (
        no_drop_at_the_pod(world, evidence) if came_in(world, evidence) else no_drop(world, evidence)
    ),
    Outcome.UNTRANSLATED: no_passing_by,
}
