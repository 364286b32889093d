"""A rule of no engine changed a Service's packet, or kept it from translation: when that is said, and when not."""

from ipaddress import ip_address

import network_scenarios
import pytest
from msgspec.structs import replace
from recorded import World

from proxylab.evidence.evidence import Direction, Evidence, ForeignRule, Observation, Packet
from proxylab.plan.topology import draw
from proxylab.scenario.expect import Preserved
from proxylab.verdict.case import Case
from proxylab.verdict.causes.failure import Failure
from proxylab.verdict.causes.foreign_rules import (
    destination_rewritten,
    kept_untracked,
    not_tracking,
    source_rewritten,
)
from proxylab.verdict.judge import judge
from proxylab.verdict.model import Judgement

WORLD = World(source=Preserved())
RESOLVED = replace(WORLD.resolved, service_port="default/echo:tcp")
POD, NOWHERE, STRANGE = WORLD.address("echo-1"), ip_address("10.244.2.77"), ip_address("10.9.9.9")
CAME = replace(WORLD.leaves(0), netns_name="node-a", device="debug", direction=Direction.IN, at=1001)
TRANSLATED = replace(CAME, device="eth0", direction=Direction.OUT, at=1002, destination=POD, destination_port=8080)
AWAY = replace(TRANSLATED, destination=NOWHERE)
LEFT = replace(CAME, device="eth0", direction=Direction.OUT, at=1002)
RULE = ForeignRule("node-a", "ip acme", "late", "forward", 10, f"tcp dport 8080 counter ip daddr set {NOWHERE}", 1)
WORDS = "in chain late (hook forward, priority 10) of table ip acme, which belongs to no engine"


def failure(
    expectation: str, *seen: Observation, foreign: ForeignRule, translated: bool = True, **changes: object
) -> Failure:
    counts = (WORLD.translated("echo-1"),) if translated else ()
    evidence: Evidence = WORLD.evidence(
        [WORLD.leaves(0), CAME, *seen], foreign=(foreign,), counts=counts, metered_nodes=("node-a", "node-b"), **changes
    )
    case = Case(WORLD.probe, RESOLVED, evidence)
    found = judge(WORLD.probe, RESOLVED, None, evidence).verdicts
    verdict = next((each for each in found if each.expectation == expectation), found[0])
    return Failure(case, replace(verdict, expectation=expectation, judgement=Judgement.FAIL))


def changed(**changes: object) -> ForeignRule:
    return replace(RULE, **changes)  # type: ignore[arg-type]


def test_a_stateless_rule_behind_the_engines_translation() -> None:
    told = destination_rewritten(failure("outcome", AWAY, foreign=RULE))
    assert told.startswith("node-a translated the packet to 10.244.2.3:8080 by its rule")
    assert told.endswith(f'and then changed its destination to {NOWHERE}:8080 by the rule "{RULE.text}" {WORDS}.')


@pytest.mark.parametrize(("hook", "priority"), [("prerouting", -150), ("output", -150)])
def test_a_stateless_rule_before_it(hook: str, priority: int) -> None:
    rule = changed(hook=hook, priority=priority)
    evidence = failure("outcome", AWAY, foreign=rule)
    if hook == "output":
        assert destination_rewritten(evidence) == "", "the node forwards what the pod sends"
    else:
        told = destination_rewritten(evidence)
        assert told.startswith(f"node-a changed the packet's destination to {NOWHERE}:8080 by the rule")


def test_who_answered_what_a_rule_led_away() -> None:
    icmp = WORLD.hears_icmp(0, NOWHERE, (11, 0))
    told = destination_rewritten(failure("outcome", AWAY, icmp, foreign=RULE))
    assert told.endswith(f"{WORDS}, and {NOWHERE} answered with ICMP time to live exceeded (11/0).")
    reset = replace(WORLD.hears_reset(0), netns_name="node-a", device="debug", direction=Direction.OUT)
    redirects = changed(hook="prerouting", priority=-110, text="tcp dport 80 counter redirect to :9999")
    told = destination_rewritten(failure("outcome", reset, WORLD.hears_reset(0), foreign=redirects, translated=False))
    assert told.endswith("which belongs to no engine, and answered with a reset: no program listens there.")


@pytest.mark.parametrize(
    "rule",
    [
        changed(packets=0),
        changed(packets=None),
        changed(node="node-b"),
        changed(text=f"tcp dport 8080 counter ip saddr set {NOWHERE}"),
        changed(text=f"udp dport 8080 counter ip daddr set {NOWHERE}"),
        changed(text="tcp dport 8080 counter ip daddr set 10.244.2.78"),
        changed(text=f"tcp dport 8080 counter dnat to {NOWHERE}"),
    ],
    ids=["counted none", "no counter", "other node", "of the source", "other protocol", "elsewhere", "one translation"],
)
def test_a_rule_that_cannot_have_changed_the_destination_is_not_named(rule: ForeignRule) -> None:
    assert destination_rewritten(failure("outcome", AWAY, foreign=rule)) == ""


def test_what_arrived_was_not_led_away() -> None:
    assert destination_rewritten(failure("outcome", TRANSLATED, WORLD.arrives(0, "echo-1"), foreign=RULE)) == ""


SET = changed(text=f"tcp dport 8080 counter ip saddr set {STRANGE}")
ARRIVED = WORLD.arrives(0, "echo-1", STRANGE)
SENT_ON = replace(TRANSLATED, source=STRANGE)


def test_a_rule_that_changed_the_source() -> None:
    told = source_rewritten(failure("source", SENT_ON, ARRIVED, foreign=SET))
    assert told == f'node-a changed the packet\'s source to {STRANGE} by the rule "{SET.text}" {WORDS}.'
    other = changed(text="tcp dport 8080 counter ip saddr set 10.9.9.8")
    assert source_rewritten(failure("source", SENT_ON, ARRIVED, foreign=other)) == ""
    kept = WORLD.arrives(0, "echo-1")
    assert source_rewritten(failure("source", TRANSLATED, kept, foreign=SET)) == ""


def test_a_reply_that_cannot_come_back_to_a_changed_source() -> None:
    told = source_rewritten(failure("reply", SENT_ON, ARRIVED, WORLD.answers(0, "echo-1", STRANGE), foreign=SET))
    assert told.startswith(f"the way back is broken: node-a changed the packet's source to {STRANGE} by the rule")
    assert told.endswith(f"; echo-1 replied to {STRANGE}, and debug heard nothing.")
    translating = changed(text=f"tcp dport 8080 counter snat to {STRANGE}")
    unknown = failure("reply", SENT_ON, ARRIVED, WORLD.answers(0, "echo-1", STRANGE), foreign=translating)
    assert source_rewritten(unknown) == "", "without the plan the lab may have that address"


NOTRACK = changed(hook="prerouting", priority=-300, text="tcp dport 80 counter notrack")
UNTRACKED = f'node-a does not track the flow, by the rule "{NOTRACK.text}"'


def test_what_a_node_does_not_track_it_does_not_translate() -> None:
    told = kept_untracked(failure("outcome", LEFT, foreign=NOTRACK, translated=False))
    assert told.startswith(f"no rule translated the packet: {UNTRACKED}")
    assert told.endswith("which belongs to no engine, and the kernel translates only what it tracks.")
    assert kept_untracked(failure("outcome", foreign=NOTRACK, translated=False)) == told
    assert kept_untracked(failure("outcome", TRANSLATED, foreign=NOTRACK)) == ""
    assert kept_untracked(failure("outcome", TRANSLATED, WORLD.arrives(0, "echo-1"), foreign=NOTRACK)) == ""
    other = replace(NOTRACK, text="tcp dport 81 counter notrack")
    assert kept_untracked(failure("outcome", LEFT, foreign=other, translated=False)) == ""


def test_only_notrack_exempts_from_tracking() -> None:
    told = failure("outcome", LEFT, foreign=NOTRACK, translated=False)
    assert not_tracking(told, "node-a", Packet.REQUEST).startswith(UNTRACKED)
    assert not_tracking(told, "node-b", Packet.REQUEST) == ""
    accepting = replace(NOTRACK, table="nat", text="-A PREROUTING -p tcp -j ACCEPT")
    assert not_tracking(failure("outcome", LEFT, foreign=accepting, translated=False), "node-a", Packet.REQUEST) == ""


def test_a_source_that_a_machine_of_the_lab_has_leads_replies_back() -> None:
    drawn = draw(network_scenarios.BASIC["ptp"])
    held = [own.interface.ip for each in drawn.namespaces for own in each.addresses][-1]
    for address, replied in ((held, ""), (STRANGE, f"echo-1 replied to {STRANGE}, which nothing in this lab has, and")):
        snat = changed(text=f"tcp dport 8080 counter snat to {address}")
        seen = (replace(TRANSLATED, source=address), WORLD.arrives(0, "echo-1", address))
        told = failure("reply", *seen, WORLD.answers(0, "echo-1", address), foreign=snat)
        assert replied in source_rewritten(replace(told, plan=drawn))
        assert bool(source_rewritten(replace(told, plan=drawn))) is bool(replied)
