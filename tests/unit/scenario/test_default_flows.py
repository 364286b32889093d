"""How many flows a probe sends whose author leaves the number to the lab."""

import pytest
from broken_scenarios import BASE
from golden_words import Told

from proxylab.plan.assembly import assemble
from proxylab.scenario.cases import cases
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.probes import MOST_FLOWS
from proxylab.statistics import FINE_CHANGE, SHARE_CHANGE, flows_needed_for

EVEN = "backends: [{}], spread: even"


HEADLESS = ("  selector: {app: echo}", "  clusterIP: None\n  selector: {app: echo}")
FEW = "send: {{flows: {}}}\n    expect: {{outcome: delivered, source: preserved, backends: [echo-1, echo-2]}}"


def flows(
    send: str, expect: str, replicas: int = 2, mode: str = "iptables", service: tuple[str, str] = ("", "")
) -> int:
    pods = ", ".join(f"echo-{number}" for number in range(1, replicas + 1))
    text = BASE.replace("replicas: 2", f"replicas: {replicas}").replace(
        "expect: {outcome: delivered, source: preserved}",
        f"send: {{{send}}}\n    expect: {{outcome: delivered, source: preserved, {expect.format(pods)}}}",
    )
    text = text.replace("via: clusterIP", "via: dnsName") if service is HEADLESS else text
    (case,) = cases(parse_scenario(text.replace(*service), "f"), mode)
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


@pytest.mark.parametrize(("replicas", "needed"), [(2, 31), (3, 54)])
def test_several_backends_get_the_flows_that_reach_each(replicas: int, needed: int) -> None:
    assert flows("", "backends: [{}]", replicas) == needed
    assert flows("", "backends: [echo]", replicas) == needed
    assert flows("as: packet", "backends: [{}]", replicas) == needed


def test_clients_of_a_headless_name_pick_the_pod_so_one_flow_is_enough() -> None:
    assert flows("", "backends: [{}]", service=HEADLESS) == 1


@pytest.mark.parametrize(("replicas", "needed"), [(2, 31), (3, 20)])
def test_a_sticky_client_sends_what_hardly_sticks_by_chance(replicas: int, needed: int) -> None:
    sticky = ("  selector: {app: echo}", "  sessionAffinity: ClientIP\n  selector: {app: echo}")
    assert flows("", "backends: [{}], spread: sticky", replicas, service=sticky) == needed


def test_the_author_has_the_last_word_and_other_probes_send_one() -> None:
    assert flows("as: packet, flows: 1234", EVEN) == 1234
    assert flows("as: packet", "backends: [echo-1]") == 1


def warnings(flows: int, *, service: tuple[str, str] = ("", "")) -> list[str]:
    text = BASE.replace("expect: {outcome: delivered, source: preserved}", FEW.format(flows)).replace(*service)
    return [note for note in parse_scenario(text, "f").notes if "by chance" in note]


def test_check_warns_of_flows_that_miss_a_backend_by_chance_with_the_line_and_the_number_that_is_enough(
    told: Told,
) -> None:
    (warning,) = warnings(30)
    assert warning == told()
    assert warnings(31) == []


def test_a_client_with_affinity_reaches_one_backend_however_many_flows_it_sends() -> None:
    assert warnings(30, service=("  selector:", "  sessionAffinity: ClientIP\n  selector:")) == []


def test_check_warns_in_a_step_too_and_only_while_the_service_has_no_affinity() -> None:
    probe = (
        "{{name: {0}, from: client, to: {{service: echo, via: clusterIP}}, send: {{flows: 5}}, "
        "expect: {{outcome: delivered, source: preserved, backends: [echo-1, echo-2]}}}}"
    )
    steps = (
        "  steps:\n  - name: a\n    change: {pods: {client: {labels: {a: b}}}}\n"
        f"    probes: [{probe.format('p')}]\n"
        "  - name: b\n    change: {services: {echo: {spec: {sessionAffinity: ClientIP}}}}\n"
        f"    probes: [{probe.format('q')}]\n"
    )
    notes = parse_scenario(BASE.replace("---\n", f"{steps}---\n", 1), "f").notes
    assert [note.partition(": send.flows is")[0] for note in notes if "by chance" in note] == [
        "warning: line 20: spec.steps[0].probes[0].send.flows"
    ]
