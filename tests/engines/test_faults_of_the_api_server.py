"""A slow API server reaches the real kube-proxy: what it tells late, the proxy programs late."""

from pathlib import Path

from judged_runs import judged_cases
from sandboxed import ROOT

from proxylab.binaries.binary import Binary

SCENARIO = ROOT / "scenarios/steps/api-server-fails.lab.yaml"
DELAYED = "change: {apiServer: {delay: 1s}, pods: {third: null, fourth: {present: true}}}\n"
LONGER = "change: {apiServer: {delay: 60s}, pods: {third: null, fourth: {present: true}}}\n    until: {elapsed: 1s}\n"
STEP = "another replaces the third, and the API server takes a second for each answer"
PROBE = "ClusterIP leads to the endpoint of which a slow API server told late"


def test_a_proxy_keeps_its_rules_until_the_api_server_tells(kube_proxy: Binary, tmp_path: Path) -> None:
    written = SCENARIO.read_text()
    assert DELAYED in written
    edited = tmp_path / "edited.lab.yaml"
    edited.write_text(written.replace(DELAYED, LONGER))
    probes = [each for case in judged_cases(edited, "kube-proxy/nftables", kube_proxy) for each in case["probes"]]
    found = {each["name"].partition("[")[0] for each in probes if each["judgement"] != "pass"}
    assert found == {f"{STEP}: {PROBE}"}
