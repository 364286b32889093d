"""What one changed Service costs among many: the embedded engine against the real kube-proxy, in one run.

Both tell by the same metric how long a partial synchronisation took, until the rules are in the kernel:
kubeproxy_sync_partial_proxy_rules_duration_seconds. ``-rP`` shows the figures of a run that holds.
"""

import json
import os
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from sandboxed import sandboxed
from staged_engines import Stage, staged
from test_sync import cluster, scaled

from proxylab.binaries.choose import Sources
from proxylab.cluster.store import Store
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.timing import Deadline

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(900)]

ENGINES = ("embedded/iptables", "kube-proxy/iptables", "embedded/nftables", "kube-proxy/nftables")
SIZES = (1000, 5000)
CHANGES = 7
PATIENCE = 300.0
AT_MOST = {"iptables": 2.0, "nftables": 1.0}  # times what kube-proxy takes in the same mode

ASK = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:10249/metrics', timeout=20).read().decode())"
METRIC = "kubeproxy_sync_partial_proxy_rules_duration_seconds"


async def told(stage: Stage) -> tuple[float, float]:
    """How many seconds all partial synchronisations of IPv4 took, and how many there were."""
    page = await stage.launcher.run(
        stage.context.netns,
        [sys.executable, "-c", ASK],
        netns_name=stage.context.name,
        deadline=Deadline.after(30),
    )
    found = {"sum": 0.0, "count": 0.0}
    for line in page.stdout.decode().splitlines():
        for kind in found:
            if line.startswith(f"{METRIC}_{kind}") and ("IPv4" in line or "{" not in line):
                found[kind] = float(line.rpartition(" ")[2])
    return found["sum"], found["count"]


async def durations(launcher: Launcher, engine: str, services: int) -> list[float]:
    """Milliseconds of one synchronisation, for each of a few changes."""
    before = cluster(services)
    after = scaled(before)
    store = Store()
    for thing in (*before.services, *before.slices):
        store.apply(thing)
    taken = []
    async with staged(launcher, engine, store=store) as stage:
        await stage.engine.wait_synced(store.revision, Deadline.after(PATIENCE))
        for turn in range(CHANGES):
            spent, count = await told(stage)
            store.apply((after, before)[turn % 2].slices[0])
            await stage.engine.wait_synced(store.revision, Deadline.after(PATIENCE))
            now, counted = await told(stage)
            taken.append(1000 * (now - spent) / (counted - count))
    return taken


async def compared(launcher: Launcher) -> dict[str, Any]:
    return {
        engine: await durations(launcher, engine, int(os.environ["TEST_SERVICES"]))
        for engine in ENGINES
    }  # fmt: skip


@pytest.mark.budget
@pytest.mark.parametrize("size", SIZES)
def test_one_changed_service(size: int, monkeypatch: pytest.MonkeyPatch, record_testsuite_property: Any) -> None:
    cached = Sources.of_user().obtained()
    if not cached:
        pytest.skip("needs a kube-proxy in the cache; 'proxylab engines --obtain' puts one there")
    monkeypatch.setenv("TEST_KUBE_PROXY", str(Path(cached[-1].path)))
    monkeypatch.setenv("TEST_SERVICES", str(size))
    found = {engine: median(each) for engine, each in sandboxed(compared, seconds=600).items()}
    said = f"one of {size:,} services changes, medians with kube-proxy {cached[-1].version}: " + ", ".join(
        f"{engine} {each:.1f} ms" for engine, each in found.items()
    )
    sys.stdout.write(said + "\n")
    record_testsuite_property(f"one changed Service of {size}, milliseconds", json.dumps(found))
    for mode, factor in AT_MOST.items():
        assert found[f"embedded/{mode}"] < factor * found[f"kube-proxy/{mode}"], said
