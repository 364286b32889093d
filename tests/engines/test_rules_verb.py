"""``proxylab rules FILE --engine kube-proxy/MODE`` prints what the real kube-proxy has programmed for FILE."""

import os
import subprocess
import sys
from contextlib import closing

import pytest
from sandboxed import ROOT

from proxylab.binaries.binary import Binary
from proxylab.client.session import Session
from proxylab.engines.modes import MODES
from proxylab.engines.protocol import EngineChoice
from proxylab.scenario.cases import cases
from proxylab.scenario.load import load_scenario

FILE = ROOT / "scenarios/clusterip/from-a-pod.lab.yaml"


@pytest.mark.parametrize("mode", ["iptables", pytest.param("nftables", marks=pytest.mark.thorough)])  # one verb
def test_it_prints_what_kube_proxy_has_programmed(mode: str, kube_proxy: Binary) -> None:
    """The embedded engine's rules in the kernel of such a lab mean the same."""
    scenario = cases(load_scenario(FILE), mode)[0]
    with Session(EngineChoice(f"embedded/{mode}")) as session, closing(session.open(scenario)) as lab:
        embedded = lab.rules()[scenario.nodes[0].name]
    command = [sys.executable, "-m", "proxylab", "rules", str(FILE), "--engine", f"kube-proxy/{mode}"]
    chosen = ["--kube-proxy", str(kube_proxy.path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "lab")}
    ended = subprocess.run(
        [*command, *chosen], capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    assert ended.returncode == 0, ended.stderr
    assert {"iptables": "KUBE-SVC", "nftables": "service-endpoints-check"}[mode] in ended.stdout
    assert MODES[mode].differences(embedded, ended.stdout) == []
