"""Session affinity holds on each node alone: flows of one client that two nodes translated."""

import pytest
from msgspec.structs import replace
from recorded import World

from proxylab.addresses import Family
from proxylab.cluster.objects import Service, ServicePort
from proxylab.plan.dialled_service import DialledService
from proxylab.scenario.words import Frontend, Spread
from proxylab.verdict.causes.table import cause
from proxylab.verdict.judge import judge

PODS = ("echo-1", "echo-2")
REMEMBERS = "sessionAffinity is ClientIP, but each node remembers its clients for itself"


def why(spread: Spread, timeout: int | None, *nodes: str) -> str:
    """All flows of one client go to the two pods in turn, by rules of these nodes."""
    world = World(flows=2000, backends=PODS, spread=spread)
    seen = [each for flow in range(2000) for each in world.round_trip(flow, "echo-1" if flow % 10 else "echo-2")]
    counts = tuple(replace(world.translated(pod), node=node) for node in nodes for pod in PODS)
    verdict = judge(world.probe, world.resolved, None, world.evidence(seen, counts=counts))
    failed = next(each for each in verdict.verdicts if each.expectation == "spread")
    port = ServicePort(port=80, target_port=8080)
    service = Service(name="echo", ports=(port,), affinity_timeout=timeout)
    dialled = DialledService(
        service=service, port=port, family=Family.IPV4, via=Frontend.CLUSTER_IP, slices=(), pods=(), nodes=nodes
    )
    return cause(verdict.case, failed, service=dialled)


@pytest.mark.parametrize(
    ("timeout", "nodes", "is_named"),
    [(30, ("node-a", "node-b"), True), (30, ("node-a",), False), (None, ("node-a", "node-b"), False)],
)
def test_affinity_is_named_where_two_nodes_translated(
    timeout: int | None, nodes: tuple[str, ...], is_named: bool
) -> None:
    sentence = why(Spread.STICKY, timeout, *nodes)
    assert sentence.startswith("the flows of debug went to echo-2 and echo-1")
    assert (f"{REMEMBERS}, and node-a and node-b translated these flows" in sentence) is is_named
    assert REMEMBERS not in why(Spread.EVEN, timeout, *nodes)
