"""The way of a probe on the wire, as files to be read and looked at: before a run, and as it was seen.

Write the files anew with ``pytest tests/golden --update-golden``, then read the difference.
"""

import xml.etree.ElementTree as ET
from ipaddress import ip_address
from pathlib import Path

import pytest
from recorded import World

from proxylab.features.graph.drawing import mermaid_lines, path_lines, text_lines
from proxylab.features.graph.paths import Path as Drawn
from proxylab.features.graph.paths import seen_path
from proxylab.features.graph.planned_path import planned_path
from proxylab.features.graph.svg import svg
from proxylab.plan.assembly import assemble
from proxylab.plan.model import Plan
from proxylab.scenario.cases import cases
from proxylab.scenario.load import load_scenario
from proxylab.verdict.case import Case

ROOT = Path(__file__).resolve().parents[2]
FILES = Path(__file__).parent / "graph"
NODE_A = ip_address("172.18.0.2")

PLANNED = {
    "from-a-pod": ("clusterip/from-a-pod", "ClusterIP from a pod preserves the client IP"),
    "hairpin": ("clusterip/from-a-pod", "ClusterIP from a pod to itself is masqueraded by its node"),
    "outside": ("clusterip/from-a-pod", "ClusterIP from outside is masqueraded by the entry node towards another node"),
    "node-port": (
        "nodeport/masquerade-address-by-network",
        "NodePort from outside has the outgoing device's source IP",
    ),
    "a-node-itself": (
        "nodeport/masquerade-address-by-network",
        "NodePort from a node at itself has the outgoing device's source IP",
    ),
    "overlay": (
        "nodeport/masquerade-address-by-network",
        "NodePort from outside has the outgoing device's source IP[ipv6-ptp-vxlan]",
    ),
    "headless": ("clusterip/headless", "headless Service from a pod reaches a pod of another node untranslated"),
    "dropped": (
        "clusterip/internal-traffic-policy-local",
        "ClusterIP with internalTrafficPolicy Local drops on a node without endpoint",
    ),
    "host-network": (
        "clusterip/host-network-endpoints",
        "NodePort from outside to a host-network endpoint elsewhere is masqueraded",
    ),
}
CASES = {"overlay": "ptp-vxlan"}


def compare(name: str, text: str, update: bool) -> None:
    file = FILES / name
    if update:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def drawn(name: str) -> tuple[Plan, Drawn]:
    """The plan of a scenario, and the planned way of its probe."""
    scenario, probe = PLANNED[name]
    found = cases(load_scenario(ROOT / "scenarios" / f"{scenario}.lab.yaml"), "iptables", (1, 36))
    case = next((each for each in found if each.case.id == CASES.get(name)), found[0])
    assembly = assemble(case)
    wanted = next(each for each in case.all_probes if probe in (each.name, case.case.words(each.name)))
    return assembly.plan, planned_path(assembly, wanted)


@pytest.mark.parametrize("name", PLANNED)
def test_ways_as_planned(name: str, update_golden: bool) -> None:
    plan, path = drawn(name)
    compare(f"{name}.txt", "\n".join(text_lines(plan, path)) + "\n", update_golden)


def test_a_way_in_mermaid(update_golden: bool) -> None:
    compare("from-a-pod.mermaid", "\n".join(mermaid_lines(*drawn("from-a-pod"))) + "\n", update_golden)


def test_a_way_as_a_picture(update_golden: bool) -> None:
    text = svg(*drawn("from-a-pod"))
    ET.fromstring(text)
    compare("from-a-pod.svg", text + "\n", update_golden)


def test_a_way_as_it_was_seen(update_golden: bool) -> None:
    world = World(backends=("echo-1", "echo-2", "echo-3"))
    case = Case(world.probe, world.resolved, world.evidence(world.crossing(0, "echo-1", NODE_A)))
    compare("seen.txt", "\n".join(path_lines(seen_path(case))) + "\n", update_golden)


def test_every_file_has_a_case() -> None:
    expected = {f"{name}.txt" for name in (*PLANNED, "seen")} | {"from-a-pod.mermaid", "from-a-pod.svg"}
    assert {file.name for file in FILES.iterdir()} == expected
