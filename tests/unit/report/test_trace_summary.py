"""The summary of a trace."""

from ipaddress import ip_address

import pytest
from golden_words import Told
from msgspec.structs import replace
from recorded import World

from proxylab.evidence.evidence import Evidence
from proxylab.report.trace_text import trace_summary
from proxylab.scenario.words import Outcome

WORLD = World(outcome=Outcome.REJECTED)  # what was expected does not matter
OUTSIDE = replace(WORLD, addresses={"debug": ip_address("203.0.113.10")})
NODE_A = ip_address("172.18.0.2")


def of(evidence: Evidence, world: World = WORLD) -> str:
    return trace_summary(world.probe, world.resolved, evidence)


def test_what_went_well_is_told_as_it_went(told: Told) -> None:
    assert of(WORLD.evidence(WORLD.round_trip(0, "echo-1"), counts=(WORLD.translated("echo-1"),))) == told()


def test_a_source_that_was_changed_is_explained_though_no_key_expects_another(told: Told) -> None:
    counts = (OUTSIDE.balanced(), OUTSIDE.marked(), OUTSIDE.translated("echo-1"), OUTSIDE.masqueraded())
    assert of(OUTSIDE.evidence(OUTSIDE.round_trip(0, "echo-1", NODE_A), counts=counts), OUTSIDE) == told()


def test_a_source_changed_by_no_known_rule_is_told_as_it_was_seen(told: Told) -> None:
    assert of(WORLD.evidence(WORLD.round_trip(0, "echo-1", NODE_A))) == told()


@pytest.mark.parametrize(
    ("evidence", "sentence"),
    [
        (
            WORLD.evidence([WORLD.leaves(0)], counts=(WORLD.dropped(),)),
            'node-a dropped the packet by its rule "default/echo has no local endpoints" in KUBE-SERVICES.',
        ),
        (
            WORLD.evidence([WORLD.leaves(0), WORLD.hears_icmp(0)], counts=(WORLD.rejected(),)),
            'node-a rejected the packet by its rule "default/echo has no endpoints" in KUBE-SERVICES.',
        ),
        (
            WORLD.evidence([WORLD.leaves(0)]),
            "the packet was lost behind debug: it left by eth0, addressed to 10.96.0.10:80, and came in at no node.",
        ),
        (WORLD.evidence([]), "no tap saw the packet leave debug."),
        (
            WORLD.evidence([*WORLD.round_trip(0, "echo-1"), WORLD.arrives(0, "echo-2")]),
            "delivered more than once: it arrived at echo-1 and echo-2, and nothing the lab saw shows why.",
        ),
    ],
    ids=["dropped", "rejected", "lost", "never left", "twice"],
)
def test_what_did_not_come_is_told_with_its_cause_if_there_is_one(evidence: Evidence, sentence: str) -> None:
    assert of(evidence) == sentence
