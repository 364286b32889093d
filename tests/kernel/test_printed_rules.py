"""``proxylab rules FILE`` prints what a lab of FILE has in its kernel."""

import os
import subprocess
import sys
from contextlib import closing

import pytest
from sandboxed import ROOT
from shared_sessions import shared_session

from proxylab.addresses import Family
from proxylab.engines.modes import MODES
from proxylab.engines.protocol import EngineChoice
from proxylab.scenario.cases import cases
from proxylab.scenario.load import load_scenario

FILE = ROOT / "scenarios/loadbalancer/source-ranges.lab.yaml"


def test_the_rules_are_those_of_the_kernel() -> None:
    scenario = cases(load_scenario(FILE), "iptables")[0]
    with shared_session(EngineChoice("embedded/iptables")) as session, closing(session.open(scenario)) as lab:
        held = lab.rules()["node-a"]
    case = ["--case", scenario.case.id] if scenario.case.id else []
    command = [sys.executable, "-m", "proxylab", "rules", str(FILE), *case]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "lab")}
    printed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment).stdout
    if "nfacct" not in held:
        pytest.skip("needs nfacct, which the printed rules assume; as root: 'modprobe -a xt_nfacct nfnetlink_acct'")
    assert "; assumed: the kernel has nfacct" in printed
    assert MODES["iptables"].differences(printed, held) == []
    assert set(MODES["iptables"].by_family(held, list(Family)))
