"""A flow through a program that ends its connection: judged, explained and drawn as one way."""

from ipaddress import ip_address

import pytest
from judging import CONNECTED, FAIL, INCONCLUSIVE, PASS, judged, one
from msgspec.structs import replace
from recorded import World

from proxylab.addresses import Transport
from proxylab.evidence.evidence import Direction, Discarded, Evidence, Leg, Observation, Packet, RuleCount, TrackedFlow
from proxylab.plan.resolved import STACK
from proxylab.report.failure_text import explain
from proxylab.scenario.expect import SourceAddress
from proxylab.scenario.words import Manner, Outcome
from proxylab.verdict.flows.flows import Fate, flows_of
from proxylab.verdict.flows.hops import stops
from proxylab.verdict.judge import skip
from proxylab.verdict.model import Judgement

NODE = ip_address("172.18.0.2")
PROXY = (NODE, 34000)
PROGRAM = (NODE, 41000)
WORLD = replace(CONNECTED, backends=("echo-1",), source=SourceAddress(NODE))
CLOSED = World(outcome=Outcome.CLOSED, manner=Manner.CONNECT)
TRIED = 50000


def at(seen: Observation, device: str, direction: Direction, when: int, leg: Leg = Leg.OWN) -> Observation:
    return replace(seen, netns_name="node-a", device=device, direction=direction, at=when, leg=leg)


def there(world: World = WORLD) -> tuple[Observation, ...]:
    """The request on its first leg, from the sender to the program."""
    sent = world.leaves(0)
    taken = replace(sent, destination=PROXY[0], destination_port=PROXY[1])
    return sent, at(sent, "debug", Direction.IN, 1001), at(taken, STACK, Direction.IN, 1001)


def onward(world: World = WORLD, pod: str = "echo-1", leg: Leg = Leg.ONWARD) -> tuple[Observation, ...]:
    """The request on its second leg. The kernel gives no time in OUTPUT."""
    arrived = replace(world.arrives(0, pod), source=PROGRAM[0], source_port=PROGRAM[1], at=1500, leg=leg)
    return (
        at(arrived, STACK, Direction.OUT, 1, leg),
        at(arrived, "eth0", Direction.OUT, 1400, leg),
        arrived,
    )


def back(world: World = WORLD, pod: str = "echo-1") -> tuple[Observation, ...]:
    answer = replace(
        world.answers(0, pod), destination=PROGRAM[0], destination_port=PROGRAM[1], at=1600, leg=Leg.ONWARD
    )
    heard = world.hears(0)
    return (
        answer,
        at(answer, "eth0", Direction.IN, 1700, Leg.ONWARD),
        at(answer, STACK, Direction.IN, 1700, Leg.ONWARD),
        at(replace(heard, source=PROXY[0], source_port=PROXY[1]), STACK, Direction.OUT, 1),
        at(heard, "debug", Direction.OUT, 1100),
        replace(heard, at=1100),
    )


def redirected(packets: int = 1) -> RuleCount:
    text = "-A KUBE-PORTALS-CONTAINER -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j REDIRECT --to-ports 34000"
    return RuleCount("node-a", "nat", "KUBE-PORTALS-CONTAINER", text, packets)


def through(*observations: Observation, world: World = WORLD, error: str = "", packets: int = 1) -> Evidence:
    report = world.failed(0, error) if error else world.report(0, "echo-1")
    if not error:
        report = replace(report, peer=PROGRAM[0], peer_port=PROGRAM[1])
    tracked = TrackedFlow(0, "node-a", *PROXY, *world.client(0))
    return world.evidence(
        observations,
        connects=(report,),
        counts=(redirected(packets),),
        counted=("node-a", "node-b"),
        tracked=(tracked,),
        terminating=("node-a", "node-b"),
    )


GOOD = through(*there(), *onward(), *back())


def test_both_legs_are_one_delivery() -> None:
    verdict = judged(WORLD, GOOD, str(NODE))
    assert {each.expectation: each.judgement for each in verdict.verdicts} == dict.fromkeys(
        ("outcome", "reply", "backends", "source"), PASS
    )


def test_the_way_leads_up_to_the_program_and_on_from_it() -> None:
    (flow,) = flows_of(WORLD.resolved, GOOD)
    way = [(stop.netns_name, stop.packet, stop.leg, stop.relayed) for stop in stops(flow)]
    request, reply = Packet.REQUEST, Packet.REPLY
    assert way == [
        ("debug", request, Leg.OWN, False),
        ("node-a", request, Leg.OWN, False),
        ("node-a", request, Leg.ONWARD, True),
        ("echo-1", request, Leg.ONWARD, False),
        ("echo-1", reply, Leg.ONWARD, False),
        ("node-a", reply, Leg.ONWARD, False),
        ("node-a", reply, Leg.OWN, True),
        ("debug", reply, Leg.OWN, False),
    ]
    assert all(stop.follows for stop in stops(flow)[1:] if stop.netns_name != "echo-1" or stop.packet is request)


def test_a_second_leg_that_no_program_sent_is_in_doubt() -> None:
    evidence = through(*there(), *(each for each in onward() if each.device != STACK), *back())
    verdict = one(WORLD, evidence, "outcome")
    assert verdict.judgement is INCONCLUSIVE
    assert "no tap saw a program open it" in str(verdict.reasons)


def test_rules_that_led_nothing_to_the_program_are_in_doubt() -> None:
    verdict = one(WORLD, through(*there(), *onward(), *back(), packets=0), "outcome")
    assert verdict.judgement is INCONCLUSIVE
    assert "rules that lead to a proxy's process counted 0 of 1 flow" in verdict.reasons


def test_the_program_is_the_cause_of_a_source_that_is_not_the_clients() -> None:
    preserved = CONNECTED
    lines = " ".join(" ".join(explain(judged(preserved, GOOD))).split())
    assert "the proxy's process on node-a ended the connection and opened another one" in lines
    assert "node-a proxy in request" in lines


def test_the_program_and_no_rule_chose_another_pod() -> None:
    other = through(*there(), *onward(pod="echo-2"), *back(pod="echo-2"))
    other = replace(other, connects=(replace(other.connects[0], backend="echo-2"),))
    verdict = judged(WORLD, other, str(NODE))
    assert one(WORLD, other, "backends").judgement is FAIL
    assert "the proxy's process on node-a sent the flow to echo-2" in " ".join(" ".join(explain(verdict)).split())


def accepted_and_closed(error: str = "EPROTO", *more: Observation) -> Evidence:
    heard = replace(CLOSED.hears(0), at=1100)
    return through(
        *there(CLOSED), heard, replace(heard, packet=Packet.CLOSE, at=1900), *more, world=CLOSED, error=error
    )


@pytest.mark.parametrize("error", ["EPROTO", "ECONNRESET"])
def test_accepted_then_closed_is_an_outcome(error: str) -> None:
    verdict = one(CLOSED, accepted_and_closed(error), "outcome")
    assert (verdict.judgement, verdict.observed) == (PASS, Fate.CLOSED)


def test_an_answer_contradicts_a_close_without_one() -> None:
    evidence = accepted_and_closed()
    answered = replace(evidence, connects=(CLOSED.report(0, "echo-1"),))
    assert one(CLOSED, answered, "outcome").judgement is INCONCLUSIVE


def test_a_close_of_nothing_accepted_is_none() -> None:
    closing = replace(CLOSED.hears(0), packet=Packet.CLOSE)
    evidence = through(*there(CLOSED), closing, world=CLOSED, error="ECONNRESET")
    assert one(CLOSED, evidence, "outcome").judgement is not PASS


def test_a_delivery_is_no_close_and_a_close_no_delivery() -> None:
    assert (
        one(CLOSED, through(*there(CLOSED), *onward(CLOSED), *back(CLOSED), world=CLOSED), "outcome").judgement is FAIL
    )
    assert one(WORLD, accepted_and_closed(), "outcome").judgement is FAIL


def test_the_tries_of_the_program_explain_a_close() -> None:
    tries = tuple(
        replace(each, source_port=TRIED + number) for number in range(4) for each in onward(CLOSED, leg=Leg.TRIED)
    )
    expecting = World(manner=Manner.CONNECT)
    lines = " ".join(" ".join(explain(judged(expecting, accepted_and_closed("EPROTO", *tries)))).split())
    assert "the proxy's process on node-a accepted the connection, tried echo-1 4 times in vain, and closed it" in lines


def kept(*more: Observation, **changes: object) -> Evidence:
    """The node accepts the connection, and nothing follows."""
    heard = replace(WORLD.hears(0), at=1100)
    accepted = at(replace(heard, source=PROXY[0], source_port=PROXY[1]), STACK, Direction.OUT, 1)
    return replace(through(*there(), accepted, heard, *more, error="timeout"), **changes)


@pytest.mark.parametrize(("undrained", "judgement"), [((), FAIL), (("node-a",), INCONCLUSIVE), (("node-b",), FAIL)])
def test_what_a_node_accepts_is_lost_once_its_process_has_nothing_to_do(
    undrained: tuple[str, ...], judgement: Judgement
) -> None:
    verdict = one(WORLD, kept(undrained=undrained), "outcome")
    assert (verdict.judgement, verdict.observed) == (judgement, Fate.UNEXPLAINED)


@pytest.mark.parametrize(
    ("packets", "sentence"),
    [
        (1, "the proxy's process on node-a got the connection, sent nothing to a pod, and has nothing more to do"),
        (0, "no rule led the packet to the proxy's process: node-a accepted the connection at 172.18.0.2:34000"),
    ],
)
def test_a_connection_that_stays_on_the_node_is_explained_by_the_rules_that_counted(
    packets: int, sentence: str
) -> None:
    evidence = kept(counts=(redirected(packets),) if packets else ())
    assert sentence in " ".join(" ".join(explain(judged(WORLD, evidence))).split())


def test_silence_behind_a_program_proves_no_drop() -> None:
    dropped = World(outcome=Outcome.DROPPED, manner=Manner.CONNECT)
    evidence = replace(through(*there(dropped), world=dropped, error="timeout"), undrained=("node-a",))
    verdict = one(dropped, evidence, "outcome")
    assert verdict.judgement is INCONCLUSIVE
    assert "may still act, so silence proves nothing" in str(verdict.reasons)


@pytest.mark.parametrize(("datagrams", "judgement"), [(1, PASS), (0, INCONCLUSIVE)])
def test_a_drop_is_proven_by_what_the_process_says_it_discarded(datagrams: int, judgement: Judgement) -> None:
    dropped = World(outcome=Outcome.DROPPED, manner=Manner.CONNECT, protocol=Transport.UDP)
    port = f"{dropped.resolved.service_port}/UDP"
    others = (Discarded("node-a", "default/other/UDP", 5),)
    evidence = replace(
        through(*there(dropped), world=dropped, error="timeout"),
        discarded=(*others, Discarded("node-a", port, datagrams)),
    )
    verdict = one(dropped, evidence, "outcome")
    assert verdict.judgement is judgement
    assert any("node-a discarded 1 datagram" in each for each in verdict.witnesses) is bool(datagrams)


def test_what_is_skipped_has_a_reason_for_each_expectation() -> None:
    verdict = skip(WORLD.probe, WORLD.resolved, "the mode has none")
    assert {each.expectation for each in verdict.verdicts} == {"outcome", "backends", "source"}
    assert {each.reasons for each in verdict.verdicts} == {("the mode has none",)}
