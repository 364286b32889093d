"""What steps have taken out of a lab: which ends are down, and which namespaces a blackhole silences."""

from msgspec.structs import replace
from scenario_cases import frontend, probe, two_nodes

from proxylab.plan.assembly import assemble
from proxylab.plan.outages import Absences, Links
from proxylab.report.reproduction.network import absent

PLAN = assemble(two_nodes(probe("p", "sender", frontend()))).plan


def test_a_pod_that_is_gone_is_mute_and_one_on_its_nodes_network_is_not() -> None:
    assert Absences(frozenset({"echo-1"})).blackhole(PLAN) == ("echo-1",)
    on_a_node = tuple(replace(pod, namespace=pod.node) if pod.name == "echo-1" else pod for pod in PLAN.pods)
    assert Absences(frozenset({"echo-1"})).blackhole(replace(PLAN, pods=on_a_node)) == ()


def test_a_deleted_pod_that_shares_its_namespace_with_a_live_one_gets_no_blackhole() -> None:
    shared = tuple(replace(pod, namespace="both") if pod.name.startswith("echo") else pod for pod in PLAN.pods)
    roles = tuple(replace(each, name="both") if each.name == "echo-1" else each for each in PLAN.namespaces)
    plan = replace(PLAN, pods=shared, namespaces=roles)
    gone = {pod.name for pod in shared if pod.namespace == "both"}
    assert Absences(frozenset(gone)).blackhole(plan) == ("both",)
    assert Absences(frozenset(sorted(gone)[1:])).blackhole(plan) == ()


def test_a_script_takes_down_the_end_that_the_lab_takes_down_and_forgets_what_it_does_not_rebuild() -> None:
    cut = Links(frozenset({("echo-1", "eth0"), ("nobody", "eth0")}))
    commands = list(absent(PLAN, Absences(frozenset({"echo-2"}), cut)))
    assert "ip -n echo-1 link set dev eth0 down" in commands
    assert "ip -n echo-2 -4 rule add from all blackhole priority 1" in commands
    assert len(commands) == 2
