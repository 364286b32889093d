"""Mode ipvs of kube-proxy in a guest: named sets of scenarios, and that it writes the same as the embedded engine.

Few machines have IPVS, so all of this runs in guests, on the kernel that proxylab builds.
"""

import os
import re
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from shutil import which

import pytest
from guest_runs import files, lacking_mode_ipvs, of_mode_ipvs, run
from guests import IPSET, OWN
from sandboxed import ROOT

from proxylab.addresses import Family
from proxylab.binaries.binary import Binary
from proxylab.binaries.choose import Sources
from proxylab.client.open_lab import OpenLab
from proxylab.client.session import Session
from proxylab.engines.modes import MODES
from proxylab.engines.protocol import EngineChoice, Upstream
from proxylab.errors import ExitCode
from proxylab.scenario.cases import cases
from proxylab.scenario.load import load_scenario
from proxylab.verdict.model import Judgement

pytestmark = [OWN, pytest.mark.timeout(1200)]

REAL = """
    nodeport/traffic-policy-local affinity/client-ip steps/proxy-killed-and-restarted
    steps/udp-client-outlives-its-backend ipvs/feature-gate-off
"""
"""What ``./dev test`` runs on kube-proxy/ipvs; ``--all`` runs every scenario.

Rules, sets and virtual servers are compared below. They do not show what connection tracking, timeouts and a restart
do.
"""

BEFORE_1_24 = """
    clusterip/from-a-pod clusterip/no-endpoints clusterip/internal-traffic-policy-local
    clusterip/one-port-over-tcp-and-udp nodeport/traffic-policy-cluster nodeport/traffic-policy-local
    loadbalancer/source-ranges loadbalancer/short-circuits externalip/unassigned-address
    senders/from-a-node detect-local/without-cluster-cidr clusterip/several-ports affinity/client-ip masquerade/all
    hairpin/same-node-reply-past-a-bridge ipvs/node-port-number-elsewhere
    rejections/no-local-endpoint-or-no-endpoint untranslated/unused-port-of-a-cluster-ip
    steps/proxy-killed-and-restarted steps/udp-client-outlives-its-backend
"""
"""The same for kube-proxy 1.23, with ``--all`` alone.

icmp/echo-requests fails there: before 1.26 a node answers echo requests to the address of a Service, and no outcome of
the format means that.
"""

COMPARED = {
    "core": "loadbalancer/source-ranges nodeport/traffic-policy-local",
    "others": "affinity/client-ip sctp/associations leftovers/rules-of-another-proxy",
}
"""The scenarios whose rules, sets and virtual servers ``./dev test`` compares: the core where an engine changed, and
the others where files of the mode or of guests did. ``--all`` compares those of all.
"""


def test_every_named_scenario_has_a_case_in_the_mode() -> None:
    named = " ".join([REAL, BEFORE_1_24, *COMPARED.values()])
    assert lacking_mode_ipvs(files(named)) == []


@IPSET
def test_kube_proxy_passes(kube_proxy: Binary) -> None:
    run("kube-proxy/ipvs", files(REAL), "--kube-proxy", str(kube_proxy.path))


# tests/unit/engines/test_lacking.py shows the reason and its cure.
@pytest.mark.thorough
@pytest.mark.skipif(os.geteuid() != 0 or not which("ipset"), reason="needs root, and ipset, which the test hides")
def test_without_the_program_ipset_kube_proxy_is_a_skip_with_its_cure(kube_proxy: Binary) -> None:
    """A mount namespace of its own has nothing to run in the place of ipset. The embedded engine needs no program."""
    hidden = f'mount --bind /dev/null {which("ipset")} && exec "$@"'
    proxylab = [sys.executable, "-m", "proxylab", "run", "scenarios/clusterip/from-a-pod.lab.yaml", "--kernel", "uml"]
    done = {
        engine: subprocess.run(
            ["unshare", "--mount", "sh", "-c", hidden, "sh", *proxylab, "--engine", engine, *options],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT / "lab"), "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        for engine, options in (("kube-proxy/ipvs", ["--kube-proxy", str(kube_proxy.path)]), ("embedded/ipvs", []))
    }
    shown = " ".join(done["kube-proxy/ipvs"].stdout.split())
    assert "SKIP needs ipset (no program ipset in the PATH of labs); install ipset kube-proxy/ipvs" in shown
    assert done["kube-proxy/ipvs"].returncode == ExitCode.CAPABILITY
    assert done["embedded/ipvs"].returncode == 0, done["embedded/ipvs"].stdout


@pytest.mark.parametrize(
    "engine", ["embedded/ipvs", pytest.param("kube-proxy/ipvs", marks=[IPSET, pytest.mark.thorough])]
)
def test_strict_arp_decides_whether_a_node_answers(engine: str, kube_proxy: Binary) -> None:
    file = str(ROOT / "scenarios/ipvs/test_strict_arp_and_excluded_networks.py")
    options = ["--lab-engine", engine, "--lab-kernel", "uml", "--lab-kube-proxy", str(kube_proxy.path)]
    command = [sys.executable, "-m", "pytest", file, *options, "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    assert "2 passed" in done.stdout


# The named sets have every kind of frontend, sender and change.
@IPSET
@pytest.mark.thorough
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(8))
def test_all_scenarios_pass(part: int, kube_proxy: Binary) -> None:
    run("kube-proxy/ipvs", of_mode_ipvs()[part::8], "--kube-proxy", str(kube_proxy.path), seconds=7000)


# Newer versions log, and look for IPVS, in another way.
@IPSET
@pytest.mark.thorough
@pytest.mark.timeout(7200)
def test_kube_proxy_before_1_24_passes() -> None:
    cached = [each for each in Sources.of_user().obtained() if each.version == "v1.23.17"]
    if not cached:
        pytest.skip("needs 'proxylab engines --obtain v1.23.17', which Go builds in ten minutes")
    run("kube-proxy/ipvs", files(BEFORE_1_24), "--kube-proxy", str(cached[0].path), seconds=7000)


TO_TAKE_UP = 10
"""Within so many seconds both engines take up what a step changed, where the step itself waits for less."""

ENDING = re.compile(r" -w 0$")


def unlike(ours: OpenLab, theirs: OpenLab) -> dict[str, list[str]]:
    """By node, what only one of two labs has; read until there is nothing, or the time is over.

    Destinations of weight 0 do not count: each is deleted when its connections have ended, and chance decides which
    endpoints of a lab get connections.
    """
    ends = time.monotonic() + TO_TAKE_UP
    while True:
        other = theirs.rules()
        found = {node: MODES["ipvs"].differences(mine, other[node]) for node, mine in ours.rules().items()}
        left = {
            node: kept for node, lines in found.items() if (kept := [each for each in lines if not ENDING.search(each)])
        }
        if not left or time.monotonic() > ends:
            return left


def differences(paths: list[Path], kube_proxy: Binary) -> dict[str, list[str]]:
    """By scenario and node, what only one of both engines has."""
    real = Upstream(str(kube_proxy.path), kube_proxy.identity)
    found: dict[str, list[str]] = {}
    with (
        Session(EngineChoice("embedded/ipvs", kernel="uml")) as ours,
        Session(EngineChoice("kube-proxy/ipvs", upstream=real, kernel="uml")) as theirs,
    ):
        for path in paths:
            for case in (each for each in cases(load_scenario(path), "ipvs") if not each.failures):
                with closing(ours.open(case)) as mine, closing(theirs.open(case)) as other:
                    for number in range(len(case.steps) + 1):
                        if number:
                            mine.step()
                            other.step()
                        for node, lines in unlike(mine, other).items():
                            found[f"{path.stem} {case.case.id} after {number} steps on {node}"] = lines
    return found


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(COMPARED["core"], id="core", marks=pytest.mark.engines),
        pytest.param(COMPARED["others"], id="others"),
    ],
)
def test_both_write_the_same_rules_sets_and_virtual_servers(names: str, kube_proxy: Binary) -> None:
    assert differences(files(names), kube_proxy) == {}


# Those of the four named scenarios have every set.
@IPSET
@pytest.mark.thorough
@pytest.mark.timeout(7200)
def test_both_write_the_same_for_every_scenario(kube_proxy: Binary) -> None:
    assert differences(of_mode_ipvs(), kube_proxy) == {}


LEAVING = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: leaving, description: The proxy of one node leaves mode ipvs.}
spec:
  network: {families: [IPv4, IPv6]}
  nodes: {node-a: {}, node-b: {}}
  pods:
    echo: {nodes: [node-b], labels: {app: echo}, ports: [8080]}
    client: {nodes: [node-a]}
  probes:
  - {name: any, from: client, to: {service: echo, via: clusterIP}, expect: {outcome: delivered, source: preserved}}
  steps:
  - name: the proxy of node-a changes to mode nftables
    change: {engines: {node-a: nftables}}
    until: {engines: {node-a: synced}, within: 60s}
    probes:
    - {name: after, from: client, to: {service: echo, via: clusterIP}, expect: {outcome: delivered, source: preserved}}
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {selector: {app: echo}, ipFamilyPolicy: RequireDualStack, ports: [{port: 80, targetPort: 8080}]}
"""
HELD = "cat /proc/net/ip_vs | grep -c Masq; ip -o link show kube-ipvs0; ipset list -name; iptables-save; ip6tables-save"


@pytest.mark.parametrize("engine", ["embedded", pytest.param("kube-proxy", marks=[IPSET, pytest.mark.thorough])])
def test_nothing_of_mode_ipvs_is_left_where_the_proxy_changes_to_mode_nftables(
    engine: str, kube_proxy: Binary, tmp_path: Path
) -> None:
    """kube-proxy leaves the sets of IPv6, which no rule names any more: it destroys sets by their IPv4 names only."""
    file = tmp_path / "leaving.lab.yaml"
    file.write_text(LEAVING, encoding="ascii")
    (scenario, *_) = cases(load_scenario(file), "ipvs")
    upstream = Upstream(str(kube_proxy.path), kube_proxy.identity) if engine == "kube-proxy" else None
    choice = EngineChoice(f"{engine}/ipvs", families=tuple(Family), upstream=upstream, kernel="uml")
    with Session(choice) as session, closing(session.open(scenario)) as lab:
        before = lab.execute("node-a", "sh", "-c", HELD).stdout
        assert "KUBE-LOOP-BACK" in before
        assert "kube-ipvs0" in before
        lab.step()
        after = lab.execute("node-a", "sh", "-c", HELD).stdout
        assert lab.probe(scenario.steps[0].probes[0]).overall is Judgement.PASS
    left = [line for line in after.splitlines() if "KUBE-" in line or "kube-ipvs0" in line]
    forgotten = [line for line in left if engine == "kube-proxy" and line.startswith("KUBE-6-")]
    assert (after.splitlines()[0], left) == ("0", forgotten)
