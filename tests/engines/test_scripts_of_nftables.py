"""``repro.sh`` loads the rules of mode nftables, and sees what the lab has seen."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from played_scripts import in_the_lab, may_differ, played, seen_by
from sandboxed import ROOT
from shared_sessions import shared_session

from proxylab.binaries.binary import Binary
from proxylab.engines.engine_names import version_of
from proxylab.engines.protocol import EngineChoice, Upstream
from proxylab.report.bundle import CASE, read_case
from proxylab.scenario.cases import cases
from proxylab.scenario.load import load_scenario

SAMPLE = {"clusterip/from-a-pod": 4, "nodeport/traffic-policy-local": 2}
"""Scenarios, and how many of their probes are sent."""
NO_TRANSLATION = ("meta l4proto tcp dnat to 10.244.1.11:8080", "meta l4proto tcp counter")


# Both write the same rules: test_rules_of_scenarios compares them.
@pytest.mark.parametrize(
    "engine", [pytest.param("kube-proxy/nftables", marks=pytest.mark.thorough), "embedded/nftables"]
)
def test_scripts_see_what_the_lab_has_seen_and_something_else_without_a_translation(
    engine: str, kube_proxy: Binary, tmp_path: Path
) -> None:
    upstream = Upstream(str(kube_proxy.path), kube_proxy.identity)
    bundles: dict[str, Path] = {}
    with shared_session(EngineChoice(engine, upstream=upstream)) as session:
        for name, most in SAMPLE.items():
            scenario = load_scenario(ROOT / f"scenarios/{name}.lab.yaml")
            case = cases(scenario, "nftables", version_of(engine, kube_proxy.version))[0]
            lab = session.open(case)
            for probe in case.probes[:most]:
                bundles[probe.name] = tmp_path / str(len(bundles))
                for path, data in lab.bundle(lab.judged(probe)).items():
                    (bundles[probe.name] / path).parent.mkdir(parents=True, exist_ok=True)
                    (bundles[probe.name] / path).write_bytes(data)
            lab.close()
    with ThreadPoolExecutor(4) as pool:
        told = dict(zip(bundles, pool.map(played, bundles.values()), strict=True))
    for name, done in told.items():
        assert done.returncode == 0, f"{name}:\n{done.stdout}{done.stderr}"
        lab_saw = in_the_lab(read_case(CASE, (bundles[name] / CASE).read_bytes()))
        assert may_differ(done) or seen_by(done) in lab_saw, f"{name}:\n{lab_saw}\n{done.stdout}"
    broken = played(bundles["ClusterIP from a pod to another node preserves the client IP"], edits=(NO_TRANSLATION,))
    assert broken.returncode == 1, broken.stdout + broken.stderr
    assert seen_by(broken).startswith("not delivered")
