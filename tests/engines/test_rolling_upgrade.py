"""A cluster of three nodes is upgraded from kube-proxy 1.34 in mode iptables to 1.37 in mode nftables, and goes back.

The scenarios pass on embedded engines in every run. Here the real proxies of both versions run beside each other, and
each says itself which version it is, and in which mode.
"""

import re
import sys
from contextlib import closing

import pytest
from sandboxed import ROOT

from proxylab.binaries.binary import Binary
from proxylab.binaries.choose import Sources, fits
from proxylab.client.open_lab import OpenLab
from proxylab.client.session import Session
from proxylab.engines.protocol import EngineChoice, Upstream
from proxylab.scenario.cases import cases
from proxylab.scenario.load import load_scenario
from proxylab.scenario.steps import Step
from proxylab.verdict.model import Judgement

OLD, NEW = "v1.34", "v1.37"
ASK = """
from urllib.request import urlopen
for page in ("proxyMode", "metrics"):
    print(urlopen("http://127.0.0.1:10249/" + page).read().decode())
"""
VERSION = re.compile(r'^kubernetes_build_info\{.*git_version="(v\d+\.\d+)', re.MULTILINE)
UPGRADE = [
    {"node-a": OLD, "node-b": OLD, "node-c": OLD},
    {"node-a": NEW, "node-b": OLD, "node-c": OLD},
    {"node-a": NEW, "node-b": NEW, "node-c": OLD},
    {"node-a": NEW, "node-b": NEW, "node-c": NEW},
]
DOWNGRADE = [
    {"node-a": NEW, "node-b": NEW, "node-c": NEW},
    {"node-a": OLD, "node-b": NEW, "node-c": NEW},
    {"node-a": OLD, "node-b": NEW, "node-c": OLD},
    {"node-a": OLD, "node-b": OLD, "node-c": OLD},
]
MODES = {OLD: "iptables", NEW: "nftables"}


@pytest.fixture(scope="module")
def proxies() -> dict[str, Binary]:
    """The newest kube-proxy of both minors in the cache."""
    kept = Sources.of_user().obtained()
    found = {}
    for version in (OLD, NEW):
        fitting = [each for each in kept if fits(each.version, version)]
        if not fitting:
            pytest.skip(
                f"needs a kube-proxy {version} in the cache; 'proxylab engines --obtain {version}' puts one there"
            )
        found[version] = fitting[-1]
    return found


def running(lab: OpenLab) -> dict[str, tuple[str, str]]:
    """Version and mode of each node's proxy, as it says itself."""
    found = {}
    for node in lab.scenario.nodes:
        asked = lab.execute(node.name, sys.executable, "-c", ASK)
        version = VERSION.search(asked.stdout)
        assert version is not None, asked
        found[node.name] = (version[1], asked.stdout.partition("\n")[0])
    return found


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("file", "moments"), [("upgrade-node-by-node", UPGRADE), ("downgrade-node-by-node", DOWNGRADE)]
)
def test_nodes_change_one_after_the_other(file: str, moments: list[dict[str, str]], proxies: dict[str, Binary]) -> None:
    first = moments[0]["node-a"]
    binary = proxies[first]
    engine = EngineChoice(f"kube-proxy/{MODES[first]}", upstream=Upstream(str(binary.path), binary.identity))
    (case,) = cases(load_scenario(ROOT / "scenarios" / "steps" / f"{file}.lab.yaml"), MODES[first], (1, 37))
    with Session(engine) as session, closing(session.open(case)) as lab:
        seen, judged = [], {}
        for each in case.judged:
            if isinstance(each, Step):
                judged[each.name] = lab.conclude(each).overall
                seen.append(running(lab))
            else:
                judged[each.name] = lab.judged(each).overall
    assert judged == dict.fromkeys(judged, Judgement.PASS)
    assert seen == [{node: (version, MODES[version]) for node, version in moment.items()} for moment in moments]
