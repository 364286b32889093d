"""Packets that came otherwise than they were sent, and errors that answer one packet twice: what the verdict says."""

import pytest
from judging import CONNECTED, DELIVERED, FAIL, PASS, REFUSED, REJECTED, one
from msgspec.structs import replace
from recorded import World

from proxylab.evidence.evidence import Altered, Evidence, Packet, Part

NO_ROUTE = (3, 1)


def evidence(world: World, *altered: Altered, heard: int = 0, reset: bool = False) -> Evidence:
    """A flow that went well, or one that left and heard ICMP errors or resets."""
    hears = world.hears_reset(0) if reset else world.hears_icmp(0)
    seen = [world.leaves(0), *(replace(hears, at=2000 + number) for number in range(heard))]
    counts = (world.rejected(),) if heard else (world.balanced(), world.translated("echo-1"))
    return world.evidence(seen if heard else world.round_trip(0, "echo-1"), counts=counts, altered=altered)


@pytest.mark.parametrize(
    ("altered", "clause"),
    [
        (
            Altered(0, Packet.REQUEST, "echo-1", "eth0", Part.DATA),
            "the data of the request had changed on the way when it came to echo-1/eth0",
        ),
        (
            Altered(0, Packet.REQUEST, "echo-1", "", Part.DATA),
            "the data of the request had changed on the way when it came to echo-1",
        ),
        (
            Altered(0, Packet.RESET, "debug", "eth0", Part.CHECKSUM),
            "the reset came to debug/eth0 with a wrong IP checksum",
        ),
        (
            Altered(0, Packet.OTHER_ICMP, "debug", "eth0", Part.QUOTE, "here", "there"),
            "the ICMP error quotes another packet than was sent: there, not here",
        ),
    ],
)
def test_what_came_otherwise_than_it_was_sent_is_the_whole_reason_of_a_flow_that_arrived(
    altered: Altered, clause: str
) -> None:
    outcome = one(DELIVERED, evidence(DELIVERED, altered), "outcome")
    assert (outcome.judgement, outcome.reasons) == (FAIL, (clause,))


def test_an_altered_reply_is_no_failure_of_the_outcome_but_of_the_reply() -> None:
    told = evidence(DELIVERED, Altered(0, Packet.REPLY, "debug", "eth0", Part.DATA))
    assert one(DELIVERED, told, "outcome").judgement is PASS
    reply = one(DELIVERED, told, "reply")
    clause = "the data of the reply had changed on the way when it came to debug/eth0"
    assert (reply.judgement, reply.reasons) == (FAIL, (clause,))


def test_only_the_altered_flow_of_several_fails() -> None:
    world = replace(DELIVERED, flows=2)
    seen = [each for flow in range(2) for each in world.round_trip(flow, "echo-1")]
    counts = (world.balanced(2), world.translated("echo-1", 2))
    altered = (Altered(1, Packet.REQUEST, "echo-1", "eth0", Part.DATA),)
    outcome = one(world, world.evidence(seen, counts=counts, altered=altered), "outcome")
    assert (outcome.judgement, outcome.example) == (FAIL, 1)


@pytest.mark.parametrize("world", [REJECTED, REFUSED], ids=["rejected", "refused"])
@pytest.mark.parametrize(("heard", "wrong"), [(1, False), (2, True), (3, True)])
def test_an_error_answers_a_packet_once(world: World, heard: int, wrong: bool) -> None:
    kind = "a reset" if world is REFUSED else "an ICMP error"
    outcome = one(world, evidence(world, heard=heard, reset=world is REFUSED), "outcome")
    said = [f"debug sent it once, and heard {kind} {'twice' if heard == 2 else f'{heard} times'}"]
    assert [each for each in outcome.reasons if " and heard " in each] == (said if wrong else [])


def test_an_error_that_breaks_the_outcome_is_named_before_what_is_strange_about_it() -> None:
    error = replace(CONNECTED.hears_icmp(0, icmp=NO_ROUTE), at=3000)
    altered = (Altered(0, Packet.OTHER_ICMP, "debug", "eth0", Part.QUOTE, "here", "there"),)
    seen = (CONNECTED.leaves(0), CONNECTED.arrives(0, "echo-1"), error)
    told = CONNECTED.evidence(seen, connects=(CONNECTED.failed(0, "EHOSTUNREACH"),), altered=altered)
    (clause,) = one(CONNECTED, told, "outcome").reasons
    assert clause.startswith("it arrived at echo-1, and")
    assert clause.endswith(", and the ICMP error quotes another packet than was sent: there, not here")
