"""What HTTP answers report."""

from ipaddress import ip_address
from typing import Any

import pytest
from golden_words import Told
from judging import DELIVERED, FAIL, INCONCLUSIVE, PASS
from msgspec.structs import replace
from recorded import World

from proxylab.addresses import IPAddress
from proxylab.evidence.evidence import Direction, Evidence, HttpReport, Leg, Observation, Packet
from proxylab.plan.resolved import STACK, Destination, HttpRequest, Receiver
from proxylab.scenario.expect import HttpExpect
from proxylab.scenario.probes import PodTarget, ServiceTarget
from proxylab.scenario.words import Frontend, Position
from proxylab.verdict.judge import judge
from proxylab.verdict.model import Judgement, Verdict


def expecting(world: World, evidence: Evidence, key: str, **expect: object) -> Verdict:
    positions = {each: Position("x", 1, 1) for each in ("outcome", *expect)}
    probe = replace(world.probe, expect=replace(world.probe.expect, positions=positions, **expect))  # type: ignore[arg-type]
    verdicts = judge(probe, world.resolved, None, evidence).verdicts
    return next(verdict for verdict in verdicts if verdict.expectation == key)


@pytest.mark.parametrize(
    ("report", "judgement", "reason"),
    [
        (HttpReport(0, 200, 2), PASS, None),
        (HttpReport(0, 503, 2), FAIL, "the status was 503"),
        (HttpReport(0, 200, 1), FAIL, "it reported 1 local endpoint"),
        (HttpReport(0, 200), FAIL, "it reported no number of local endpoints"),
        (HttpReport(0, 0, error="ECONNREFUSED"), FAIL, "no answer by HTTP: the socket reports ECONNREFUSED"),
        (HttpReport(0, 0, error="timeout"), FAIL, "no answer came by HTTP"),
        (None, INCONCLUSIVE, "no HTTP request was sent"),
    ],
)
def test_http_is_judged_by_status_and_body(report: HttpReport | None, judgement: Judgement, reason: str | None) -> None:
    evidence = DELIVERED.evidence(DELIVERED.round_trip(0, "echo-1"), http=(report,) if report else ())
    verdict = expecting(DELIVERED, evidence, "http", http=HttpExpect(status=200, local_endpoints=2))
    assert verdict.judgement is judgement
    assert verdict.reasons[:1] == ((reason,) if reason else ())


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (HttpReport(0, 200, headers={"x-weight": "2"}, body={"service.name": '"echo"', "healthy": "true"}), None),
        (HttpReport(0, 200, body={"service.name": '"echo"', "healthy": "true"}), "it had no header X-Weight"),
        (HttpReport(0, 200, headers={"x-weight": "1"}), "the header X-Weight was 1"),
        (HttpReport(0, 200, headers={"x-weight": "2"}), "its body had no service.name"),
        (
            HttpReport(0, 200, headers={"x-weight": "2"}, body={"service.name": '"other"'}),
            'its body said service.name: "other"',
        ),
        (
            HttpReport(0, 200, headers={"x-weight": "2"}, body={"service.name": '"echo"', "healthy": '"true"'}),
            'its body said healthy: "true"',
        ),
    ],
)
def test_headers_and_the_body_s_values_are_compared(report: HttpReport, reason: str | None) -> None:
    evidence = DELIVERED.evidence(DELIVERED.round_trip(0, "echo-1"), http=(report,))
    wanted = HttpExpect(status=200, headers={"X-Weight": "2"}, body={"service.name": '"echo"', "healthy": "true"})
    verdict = expecting(DELIVERED, evidence, "http", http=wanted)
    assert verdict.judgement is (FAIL if reason else PASS)
    assert verdict.reasons[:1] == ((reason,) if reason else ())
    assert verdict.expected == '200, X-Weight: 2, service.name: "echo", healthy: true'


@pytest.mark.parametrize(
    ("target", "judged"),
    [
        (ServiceTarget(service="echo", via=Frontend.HEALTH_CHECK_NODE_PORT), ["outcome", "reply", "http"]),
        (PodTarget(pod="echo-1", port=8080), ["http"]),
    ],
)
def test_an_outcome_that_no_key_asks_for_is_judged_where_a_service_answers_by_http(
    target: ServiceTarget | PodTarget, judged: list[str]
) -> None:
    probe = replace(DELIVERED.probe, expect=replace(DELIVERED.probe.expect, http=HttpExpect(status=200), positions={}))
    probe = replace(probe, target=target, expect=replace(probe.expect, backends=None, source=None))
    evidence = DELIVERED.evidence(DELIVERED.round_trip(0, "echo-1"), http=(HttpReport(0, 200),))
    assert [each.expectation for each in judge(probe, DELIVERED.resolved, None, evidence).verdicts] == judged


CONTROLLER, POD, CLIENT = ip_address("10.244.9.9"), "echo-1", ip_address("203.0.113.10")
BEHIND = HttpReport(0, 200, backend=POD, source=CONTROLLER, forwarded_for=str(CLIENT))
WANTED = HttpExpect(status=200, backends=(POD,), source=str(CONTROLLER), forwarded_for="client")


def opened(source: IPAddress = CONTROLLER, flow: int = 0) -> Observation:
    """The SYN of the connection that a controller opens, where the pod's tap sees it."""
    receiver = next(each for each in DELIVERED.resolved.receivers if each.name == POD)
    (seen, *_) = DELIVERED.round_trip(0, POD)
    return replace(
        seen,
        flow=flow,
        netns_name=POD,
        direction=Direction.IN,
        packet=Packet.REQUEST,
        source=source,
        destination=receiver.address,
        leg=Leg.ONWARD,
    )


@pytest.mark.parametrize(
    ("report", "seen", "judgement", "reason"),
    [
        (BEHIND, (opened(),), PASS, None),
        (replace(BEHIND, backend="echo-2"), (opened(),), FAIL, "echo-2 answered"),
        (replace(BEHIND, backend="", status=503), (), FAIL, "the status was 503"),
        (replace(BEHIND, forwarded_for="10.244.0.1"), (opened(),), FAIL, "the pod saw X-Forwarded-For 10.244.0.1"),
        (
            replace(BEHIND, source=CLIENT),
            (opened(CLIENT),),
            FAIL,
            "the pod saw a connection from 203.0.113.10, of client",
        ),
        (BEHIND, (), INCONCLUSIVE, "echo-1 answered, and no tap saw the request come to it"),
        (BEHIND, (opened(flow=1),), INCONCLUSIVE, "echo-1 answered, and no tap saw the request come to it"),
        (
            BEHIND,
            (opened(CLIENT),),
            INCONCLUSIVE,
            "echo-1 says that the request came from 10.244.9.9, and a tap saw it come from 203.0.113.10",
        ),
    ],
)
def test_the_pod_behind_an_ingress_is_judged_by_its_answer_and_the_packets_to_it(
    report: HttpReport, seen: tuple[Observation, ...], judgement: Judgement, reason: str | None
) -> None:
    resolved = replace(DELIVERED.resolved, addresses={"client": (CLIENT,)})
    evidence = DELIVERED.evidence(DELIVERED.round_trip(0, POD), http=(report,), behind=seen)
    probe = replace(DELIVERED.probe, expect=replace(DELIVERED.probe.expect, http=WANTED))
    (verdict,) = (each for each in judge(probe, resolved, None, evidence).verdicts if each.expectation == "http")
    assert verdict.judgement is judgement
    assert (reason in verdict.reasons) if reason else not verdict.reasons


@pytest.mark.parametrize("status", [200, 201, 204, 299, 100, 300, 404, 503])
def test_a_status_of_the_same_class_is_another_status(status: int) -> None:
    evidence = DELIVERED.evidence(DELIVERED.round_trip(0, "echo-1"), http=(HttpReport(0, status),))
    verdict = expecting(DELIVERED, evidence, "http", http=HttpExpect(status=200))
    assert (verdict.judgement is PASS) is (status == 200)
    assert status == 200 or verdict.reasons == (f"the status was {status}",)


def answers_of(*pods: str, flows: int = 0, **expect: object) -> Verdict:
    """The verdict where each flow gets its answer from one of these pods, each behind its own request."""
    world = World(flows=flows or len(pods))
    seen = [each for flow in range(world.flows) for each in world.round_trip(flow, "echo-1")]
    reports = tuple(HttpReport(flow, 200, backend=pod) for flow, pod in enumerate(pods))
    return expecting(world, world.evidence(seen, http=reports), "http", http=HttpExpect(status=200, **expect))  # type: ignore[arg-type]


@pytest.mark.parametrize("number", range(3))
def test_each_flow_gets_one_answer_and_each_answer_counts(number: int, told: Told) -> None:
    world = World(flows=3)
    seen = [each for flow in range(3) for each in world.round_trip(flow, "echo-1")]
    reports = [HttpReport(flow, 200) for flow in range(3)]
    wanted = HttpExpect(status=200)
    assert expecting(world, world.evidence(seen, http=tuple(reports)), "http", http=wanted).judgement is PASS
    twice = expecting(world, world.evidence(seen, http=(*reports, reports[number])), "http", http=wanted)
    assert (twice.judgement, twice.reasons) == (INCONCLUSIVE, told())
    assert twice.example == number
    lacking = expecting(
        world, world.evidence(seen, http=(*reports[:number], *reports[number + 1 :])), "http", http=wanted
    )
    assert (lacking.judgement, lacking.reasons) == (INCONCLUSIVE, told())
    wrong = [*reports[:number], replace(reports[number], status=503), *reports[number + 1 :]]
    failed = expecting(world, world.evidence(seen, http=tuple(wrong)), "http", http=wanted)
    assert (failed.judgement, failed.example) == (FAIL, number)
    second = expecting(
        world, world.evidence(seen, http=(*reports, replace(reports[number], status=503))), "http", http=wanted
    )
    assert (second.judgement, second.example) == (FAIL, number)


def test_an_answer_to_no_flow_of_the_probe_is_no_answer(told: Told) -> None:
    evidence = DELIVERED.evidence(DELIVERED.round_trip(0, "echo-1"), http=(HttpReport(0, 200), HttpReport(7, 200)))
    verdict = expecting(DELIVERED, evidence, "http", http=HttpExpect(status=200))
    assert verdict.reasons == told()


def test_each_expected_backend_must_answer_a_request() -> None:
    missed = answers_of("echo-1", "echo-2", "echo-1", backends=("echo-1", "echo-2", "echo-3"))
    assert (missed.judgement, missed.reasons[0]) == (FAIL, "no request came to echo-3")
    two = answers_of("echo-2", "echo-2", backends=("echo-1", "echo-2", "echo-3"))
    assert two.reasons[0] == "no request came to echo-1 and echo-3"
    stranger = answers_of("echo-1", "echo-2", "echo-3", backends=("echo-1", "echo-2"))
    assert (stranger.judgement, stranger.reasons[0]) == (FAIL, "1 of 3 flows: echo-3 answered")


END = opened().destination, opened().destination_port
HERE, ELSEWHERE = Destination(address=END[0], port=END[1]), Destination(address=ip_address("10.244.7.7"), port=8080)
BARE = HttpReport(0, 200)
ON_A_NODE = Receiver(
    name="agent", namespace="node-a", device=STACK, address=ip_address("172.18.0.2"), ports=(9000, 9001)
)
AT_A_NODE = Destination(address=ON_A_NODE.address, port=9001)
CAME = f"the request came to {POD}, at {END[0]}:{END[1]}"
NO_ENDPOINT = "which is no endpoint behind shop.example/cart"
BY_ITSELF = "the controller answered by itself: no tap saw a request come to an endpoint behind shop.example/cart"


@pytest.mark.parametrize(
    ("report", "seen", "due", "wanted", "reason"),
    [
        (BARE, (opened(),), (HERE,), {}, ""),
        (BARE, (opened(),), (ELSEWHERE, HERE), {}, ""),
        (BARE, (opened(),), None, {}, ""),
        (BARE, (), None, {}, ""),
        (BARE, (opened(),), (ELSEWHERE,), {}, f"{CAME}, {NO_ENDPOINT}"),
        (BARE, (opened(),), (), {}, f"{CAME}, {NO_ENDPOINT}"),
        (
            BARE,
            (opened(),),
            (replace(HERE, port=8081),),
            {},
            f"{CAME}, {NO_ENDPOINT}",
        ),
        (BARE, (opened(), replace(opened(), netns_name="node-b", destination_port=9)), (HERE,), {}, ""),
        (BARE, (opened(), replace(opened(), netns_name="echo-2", destination_port=9)), (HERE,), {}, "came to echo-2"),
        (BARE, (), (ELSEWHERE, AT_A_NODE), {}, ""),
        (replace(BARE, backend=POD, source=CONTROLLER), (opened(),), (ELSEWHERE,), {"backends": (POD,)}, ""),
        (BARE, (), (HERE,), {}, BY_ITSELF),
        (BARE, (), (), {}, BY_ITSELF),
        (BARE, (replace(opened(), direction=Direction.OUT),), (HERE,), {}, BY_ITSELF),
        (BARE, (replace(opened(), packet=Packet.REPLY),), (HERE,), {}, BY_ITSELF),
        (HttpReport(0, 503), (), (), {"status": 503}, ""),
        (HttpReport(0, 308), (), (HERE,), {"status": 308}, ""),
        (HttpReport(0, 503), (opened(),), (), {"status": 503}, CAME),
        (replace(BARE, backend="agent"), (), (AT_A_NODE,), {}, ""),
        (replace(BARE, backend="agent"), (), (replace(AT_A_NODE, port=9002),), {}, f"agent answered, {NO_ENDPOINT}"),
        (replace(BARE, backend="agent"), (), (replace(AT_A_NODE, port=9002),), {"backends": ("agent",)}, ""),
        (BARE, (), (AT_A_NODE,), {}, ""),
    ],
)
def test_an_answer_behind_an_ingress_comes_from_an_endpoint_to_which_host_and_path_lead(
    report: HttpReport,
    seen: tuple[Observation, ...],
    due: tuple[Destination, ...] | None,
    wanted: dict[str, Any],
    reason: str,
) -> None:
    request = HttpRequest(host="shop.example", path="/cart", endpoints=due)
    receivers = (*DELIVERED.resolved.receivers, ON_A_NODE)
    resolved = replace(DELIVERED.resolved, request=request, receivers=receivers)
    http = HttpExpect(**{"status": 200, **wanted})
    evidence = DELIVERED.evidence(DELIVERED.round_trip(0, POD), http=(report,), behind=seen)
    probe = replace(DELIVERED.probe, expect=replace(DELIVERED.probe.expect, http=http))
    (verdict,) = (each for each in judge(probe, resolved, None, evidence).verdicts if each.expectation == "http")
    assert (verdict.judgement, reason in "".join(verdict.reasons)) == (FAIL if reason else PASS, True), verdict


def test_the_connection_of_a_proxy_to_the_controller_is_none_of_the_controllers() -> None:
    to_controller = replace(opened(), netns_name="controller", destination=ip_address("10.244.9.9"))
    request = HttpRequest(host="shop.example", path="/", endpoints=(HERE,))
    endpoints = tuple(Destination(address=each, port=80) for each in (CLIENT, to_controller.destination))
    resolved = replace(DELIVERED.resolved, request=request, endpoints=endpoints)
    evidence = DELIVERED.evidence(DELIVERED.round_trip(0, POD), http=(BARE,), behind=(to_controller, opened()))
    probe = replace(DELIVERED.probe, expect=replace(DELIVERED.probe.expect, http=HttpExpect(status=200)))
    (verdict,) = (each for each in judge(probe, resolved, None, evidence).verdicts if each.expectation == "http")
    assert verdict.judgement is PASS


@pytest.mark.parametrize("number", range(3))
def test_each_request_through_an_ingress_must_come_to_an_endpoint(number: int, told: Told) -> None:
    world = World(flows=3)
    seen = [each for flow in range(3) for each in world.round_trip(flow, POD)]
    reports = tuple(HttpReport(flow, 200) for flow in range(3))
    astray = tuple(
        replace(opened(flow=flow), destination_port=9 if flow == number else END[1], leg=Leg.ONWARD)
        for flow in range(3)
    )  # fmt: skip
    request = HttpRequest(host="shop.example", path="/cart", endpoints=(HERE,))
    resolved = replace(world.resolved, request=request)
    probe = replace(world.probe, expect=replace(world.probe.expect, http=HttpExpect(status=200)))
    verdicts = judge(probe, resolved, None, world.evidence(seen, http=reports, behind=astray)).verdicts
    (verdict,) = (each for each in verdicts if each.expectation == "http")
    assert (verdict.judgement, verdict.example) == (FAIL, number)
    assert verdict.reasons == told()


def test_of_a_request_without_an_answer_no_more_is_said() -> None:
    request = HttpRequest(host="shop.example", path="/cart", endpoints=(HERE,))
    resolved = replace(DELIVERED.resolved, request=request)
    evidence = DELIVERED.evidence(DELIVERED.round_trip(0, POD), http=(HttpReport(0, 0, error="ECONNRESET"),))
    probe = replace(DELIVERED.probe, expect=replace(DELIVERED.probe.expect, http=HttpExpect(status=200)))
    (verdict,) = (each for each in judge(probe, resolved, None, evidence).verdicts if each.expectation == "http")
    assert verdict.reasons == ("no answer by HTTP: ECONNRESET",)
