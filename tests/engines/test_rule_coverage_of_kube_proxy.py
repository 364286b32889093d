"""``run --rule-coverage`` on the real kube-proxy, whose nftables have no counters."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from covered_rules import checked_coverage

from proxylab.binaries.binary import Binary

ROOT = Path(__file__).parents[2]
MET_ONCE = {
    "iptables": "nat KUBE-SEP-* -s ADDRESS -j KUBE-MARK-MASQ",
    "nftables": "element hairpin-connections",
}
NEVER = {
    "iptables": "nat KUBE-NODEPORTS -p PROTOCOL --dport PORT -j KUBE-EXT-*",
    "nftables": "element service-nodeports : goto external-*",
}


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
def test_what_probes_met_of_its_rules_is_told_by_kind(mode: str, kube_proxy: Binary, tmp_path: Path) -> None:
    def run(file: str) -> str:
        command = [sys.executable, "-m", "proxylab", "run", file, "--engine", f"kube-proxy/{mode}"]
        options = ["--kube-proxy", str(kube_proxy.path), "--rule-coverage", "-o", "json"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "lab")}
        return subprocess.run(
            [*command, *options], capture_output=True, text=True, check=False, env=environment, timeout=120
        ).stdout

    kinds = checked_coverage(f"kube-proxy/{mode}", run, tmp_path)
    assert kinds[MET_ONCE[mode]]["met"] == 1, "a pod dialled itself"
    assert kinds[NEVER[mode]]["met"] == 0
    assert not any("proxylab" in text for each in kinds.values() for text in each["unmet"]), (
        "a Service of the lab's own"
    )
