"""The judge on where flows arrive: at a reachable endpoint of the Service and its port, and nowhere else."""

from ipaddress import ip_address

import pytest
from golden_words import Told
from judging import FAIL, INCONCLUSIVE, PASS, REFUSED
from msgspec.structs import replace
from recorded import World

from proxylab.evidence.evidence import Direction, Evidence, Observation, RuleCount, TapLoss
from proxylab.plan.resolved import STACK, Destination, Receiver, ResolvedProbe
from proxylab.report.failure_text import explain
from proxylab.scenario.probes import AddressTarget
from proxylab.scenario.steps import StreamExpect
from proxylab.scenario.words import Outcome
from proxylab.verdict.case import ExpectedEnds
from proxylab.verdict.judge import judge
from proxylab.verdict.model import Judgement, ProbeVerdict, Verdict

WORLD = World(backends=("echo-1", "echo-2"))
NAMED = {"echo-1": 8080, "echo-2": 8081}
"""A named target port is another number in each pod."""


def resolved_probe_of(world: World, ports: dict[str, int], service_port: str = "default/echo:http") -> ResolvedProbe:
    endpoints = tuple(Destination(address=world.address(pod), port=port) for pod, port in ports.items())
    return replace(world.resolved, endpoints=endpoints, service_port=service_port)


def at_port(world: World, flow: int, pod: str, port: int) -> tuple[Observation, ...]:
    """A round trip to that port of the pod."""
    leaves, arrives, answers, hears = world.round_trip(flow, pod)
    return leaves, replace(arrives, destination_port=port), replace(answers, source_port=port), hears


def judged(world: World, resolved: ResolvedProbe, evidence: Evidence) -> ProbeVerdict:
    return judge(world.probe, resolved, None, evidence)


def endpoint_of(verdict: ProbeVerdict) -> Verdict | None:
    return next((each for each in verdict.verdicts if each.expectation == "endpoint"), None)


def test_another_port_of_the_right_pod_fails_and_both_ports_are_told(told: Told) -> None:
    rule = "-A KUBE-SEP-A -m comment --comment default/echo:http -j DNAT --to-destination 10.244.2.3:9090"
    counts = (RuleCount("node-a", "nat", "KUBE-SEP-A", rule, 1),)
    world = replace(WORLD, backends=("echo-1",))
    evidence = world.evidence(at_port(world, 0, "echo-1", 9090), counts=counts)
    verdict = judged(world, resolved_probe_of(world, NAMED), evidence)
    assert {each.expectation: each.judgement for each in verdict.verdicts} == {
        "outcome": PASS, "endpoint": FAIL, "reply": PASS, "backends": PASS,
    }  # fmt: skip
    port = endpoint_of(verdict)
    assert port is not None
    assert (port.expected, port.observed) == ("any of 2 endpoints", "10.244.2.3:9090")
    assert port.reasons == told()
    lines = explain(verdict, 200)
    assert lines == told()
    hops = [line.split() for line in lines]
    assert hops[hops.index(["expected", "10.244.2.3:8080"]) - 1][:3] == ["echo-1", "eth0", "in"]


def test_each_pod_has_its_own_number_and_that_of_another_is_wrong() -> None:
    world = replace(WORLD, flows=3)
    right = [*at_port(world, 0, "echo-1", 8080), *at_port(world, 1, "echo-2", 8081)]
    for port, judgement in ((8081, PASS), (8080, FAIL)):
        evidence = world.evidence([*right, *at_port(world, 2, "echo-2", port)])
        verdict = endpoint_of(judged(world, resolved_probe_of(world, NAMED), evidence))
        assert verdict is not None
        assert verdict.judgement is judgement
    assert verdict.example == 2


def test_one_wrong_port_among_thousands_of_flows_is_noticed() -> None:
    world = World(flows=3000)
    seen = [each for flow in range(3000) for each in at_port(world, flow, "echo-1", 9090 if flow == 2718 else 8080)]
    verdict = endpoint_of(judged(world, resolved_probe_of(world, NAMED), world.evidence(seen)))
    assert verdict is not None
    assert (verdict.judgement, verdict.example) == (FAIL, 2718)
    assert verdict.reasons[0].startswith("1 of 3,000 flows: it arrived at port 9090 of echo-1")


def test_an_endpoint_may_have_several_ports() -> None:
    """Pods of the host network share their node's address: each listens on a port of its own."""
    resolved = resolved_probe_of(WORLD, NAMED)
    also = Destination(address=WORLD.address("echo-1"), port=9090)
    evidence = WORLD.evidence(at_port(WORLD, 0, "echo-1", 9090))
    verdict = endpoint_of(judged(WORLD, replace(resolved, endpoints=(*resolved.endpoints, also)), evidence))
    assert verdict is not None
    assert verdict.judgement is PASS


def test_what_a_connection_is_refused_at_has_a_port_too() -> None:
    seen = [REFUSED.leaves(0), replace(REFUSED.arrives(0, "echo-1"), destination_port=9090), REFUSED.hears_reset(0)]
    verdict = endpoint_of(judged(REFUSED, resolved_probe_of(REFUSED, NAMED), REFUSED.evidence(seen)))
    assert verdict is not None
    assert verdict.judgement is FAIL


def test_where_no_service_is_dialled_a_flow_arrives_where_it_was_sent_to(told: Told) -> None:
    pod = WORLD.address("echo-1")
    resolved = replace(resolved_probe_of(WORLD, {"echo-1": 8080}, ""), destination=pod, port=8080)
    direct = [replace(each, destination=pod, destination_port=8080) for each in (WORLD.leaves(0),)]
    here, elsewhere, other = (
        judged(
            WORLD, resolved, WORLD.evidence([*direct, *at_port(WORLD, 0, name, port)[1:3], WORLD.hears(0, (pod, 8080))])
        )
        for name, port in (("echo-1", 8080), ("echo-1", 9090), ("echo-2", 8080))
    )
    verdicts = [endpoint_of(each) for each in (here, elsewhere, other)]
    assert [each.judgement for each in verdicts if each] == [PASS, FAIL, FAIL]
    assert [each.reasons for each in verdicts[1:] if each] == told()


def test_a_port_is_not_judged_where_none_is_known_or_nothing_is_to_arrive() -> None:
    resolved = resolved_probe_of(WORLD, NAMED)
    arrived = WORLD.evidence(WORLD.round_trip(0, "echo-1"))
    assert endpoint_of(judged(WORLD, replace(resolved, endpoints=(), service_port=""), arrived)) is None
    assert endpoint_of(judged(WORLD, resolved, WORLD.evidence([WORLD.leaves(0)]))) is None
    dropped = World(outcome=Outcome.DROPPED, at="node-a")
    resolved, evidence = resolved_probe_of(dropped, NAMED), dropped.evidence(dropped.round_trip(0, "echo-1"))
    assert endpoint_of(judged(dropped, resolved, evidence)) is None


def arrived_at(pod: str, resolved: ResolvedProbe, world: World = WORLD) -> tuple[Judgement, str]:
    verdict = endpoint_of(judged(world, resolved, world.evidence(world.round_trip(0, pod))))
    assert verdict is not None
    return verdict.judgement, "; ".join(verdict.reasons)


UNNAMED, SERVICE = replace(WORLD, backends=None), "default/echo:http"


def test_without_backends_a_flow_reaches_an_endpoint_of_the_service_and_nothing_else() -> None:
    only_first = resolved_probe_of(UNNAMED, {"echo-1": 8080})
    assert arrived_at("echo-1", only_first, UNNAMED) == (PASS, "")
    stranger = f"it arrived at echo-3, at 10.244.2.5:8080, which is no endpoint of {SERVICE}"
    assert arrived_at("echo-3", only_first, UNNAMED) == (FAIL, stranger)
    assert arrived_at("echo-3", replace(only_first, endpoints=()), UNNAMED) == (FAIL, stranger)


def test_an_endpoint_that_no_proxy_may_choose_is_none() -> None:
    resolved = resolved_probe_of(UNNAMED, {"echo-1": 8080, "echo-2": 8080})
    first, second = resolved.endpoints
    unready = replace(resolved, endpoints=(first, replace(second, is_reachable=False)))
    clause = f"it arrived at echo-2, at 10.244.2.4:8080, which is an endpoint that is not ready of {SERVICE}"
    assert arrived_at("echo-2", unready, UNNAMED) == (FAIL, clause)
    assert arrived_at("echo-2", unready) == (PASS, "")  # its author names it


def test_a_named_backend_has_its_endpoint_alone(told: Told) -> None:
    """Such as a pod of the host network: its node may have several addresses, and the Service has one of them."""
    other = ip_address("172.18.0.33")
    world = replace(WORLD, pods=("echo-1", "echo-2", "echo-3"))
    resolved = resolved_probe_of(world, {"echo-1": 8080, "echo-2": 8080})
    (receiver,) = (each for each in resolved.receivers if each.name == "echo-1")
    resolved = replace(resolved, receivers=(*resolved.receivers, replace(receiver, address=other)))
    leaves, arrives, answers, hears = world.round_trip(0, "echo-1")
    seen = [leaves, replace(arrives, destination=other), replace(answers, source=other), hears]
    verdict = endpoint_of(judged(world, resolved, world.evidence(seen)))
    assert verdict is not None
    assert (verdict.judgement, verdict.reasons) == (
        FAIL, told()
    )  # fmt: skip


def test_a_named_backend_that_is_gone_from_the_slices_has_any_address() -> None:
    assert arrived_at("echo-2", resolved_probe_of(WORLD, {"echo-1": 8080})) == (PASS, "")


def test_what_passes_is_what_was_expected_in_words_too() -> None:
    """A named backend beyond the endpoints, such as a cache of DNS that a node runs at the dialled address."""
    world, resolved = WORLD, resolved_probe_of(WORLD, {"echo-1": 8080})
    beyond, both = world.round_trip(0, "echo-2"), [*world.round_trip(0, "echo-1"), *world.round_trip(1, "echo-2")]
    found = [
        endpoint_of(judged(world, replace(resolved, flows=flows), world.evidence(seen, sent=flows)))
        for flows, seen in ((1, beyond), (2, both))
    ]
    assert [(each.judgement, each.expected, each.observed) for each in found if each] == [
        (PASS, "10.244.2.4:8080", "10.244.2.4:8080"),
        (PASS, "any of 2 endpoints", "2 endpoints"),
    ]


def test_what_nothing_translated_arrives_at_no_endpoint(told: Told) -> None:
    """Such as at a program of the node that listens on the node port."""
    resolved = resolved_probe_of(UNNAMED, {"echo-1": 8080})
    receiver = Receiver(
        name="daemon", namespace="node-a", device=STACK, address=resolved.destination, ports=(resolved.port,)
    )
    resolved = replace(resolved, receivers=(*resolved.receivers, receiver))
    (sent,) = [WORLD.leaves(0)]
    came = replace(sent, netns_name="node-a", device=STACK, direction=Direction.IN, at=1001)
    verdict = endpoint_of(judged(UNNAMED, resolved, UNNAMED.evidence([sent, came, WORLD.hears(0)])))
    assert verdict is not None
    assert verdict.judgement is FAIL
    assert verdict.reasons == told()


def test_a_right_port_is_no_pass_where_a_tap_lost_frames() -> None:
    evidence = WORLD.evidence(WORLD.round_trip(0, "echo-1"), losses=(TapLoss("echo-1", "eth0", 1),))
    verdict = endpoint_of(judged(WORLD, resolved_probe_of(WORLD, NAMED), evidence))
    assert verdict is not None
    assert verdict.judgement is INCONCLUSIVE


def test_each_packet_of_a_flow_must_come_to_the_right_port() -> None:
    """The first came right, and the repeated one to another port."""
    leaves, arrives, *back = at_port(WORLD, 0, "echo-1", 8080)
    again = replace(leaves, at=2000), replace(arrives, destination_port=9090, at=2001)
    evidence = WORLD.evidence([leaves, arrives, *again, *back])
    port = endpoint_of(judged(WORLD, resolved_probe_of(WORLD, NAMED), evidence))
    assert port is not None
    assert (port.judgement, port.observed) == (FAIL, "10.244.2.3:8080 and 10.244.2.3:9090")


def test_a_dialled_address_at_the_port_of_a_service_without_endpoints_is_where_flows_may_arrive() -> None:
    probe = replace(WORLD.probe, target=AddressTarget(address=WORLD.address("echo-1"), port=8080))
    probe = replace(probe, expect=replace(probe.expect, backends=None))
    resolved = replace(
        WORLD.resolved, destination=WORLD.address("echo-1"), port=8080, endpoints=(), service_port="default/echo:http"
    )
    for port, judgement in ((8080, PASS), (9090, FAIL)):
        leaves, arrives, answers, hears = at_port(WORLD, 0, "echo-1", port)
        leaves = replace(leaves, destination=resolved.destination, destination_port=8080)
        hears = replace(hears, source=resolved.destination, source_port=8080)
        evidence = WORLD.evidence((leaves, arrives, answers, hears))
        verdict = endpoint_of(judge(probe, resolved, None, evidence))
        assert verdict is not None
        assert verdict.judgement is judgement


@pytest.mark.parametrize("or_dialled", [True, False])
def test_a_node_port_where_none_need_be_served_may_be_the_nodes_own(or_dialled: bool) -> None:
    """The daemon at the dialled address, or an endpoint of the Service; another port or pod is neither."""
    probe = replace(WORLD.probe, target=AddressTarget(address=WORLD.address("echo-1"), port=30080))
    probe = replace(probe, expect=replace(probe.expect, backends=None))
    resolved = replace(
        WORLD.resolved,
        destination=WORLD.address("echo-1"),
        port=30080,
        endpoints=(Destination(address=WORLD.address("echo-2"), port=8080),),
        service_port="default/echo:http",
        or_dialled=or_dialled,
    )
    for pod, port, right in (
        ("echo-1", 30080, or_dialled),
        ("echo-2", 8080, True),
        ("echo-1", 8080, False),
        ("echo-2", 30080, False),
    ):
        leaves, arrives, answers, hears = at_port(WORLD, 0, pod, port)
        leaves = replace(leaves, destination=resolved.destination, destination_port=30080)
        hears = replace(hears, source=resolved.destination, source_port=30080)
        verdict = endpoint_of(judge(probe, resolved, None, WORLD.evidence((leaves, arrives, answers, hears))))
        assert verdict is not None
        assert verdict.judgement is (PASS if right else FAIL), (pod, port)
        if right:
            witness = "what was dialled" if pod == "echo-1" else "an endpoint of default/echo:http"
            assert verdict.witnesses == (witness,)


def test_an_endpoint_is_unready_where_none_at_its_address_and_port_may_be_reached() -> None:
    ready = Destination(address=WORLD.address("echo-1"), port=8080)
    unready = replace(ready, is_reachable=False)
    for endpoints, is_unready in (((unready,), True), ((unready, ready), False), ((ready,), False), ((), False)):
        resolved = replace(WORLD.resolved, endpoints=endpoints, service_port="default/echo:http")
        ends = ExpectedEnds.of_probe(resolved, WORLD.probe.expect, WORLD.probe.target)
        assert ends.is_unready((ready.address, 8080)) is is_unready
        assert not ends.is_unready((ready.address, 8081))


def test_a_stream_arrives_where_it_was_sent_to_only_if_it_dials_no_service() -> None:
    expect, dialled = StreamExpect(position=WORLD.probe.position), (WORLD.resolved.destination, WORLD.resolved.port)
    assert list(ExpectedEnds.of_stream(WORLD.resolved, expect).reachable) == [dialled]
    of_service = replace(WORLD.resolved, service_port="default/echo:http")
    assert list(ExpectedEnds.of_stream(of_service, expect).reachable) == []


@pytest.mark.parametrize("pod", ["echo-1", "echo-2"])
def test_an_endpoint_that_is_dialled_by_its_own_address_is_one_of_the_service(pod: str) -> None:
    """As through the name of a headless Service, whichever of its endpoints the name gave."""
    end = (WORLD.address(pod), 8080)
    resolved = resolved_probe_of(WORLD, {"echo-1": 8080, "echo-2": 8080})
    resolved = replace(resolved, destination=end[0], port=end[1])
    sent = replace(WORLD.leaves(0), destination=end[0], destination_port=end[1])
    told = WORLD.evidence([sent, *at_port(WORLD, 0, pod, 8080)[1:3], WORLD.hears(0, end)])
    verdict = endpoint_of(judged(WORLD, resolved, told))
    assert verdict is not None
    assert (verdict.judgement, verdict.witnesses) == (PASS, ("an endpoint of default/echo:http",))
