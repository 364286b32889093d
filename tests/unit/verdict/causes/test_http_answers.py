"""Why a pod behind an Ingress controller got another X-Forwarded-For, or none."""

from ipaddress import ip_address

from golden_words import Told
from judging import DELIVERED
from msgspec.structs import replace

from proxylab.addresses import Family
from proxylab.cluster.objects import Service, ServicePort, TrafficPolicy
from proxylab.evidence.evidence import HttpReport
from proxylab.plan.dialled_service import DialledService
from proxylab.scenario.expect import HttpExpect
from proxylab.scenario.words import Frontend, Position
from proxylab.verdict.case import Case
from proxylab.verdict.causes.table import cause
from proxylab.verdict.judge import judge

NODE_A = ip_address("172.18.0.2")
CLUSTER = DialledService(
    service=Service(name="nginx", ports=(ServicePort(port=80, target_port=80),)),
    port=ServicePort(port=80, target_port=80),
    family=Family.IPV4,
    via=Frontend.LOAD_BALANCER_IP,
    slices=(),
    pods=(),
    nodes=("node-a",),
)
LOCAL = replace(CLUSTER, service=replace(CLUSTER.service, external_traffic_policy=TrafficPolicy.LOCAL))


def why(forwarded: str, service: DialledService, source: object = NODE_A) -> str:
    world = DELIVERED
    resolved = replace(world.resolved, addresses={"debug": (world.resolved.sender.address,)})
    report = HttpReport(0, 200, backend="shop", source=NODE_A, forwarded_for=forwarded)
    counts = (world.marked(), world.translated("echo-1"), world.masqueraded(1))
    evidence = world.evidence(world.round_trip(0, "echo-1", source), http=(report,), counts=counts)
    expect = HttpExpect(status=200, backends=("shop",), forwarded_for="debug")
    positions = {"outcome": Position("x", 1, 1), "http": Position("x", 1, 1)}
    probe = replace(world.probe, expect=replace(world.probe.expect, http=expect, positions=positions))
    (verdict,) = [each for each in judge(probe, resolved, None, evidence).verdicts if each.expectation == "http"]
    return cause(Case(probe, resolved, evidence), verdict, service=service)


def test_the_controllers_service_decides_what_the_controller_sees() -> None:
    saw = "echo-1 saw the connection come from 172.18.0.2, and wrote that into X-Forwarded-For."
    says = (
        "The Service's externalTrafficPolicy is Cluster, so node-a masquerades; Local keeps the address of a pod, too."
    )
    assert why(str(NODE_A), CLUSTER).startswith(f"{saw} {says}")
    assert why(str(NODE_A), LOCAL) == saw


def test_a_header_that_is_missing_comes_from_the_controller_alone(told: Told) -> None:
    assert why("", CLUSTER) == told()
    assert why("192.0.2.9", CLUSTER) == "", "the controller saw no such source"
