"""How long three nodes with the real kube-proxy take to stand and to have caught up.

The floor is what kube-proxy itself needs, measured in the same run: one node's, from its start to its rules.
"""

import time
from statistics import median

import pytest
from scenario_cases import host, node, pods, scenario

from proxylab.binaries.choose import Sources
from proxylab.client.session import Session
from proxylab.engines.protocol import EngineChoice, Upstream

pytestmark = pytest.mark.benchmark

ROUNDS = 3
AT_MOST = 2.5  # seconds, for three nodes on two cores


def seconds_to_stand(session: Session, nodes: int) -> float:
    names = [f"node-{number}" for number in range(nodes)]
    lab = scenario([node(name) for name in names], [pods("p", *names, replicas=3)], [host("client")])
    began = time.perf_counter()
    opened = session.open(lab)
    took = time.perf_counter() - began
    opened.execute(names[0], "true")  # or its proxies would run on in the next one, which is to start its own
    opened.close()
    return took


@pytest.mark.budget
@pytest.mark.parametrize("mode", ["iptables", "nftables"])
def test_three_nodes_stand_and_have_caught_up(mode: str, record_testsuite_property: object) -> None:
    cached = Sources.of_user().obtained()
    if not cached:
        pytest.skip("needs a kube-proxy in the cache; 'proxylab engines --obtain' puts one there")
    upstream = Upstream(str(cached[-1].path), cached[-1].identity)
    with Session(EngineChoice(f"kube-proxy/{mode}", upstream=upstream)) as session:
        seconds_to_stand(session, 1)  # the lab process starts with its first lab
        alone = median(seconds_to_stand(session, 1) for _ in range(ROUNDS))
        three = median(seconds_to_stand(session, 3) for _ in range(ROUNDS))
    record_testsuite_property(f"kube-proxy {mode}: one node, three nodes, seconds", f"{alone:.2f}, {three:.2f}")  # type: ignore[operator]
    print(f"{mode}: one node {alone:.2f} s, three {three:.2f} s")  # noqa: T201
    assert three <= AT_MOST
