"""How many flows a probe sends whose author leaves the number to the lab."""

import pytest
from broken_scenarios import BASE

from proxylab.plan.assembly import assemble
from proxylab.scenario.cases import cases
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.probes import MOST_FLOWS
from proxylab.statistics import FINE_CHANGE, SHARE_CHANGE, flows_needed_for

EVEN = "backends: [{}], spread: even"


def flows(send: str, expect: str, replicas: int = 2, mode: str = "iptables") -> int:
    pods = ", ".join(f"echo-{number}" for number in range(1, replicas + 1))
    text = BASE.replace("replicas: 2", f"replicas: {replicas}").replace(
        "expect: {outcome: delivered, source: preserved}",
        f"send: {{{send}}}\n    expect: {{outcome: delivered, source: preserved, {expect.format(pods)}}}",
    )
    (case,) = cases(parse_scenario(text, "f"), mode)
    (probe,) = assemble(case).resolved_probes
    return probe.flows


@pytest.mark.parametrize("replicas", [2, 3, 4])
def test_packets_show_a_change_of_ten_percent(replicas: int) -> None:
    assert flows("as: packet", EVEN, replicas) == flows_needed_for((1 / replicas,) * replicas, FINE_CHANGE)


def test_so_do_the_shares_that_an_author_gives() -> None:
    found = flows("as: packet", "spread: {{echo-1: 0.25, echo-2: 0.75}}")
    assert found == flows_needed_for((0.25, 0.75), FINE_CHANGE)


def test_many_backends_get_as_many_packets_as_a_probe_may_have() -> None:
    assert flows("as: packet", EVEN, 5) == MOST_FLOWS


def test_connections_show_a_change_of_thirty_percent() -> None:
    assert flows("", EVEN) == flows_needed_for((0.5, 0.5), SHARE_CHANGE)


def test_either_counts_as_what_the_proxy_makes_of_it() -> None:
    assert flows("as: either", EVEN) == flows_needed_for((0.5, 0.5), FINE_CHANGE)
    assert flows("as: either", EVEN, mode="userspace") == flows_needed_for((0.5, 0.5), SHARE_CHANGE)


def test_the_author_has_the_last_word_and_other_probes_send_one() -> None:
    assert flows("as: packet, flows: 1234", EVEN) == 1234
    assert flows("as: packet", "backends: [echo-1]") == 1
