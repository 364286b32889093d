"""The judge on the port at which flows arrive: it follows from the Service, and any other is wrong."""

from ipaddress import ip_address

from judging import FAIL, INCONCLUSIVE, PASS, REFUSED
from msgspec.structs import replace
from recorded import World

from proxylab.evidence.evidence import Evidence, Observation, RuleCount, TapLoss
from proxylab.plan.resolved import Destination, ResolvedProbe
from proxylab.report.failure_text import explain
from proxylab.scenario.words import Outcome
from proxylab.verdict.judge import judge
from proxylab.verdict.model import ProbeVerdict, Verdict

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


def port_of(verdict: ProbeVerdict) -> Verdict | None:
    return next((each for each in verdict.verdicts if each.expectation == "port"), None)


def test_another_port_of_the_right_pod_fails_and_both_ports_are_told() -> None:
    rule = "-A KUBE-SEP-A -m comment --comment default/echo:http -j DNAT --to-destination 10.244.2.3:9090"
    counts = (RuleCount("node-a", "nat", "KUBE-SEP-A", rule, 1),)
    evidence = WORLD.evidence(at_port(WORLD, 0, "echo-1", 9090), counts=counts)
    verdict = judged(WORLD, resolved_probe_of(WORLD, NAMED), evidence)
    assert {each.expectation: each.judgement for each in verdict.verdicts} == {
        "outcome": PASS, "port": FAIL, "reply": PASS, "backends": PASS,
    }  # fmt: skip
    port = port_of(verdict)
    assert port is not None
    assert (port.expected, port.observed) == ("8080 or 8081", "9090")
    assert port.reasons == (
        "it arrived at port 9090 of echo-1, not at port 8080, the target port of default/echo:http there",
    )
    lines = explain(verdict, 200)
    assert (
        '  why: node-a translated the packet to 10.244.2.3:9090 by its rule "default/echo:http" in KUBE-SEP-A, but the '
        "endpoint of default/echo:http is 10.244.2.3:8080." in lines
    )
    hops = [line.split() for line in lines]
    assert hops[hops.index(["expected", "10.244.2.3:8080"]) - 1][:3] == ["echo-1", "eth0", "in"]


def test_each_pod_has_its_own_number_and_that_of_another_is_wrong() -> None:
    world = replace(WORLD, flows=3)
    right = [*at_port(world, 0, "echo-1", 8080), *at_port(world, 1, "echo-2", 8081)]
    for port, judgement in ((8081, PASS), (8080, FAIL)):
        evidence = world.evidence([*right, *at_port(world, 2, "echo-2", port)])
        verdict = port_of(judged(world, resolved_probe_of(world, NAMED), evidence))
        assert verdict is not None
        assert verdict.judgement is judgement
    assert verdict.example == 2


def test_one_wrong_port_among_thousands_of_flows_is_noticed() -> None:
    world = World(flows=3000)
    seen = [each for flow in range(3000) for each in at_port(world, flow, "echo-1", 9090 if flow == 2718 else 8080)]
    verdict = port_of(judged(world, resolved_probe_of(world, NAMED), world.evidence(seen)))
    assert verdict is not None
    assert (verdict.judgement, verdict.example) == (FAIL, 2718)
    assert verdict.reasons[0].startswith("1 of 3,000 flows: it arrived at port 9090 of echo-1")


def test_an_endpoint_may_have_several_ports() -> None:
    """Pods of the host network share their node's address: each listens on a port of its own."""
    resolved = resolved_probe_of(WORLD, NAMED)
    also = Destination(address=WORLD.address("echo-1"), port=9090)
    evidence = WORLD.evidence(at_port(WORLD, 0, "echo-1", 9090))
    verdict = port_of(judged(WORLD, replace(resolved, endpoints=(*resolved.endpoints, also)), evidence))
    assert verdict is not None
    assert verdict.judgement is PASS


def test_what_a_connection_is_refused_at_has_a_port_too() -> None:
    seen = [REFUSED.leaves(0), replace(REFUSED.arrives(0, "echo-1"), destination_port=9090), REFUSED.hears_reset(0)]
    verdict = port_of(judged(REFUSED, resolved_probe_of(REFUSED, NAMED), REFUSED.evidence(seen)))
    assert verdict is not None
    assert verdict.judgement is FAIL


def test_where_no_service_is_dialled_a_flow_arrives_where_it_was_sent_to() -> None:
    pod = WORLD.address("echo-1")
    resolved = replace(resolved_probe_of(WORLD, {"echo-1": 8080}, ""), destination=pod, port=8080)
    direct = [replace(each, destination=pod, destination_port=8080) for each in (WORLD.leaves(0),)]
    here, elsewhere, other = (
        judged(
            WORLD, resolved, WORLD.evidence([*direct, *at_port(WORLD, 0, name, port)[1:3], WORLD.hears(0, (pod, 8080))])
        )
        for name, port in (("echo-1", 8080), ("echo-1", 9090), ("echo-2", 8080))
    )
    verdicts = [port_of(each) for each in (here, elsewhere, other)]
    assert [each.judgement for each in verdicts if each] == [PASS, FAIL, FAIL]
    assert [each.reasons for each in verdicts[1:] if each] == [
        ("it arrived at port 9090 of echo-1, not at port 8080 that was dialled",),
        ("it arrived at 10.244.2.4:8080, not at 10.244.2.3:8080 that was dialled",),
    ]


def test_a_port_is_not_judged_where_none_is_known_or_nothing_is_to_arrive() -> None:
    resolved = resolved_probe_of(WORLD, NAMED)
    arrived = WORLD.evidence(WORLD.round_trip(0, "echo-1"))
    assert port_of(judged(WORLD, replace(resolved, endpoints=()), arrived)) is None
    assert port_of(judged(WORLD, resolved, WORLD.evidence([WORLD.leaves(0)]))) is None
    dropped = World(outcome=Outcome.DROPPED, at="node-a")
    assert (
        port_of(judged(dropped, resolved_probe_of(dropped, NAMED), dropped.evidence(dropped.round_trip(0, "echo-1"))))
        is None
    )
    # An address at which the Service has no endpoint, such as that of one that has just gone: ``backends`` judges it.
    gone = replace(WORLD, addresses={"echo-2": ip_address("10.244.2.77")})
    found = port_of(
        judged(gone, resolved_probe_of(gone, {"echo-1": 8080}), gone.evidence(at_port(gone, 0, "echo-2", 9090)))
    )
    assert found is not None
    assert found.judgement is PASS


def test_a_right_port_is_no_pass_where_a_tap_lost_frames() -> None:
    evidence = WORLD.evidence(WORLD.round_trip(0, "echo-1"), losses=(TapLoss("echo-1", "eth0", 1),))
    verdict = port_of(judged(WORLD, resolved_probe_of(WORLD, NAMED), evidence))
    assert verdict is not None
    assert verdict.judgement is INCONCLUSIVE


def test_each_packet_of_a_flow_must_come_to_the_right_port() -> None:
    """The first came right, and the repeated one to another port."""
    leaves, arrives, *back = at_port(WORLD, 0, "echo-1", 8080)
    again = replace(leaves, at=2000), replace(arrives, destination_port=9090, at=2001)
    evidence = WORLD.evidence([leaves, arrives, *again, *back])
    port = port_of(judged(WORLD, resolved_probe_of(WORLD, NAMED), evidence))
    assert port is not None
    assert (port.judgement, port.observed) == (FAIL, "8080 and 9090")
