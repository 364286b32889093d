"""Which ICMP error answers flows: its kind in both families, who sent it by the taps, and what it quotes."""

from ipaddress import ip_address

import pytest
from judging import FAIL, INCONCLUSIVE, PASS
from msgspec.structs import replace
from recorded import World

from proxylab.evidence.evidence import Altered, Direction, Evidence, Observation, Packet, Part
from proxylab.scenario.expect import ErrorExpect
from proxylab.scenario.words import ErrorKind, IcmpError
from proxylab.verdict.judge import judge
from proxylab.verdict.model import Judgement, Verdict

WORLD = World()
HEARD = WORLD.hears_icmp(0, icmp=(11, 0))
LEFT_NODE_B = replace(HEARD, netns_name="node-b", device="eth0", direction=Direction.OUT, at=HEARD.at - 1)


def verdict_on(
    expected: ErrorExpect, *seen: Observation, world: World = WORLD, altered: tuple[Altered, ...] = ()
) -> Verdict:
    expect = replace(world.probe.expect, error=expected, positions={})
    evidence: Evidence = replace(world.evidence([world.leaves(0), *seen]), altered=altered)
    found = judge(replace(world.probe, expect=expect), world.resolved, None, evidence)
    (verdict,) = found.verdicts
    assert verdict.expectation == "error", "no outcome is expected beside it"
    return verdict


@pytest.mark.parametrize(
    ("kind", "code", "four", "six"),
    [
        (ErrorKind.TOO_BIG, None, (3, 4), (2, 0)),
        (ErrorKind.TIME_EXCEEDED, None, (11, 0), (3, 0)),
        (ErrorKind.UNREACHABLE, None, (3, 1), (1, 3)),
        (ErrorKind.UNREACHABLE, IcmpError.PORT_UNREACHABLE, (3, 3), (1, 4)),
    ],
)
def test_one_word_stands_for_an_error_of_both_families(
    kind: ErrorKind, code: IcmpError | None, four: tuple[int, int], six: tuple[int, int]
) -> None:
    expected = ErrorExpect(kind=kind, code=code)
    for world, icmp in ((WORLD, four), (World(ipv6=True), six)):
        assert verdict_on(expected, world.hears_icmp(0, icmp=icmp), world=world).judgement is PASS
        for other in ErrorKind:
            if other is not kind:
                seen = world.hears_icmp(0, icmp=icmp)
                assert verdict_on(ErrorExpect(kind=other), seen, world=world).judgement is FAIL


def test_a_redirect_beside_the_error_is_advice_and_no_other_error() -> None:
    redirect = WORLD.hears_icmp(0, icmp=(5, 1))
    assert verdict_on(ErrorExpect(kind=ErrorKind.TIME_EXCEEDED), redirect, HEARD).judgement is PASS


def test_another_code_of_unreachable_fails() -> None:
    expected = ErrorExpect(kind=ErrorKind.UNREACHABLE, code=IcmpError.HOST_UNREACHABLE)
    assert verdict_on(expected, WORLD.hears_icmp(0)).judgement is FAIL


@pytest.mark.parametrize(
    ("sent_by", "seen", "judgement"),
    [
        ("node-b", (LEFT_NODE_B, HEARD), PASS),
        ("node-a", (LEFT_NODE_B, HEARD), FAIL),
        ("router", (LEFT_NODE_B, HEARD), FAIL),
        ("router", (HEARD,), PASS),
        ("node-b", (HEARD,), FAIL),
    ],
)
def test_the_taps_show_who_sent_the_error(sent_by: str, seen: tuple[Observation, ...], judgement: Judgement) -> None:
    expected = ErrorExpect(kind=ErrorKind.TIME_EXCEEDED, sent_by=sent_by)
    assert verdict_on(expected, *seen).judgement is judgement


def test_what_else_came_fails() -> None:
    expected = ErrorExpect(kind=ErrorKind.TIME_EXCEEDED)
    quote = Altered(0, Packet.OTHER_ICMP, "debug", "eth0", Part.QUOTE, "a > b", "a > c")
    assert verdict_on(expected, HEARD, altered=(quote,)).judgement is FAIL
    assert verdict_on(expected, HEARD, WORLD.arrives(0, "echo-1")).judgement is FAIL
    assert verdict_on(expected, HEARD, WORLD.hears(0)).judgement is FAIL
    elsewhere = replace(HEARD, destination=ip_address("10.244.0.99"))
    assert verdict_on(expected, elsewhere).judgement is FAIL


def test_silence_is_no_error() -> None:
    assert verdict_on(ErrorExpect(kind=ErrorKind.TOO_BIG)).judgement in (FAIL, INCONCLUSIVE)
