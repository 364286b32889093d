"""A flow through a program that ends its connection: judged, explained and drawn as one way."""

from ipaddress import ip_address

import pytest
from golden_words import Told
from judging import CONNECTED, FAIL, INCONCLUSIVE, PASS, judged, one
from msgspec.structs import replace
from recorded import World

from proxylab.addresses import Transport
from proxylab.evidence.evidence import Direction, Discarded, Evidence, Leg, Observation, Packet, RuleCount, TrackedFlow
from proxylab.plan.resolved import STACK, Destination, ResolvedProbe
from proxylab.report.failure_text import explain
from proxylab.scenario.expect import SourceAddress
from proxylab.scenario.words import Manner, Outcome
from proxylab.verdict.flows import Fate, flows_of
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


def redirected(packets: int = 1, chain: str = "KUBE-PORTALS-CONTAINER", to: int = 34000, by: str = "tcp") -> RuleCount:
    text = f"-A {chain} -d 10.96.0.10/32 -p {by} -m {by} --dport 80 -j REDIRECT --to-ports {to}"
    return RuleCount("node-a", "nat", chain, text, packets)


def through(*observations: Observation, world: World = WORLD, error: str = "", packets: int = 1) -> Evidence:
    report = world.failed(0, error) if error else world.report(0, "echo-1")
    if not error:
        report = replace(report, peer=PROGRAM[0], peer_port=PROGRAM[1])
    tracked = TrackedFlow(0, "node-a", *PROXY, *world.client(0))
    return world.evidence(
        observations,
        connects=(report,),
        counts=(redirected(packets),),
        metered_nodes=("node-a", "node-b"),
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
    way = [(stop.netns_name, stop.packet, stop.leg, stop.relayed) for stop in flow.stops]
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
    assert all(stop.follows for stop in flow.stops[1:] if stop.netns_name != "echo-1" or stop.packet is request)


def test_a_second_leg_that_no_program_sent_is_in_doubt() -> None:
    evidence = through(*there(), *(each for each in onward() if each.device != STACK), *back())
    verdict = one(WORLD, evidence, "outcome")
    assert verdict.judgement is INCONCLUSIVE
    assert "no tap saw a program open it" in str(verdict.reasons)


def test_rules_that_led_nothing_to_the_program_are_in_doubt(told: Told) -> None:
    verdict = one(WORLD, through(*there(), *onward(), *back(), packets=0), "outcome")
    assert verdict.judgement is INCONCLUSIVE
    assert verdict.reasons == told()


def test_a_process_that_listens_at_a_loopback_address_needs_no_rule() -> None:
    """kube-proxy 1.37 in mode nftables, with localhost among nodePortAddresses."""
    loopback = replace(WORLD, addresses={"service": ip_address("127.0.0.1")})
    seen = through(*there(loopback), *onward(loopback), *back(loopback), world=loopback, packets=0)
    of_nftables = replace(seen, counts=(RuleCount("node-a", "kube-proxy", "services", "tcp dport 80", 1),))
    assert one(loopback, seen, "outcome").judgement is INCONCLUSIVE
    assert one(loopback, of_nftables, "outcome").judgement is PASS
    elsewhere = replace(GOOD, counts=of_nftables.counts)
    assert one(WORLD, elsewhere, "outcome").judgement is INCONCLUSIVE


def of_second_flow(seen: tuple[Observation, ...]) -> list[Observation]:
    own, other = WORLD.client(0)[1], WORLD.client(1)[1]
    return [
        replace(
            each,
            flow=1,
            source_port=other if each.source_port == own else each.source_port,
            destination_port=other if each.destination_port == own else each.destination_port,
        )
        for each in seen
    ]


@pytest.mark.parametrize(("packets", "judgement"), [((2,), PASS), ((1, 1), PASS), ((1,), INCONCLUSIVE)])
def test_all_rules_that_lead_to_the_program_count_together(packets: tuple[int, ...], judgement: Judgement) -> None:
    world, way = replace(WORLD, flows=2), (*there(), *onward(), *back())
    first = through(*way, *of_second_flow(way), world=world)
    chains = ("KUBE-PORTALS-CONTAINER", "KUBE-PORTALS-HOST")
    told = replace(
        first,
        connects=(*first.connects, replace(first.connects[0], flow=1, local_port=world.client(1)[1])),
        tracked=(*(first.tracked or ()), TrackedFlow(1, "node-a", *PROXY, *world.client(1))),
        counts=tuple(redirected(each, chain) for each, chain in zip(packets, chains, strict=False)),
    )
    found = one(world, told, "outcome")
    assert found.judgement is judgement, found.reasons


class OfService(World, frozen=True):
    """A probe of a Service, whose rules are the engine's, with an endpoint or without one."""

    with_endpoint: bool = True

    @property
    def resolved(self) -> ResolvedProbe:
        endpoint = Destination(address=self.address("echo-1"), port=8080)
        made = World.resolved.fget(self)  # type: ignore[attr-defined]
        return replace(made, service_port="default/echo", endpoints=(endpoint,) if self.with_endpoint else ())


SERVICE = OfService(manner=Manner.CONNECT, backends=("echo-1",), source=SourceAddress(NODE))
CLOSED_SERVICE = OfService(manner=Manner.CONNECT, outcome=Outcome.CLOSED)
FOREIGN = redirected(chain="PREROUTING")
ACCEPTED = "node-a accepted the connection at 172.18.0.2:34000"
INSTEAD = 'the rule "-A PREROUTING -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j REDIRECT --to-ports 34000"'


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ((FOREIGN,), "rules that lead to a proxy's process counted 0 of 1 flow"),
        ((redirected(), FOREIGN), f"node-a has {INSTEAD} in chain PREROUTING of table nat, which counted 1 packet"),
        ((redirected(to=34001),), "no rule that counted leads to 172.18.0.2:34000, where node-a got 1 flow"),
    ],
)
@pytest.mark.parametrize("closed", [False, True])
def test_a_program_to_which_no_rule_of_the_engine_leads_is_not_the_proxys(
    counts: tuple[RuleCount, ...], reason: str, closed: bool
) -> None:
    world, evidence = (CLOSED_SERVICE, accepted_and_closed()) if closed else (SERVICE, GOOD)
    verdict = one(world, replace(evidence, counts=counts), "outcome")
    assert verdict.judgement is INCONCLUSIVE
    assert reason in "; ".join(verdict.reasons)


def test_the_program_to_which_the_engines_rule_leads_is_the_proxys() -> None:
    assert one(SERVICE, GOOD, "outcome").judgement is PASS
    assert one(CLOSED_SERVICE, accepted_and_closed(), "outcome").judgement is PASS


def test_a_syn_that_a_programs_kernel_sends_again_is_no_copy() -> None:
    lost, left, _ = onward()
    came = at(left, "eth0", Direction.IN, 1450, Leg.ONWARD)
    at_b = [replace(each, netns_name="node-b") for each in (came, came, replace(left, device="echo-1"))]
    evidence = through(*there(), lost, left, *onward(), *at_b, *back())
    assert one(WORLD, evidence, "outcome").judgement is PASS


def test_a_syn_that_arrives_again_as_a_programs_kernel_sent_it_again_is_one_delivery(told: Told) -> None:
    assert one(WORLD, through(*there(), *onward(), *onward(), *back()), "outcome").judgement is PASS
    doubled = through(*there(), *onward(), onward()[-1], *back())
    verdict = one(WORLD, doubled, "outcome")
    assert verdict.judgement is FAIL
    assert str(verdict.reasons) == told()


def test_the_program_is_the_cause_of_a_source_that_is_not_the_clients(told: Told) -> None:
    preserved = CONNECTED
    lines = " ".join(" ".join(explain(judged(preserved, GOOD))).split())
    assert lines == told()
    assert "node-a proxy in request" in lines


def test_the_program_and_no_rule_chose_another_pod(told: Told) -> None:
    other = through(*there(), *onward(pod="echo-2"), *back(pod="echo-2"))
    other = replace(other, connects=(replace(other.connects[0], backend="echo-2"),))
    verdict = judged(WORLD, other, str(NODE))
    assert one(WORLD, other, "backends").judgement is FAIL
    assert " ".join(" ".join(explain(verdict)).split()) == told()


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


def test_the_tries_of_the_program_explain_a_close(told: Told) -> None:
    tries = tuple(
        replace(each, source_port=TRIED + number) for number in range(4) for each in onward(CLOSED, leg=Leg.TRIED)
    )
    expecting = World(manner=Manner.CONNECT)
    lines = " ".join(" ".join(explain(judged(expecting, accepted_and_closed("EPROTO", *tries)))).split())
    assert lines == told()


def test_a_process_that_had_an_endpoint_is_not_said_to_have_none(told: Told) -> None:
    expecting = OfService(manner=Manner.CONNECT)
    with_one = " ".join(" ".join(explain(judged(expecting, accepted_and_closed()))).split())
    assert with_one == told()
    expecting = OfService(manner=Manner.CONNECT, with_endpoint=False)
    without = " ".join(" ".join(explain(judged(expecting, accepted_and_closed()))).split())
    assert without == told()


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
    ("counts", "sentence"),
    [
        (
            (redirected(),),
            "the proxy's process on node-a got the connection, sent nothing to a pod, and has nothing more to do",
        ),
        ((), f"no rule led the packet to the proxy's process: {ACCEPTED}"),
        ((redirected(to=34001),), f"no rule led the packet to the proxy's process: {ACCEPTED}"),
        (
            (FOREIGN,),
            f"no rule of the engine led the packet to the proxy's process: {ACCEPTED}, and has {INSTEAD}",
        ),
        (
            (redirected(), FOREIGN),
            f"{ACCEPTED}, and has {INSTEAD} in chain PREROUTING of table nat, which may have led it to another program",
        ),
    ],
)
def test_a_connection_that_stays_on_the_node_is_explained_by_the_rules_that_counted(
    counts: tuple[RuleCount, ...], sentence: str
) -> None:
    evidence = kept(counts=counts)
    assert sentence in " ".join(" ".join(explain(judged(SERVICE, evidence))).split())


def test_silence_behind_a_program_proves_no_drop() -> None:
    dropped = World(outcome=Outcome.DROPPED, manner=Manner.CONNECT)
    evidence = replace(through(*there(dropped), world=dropped, error="timeout"), undrained=("node-a",))
    verdict = one(dropped, evidence, "outcome")
    assert verdict.judgement is INCONCLUSIVE
    assert "may still act, so silence proves nothing" in str(verdict.reasons)


@pytest.mark.parametrize(
    ("datagrams", "came", "to", "judgement"),
    [
        (1, True, 34000, PASS),
        (2, True, 34000, PASS),
        (0, True, 34000, INCONCLUSIVE),
        (1, False, 34000, INCONCLUSIVE),
        (1, True, 34001, INCONCLUSIVE),
    ],
)
def test_a_drop_is_proven_by_what_the_process_says_it_discarded_of_what_came_to_it(
    datagrams: int, came: bool, to: int, judgement: Judgement
) -> None:
    dropped = World(outcome=Outcome.DROPPED, manner=Manner.CONNECT, protocol=Transport.UDP)
    port = f"{dropped.resolved.service_port}/UDP"
    others = (Discarded("node-a", "default/other/UDP", 5),)
    evidence = replace(
        through(*there(dropped)[: 3 if came else 2], world=dropped, error="timeout"),
        counts=(redirected(to=to, by="udp"),),
        discarded=(*others, Discarded("node-a", port, datagrams)),
    )
    verdict = one(dropped, evidence, "outcome")
    assert verdict.judgement is judgement
    assert any("node-a discarded 1 datagram" in each for each in verdict.witnesses) is (judgement is PASS)


def test_what_is_skipped_has_a_reason_for_each_expectation() -> None:
    verdict = skip(WORLD.probe, WORLD.resolved, "the mode has none")
    assert {each.expectation for each in verdict.verdicts} == {"outcome", "backends", "source"}
    assert {each.reasons for each in verdict.verdicts} == {("the mode has none",)}


def test_what_other_programs_got_no_process_of_a_proxy_discarded() -> None:
    dropped = World(outcome=Outcome.DROPPED, manner=Manner.CONNECT, protocol=Transport.UDP, flows=2)
    port = f"{dropped.resolved.service_port}/UDP"
    seen = [replace(each, flow=flow) for flow in range(2) for each in there(dropped)]
    told = replace(
        through(*seen, world=dropped, error="timeout"),
        counts=(redirected(to=34001, by="udp"), dropped.dropped()),
        discarded=(Discarded("node-a", port, 2),),
    )
    assert judged(dropped, told).case.discarded == ()
    led = replace(told, counts=(redirected(to=34000, by="udp"), dropped.dropped()))
    assert [each.datagrams for each in judged(dropped, led).case.discarded] == [2]
