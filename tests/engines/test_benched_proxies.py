"""``proxylab bench`` measures the real kube-proxy as it measures the embedded engines."""

import pytest

from proxylab.binaries.binary import Binary
from proxylab.client.session import Session
from proxylab.engines.protocol import EngineChoice, Upstream
from proxylab.features.bench.figures import Figure
from proxylab.features.bench.runs import measure


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
def test_the_real_kube_proxy_has_every_figure(mode: str, kube_proxy: Binary) -> None:
    upstream = Upstream(str(kube_proxy.path), kube_proxy.identity)
    with Session(EngineChoice(f"kube-proxy/{mode}", upstream=upstream)) as session:
        found = measure(session, services=4, endpoints=2, changes=2).figures
    assert {*found} == {*Figure}
    assert found[Figure.ENGINE_MEMORY] > 10_000_000, "a process of Go"
    assert found[Figure.COLD_START] > found[Figure.FULL_SYNC], "a start has a full sync, and the process besides"
