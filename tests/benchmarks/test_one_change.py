"""What one changed Service costs among many: the embedded engine against the real kube-proxy, in one run.

``proxylab bench`` measures both: what they say themselves of a sync, and when the first packet meets the new rules.
``-rP`` shows the figures of a run that holds.
"""

import json
import sys
from typing import Any

import pytest

from proxylab.binaries.choose import Sources
from proxylab.client.session import Session
from proxylab.engines.protocol import EngineChoice, Upstream
from proxylab.features.bench.figures import BenchedSize, Figure
from proxylab.features.bench.runs import measure

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]

ENGINES = ("embedded/iptables", "kube-proxy/iptables", "embedded/nftables", "kube-proxy/nftables")
SIZES = (1000, 5000)
ROUNDS, CHANGES = 2, 7
PATIENCE = 300.0
AT_MOST = {"iptables": 2.0, "nftables": 1.0}  # times what kube-proxy takes in the same mode
TOLD = (Figure.ONE_CHANGE, Figure.LATENCY_P50)


@pytest.mark.budget
@pytest.mark.parametrize("size", SIZES)
def test_one_changed_service(size: int, record_testsuite_property: Any) -> None:
    cached = Sources.of_user().obtained()
    if not cached:
        pytest.skip("needs a kube-proxy in the cache; 'proxylab engines --obtain' puts one there")
    upstream = Upstream(str(cached[-1].path), cached[-1].identity)
    measured = {engine: BenchedSize(services=size) for engine in ENGINES}
    for _ in range(ROUNDS):
        for engine in ENGINES:
            choice = EngineChoice(
                engine, upstream=upstream if engine.startswith("kube-proxy") else None, sync_seconds=PATIENCE
            )
            with Session(choice) as session:
                measured[engine] = measured[engine].with_round(measure(session, size, 3, CHANGES).figures)
    found = {engine: {each: 1000 * (of.median(each) or 0.0) for each in TOLD} for engine, of in measured.items()}
    said = f"one of {size:,} services changes, medians with kube-proxy {cached[-1].version}: " + "; ".join(
        f"{engine} {each[Figure.ONE_CHANGE]:.1f} ms, met after {each[Figure.LATENCY_P50]:.1f}"
        for engine, each in found.items()
    )
    sys.stdout.write(said + "\n")
    record_testsuite_property(f"one changed Service of {size}, milliseconds", json.dumps(found))
    for mode, factor in AT_MOST.items():
        ours, theirs = (found[f"{proxy}/{mode}"][Figure.ONE_CHANGE] for proxy in ("embedded", "kube-proxy"))
        assert ours < factor * theirs, said
