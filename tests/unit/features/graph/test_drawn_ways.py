"""The planned way of a probe: its legs hang together, end where its expectations say, and are drawn as they are."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from proxylab.features.graph.drawing import mermaid_lines
from proxylab.features.graph.paths import Path as Way
from proxylab.features.graph.planned_path import planned_path
from proxylab.features.graph.svg import svg
from proxylab.plan.assembly import Assembly, assemble
from proxylab.scenario.cases import cases
from proxylab.scenario.load import load_scenario
from proxylab.scenario.probes import Probe

SCENARIOS = Path(__file__).resolve().parents[4] / "scenarios"
SVG = "{http://www.w3.org/2000/svg}"
DRAWN = (
    "bugs/92315-neighbours-reach-loopback",
    "clusterip/from-a-pod",
    "clusterip/headless",
    "clusterip/host-network-endpoints",
    "clusterip/internal-traffic-policy-local",
    "externalip/unassigned-address",
    "loadbalancer/source-ranges",
    "masquerade/once-through-a-tunnel",
    "network/hairpin",
    "network/host-network-and-shared-netns",
    "nodeport/masquerade-address-by-network",
)


def planned(name: str) -> tuple[Assembly, list[tuple[Probe, Way]]]:
    """A scenario's first case, and the way of each of its probes."""
    first = cases(load_scenario(SCENARIOS / f"{name}.lab.yaml"), "iptables", (1, 36))[0]
    assembly = assemble(first)
    return assembly, [(probe, planned_path(assembly, probe)) for probe in first.all_probes]


@pytest.mark.parametrize("name", DRAWN)
def test_each_leg_begins_where_the_one_before_it_ended(name: str) -> None:
    assembly, ways = planned(name)
    assert ways
    for probe, way in ways:
        sender = assembly.resolved(probe).sender
        for branch in way.branches or [None]:
            legs = (*way.legs, *(branch.legs if branch else ()))
            assert [leg.origin for leg in legs[1:]] == [leg.target for leg in legs[:-1]], probe.name
            assert not legs or legs[0].origin in (sender.name, sender.namespace), probe.name


@pytest.mark.parametrize("name", DRAWN)
def test_a_way_ends_at_its_endpoints_or_says_what_is_expected(name: str) -> None:
    assembly, ways = planned(name)
    holders = {pod.name: pod.namespace for pod in assembly.plan.pods}
    for probe, way in ways:
        assert way.ends, probe.name
        for branch in way.branches:
            wanted = probe.expect.backend_names
            assert not wanted or branch.name in wanted, probe.name
            last = (*way.legs, *branch.legs)[-1:]
            assert branch.ends or [leg.target for leg in last] in ([branch.name], [holders[branch.name]]), probe.name


@pytest.mark.parametrize("name", DRAWN)
def test_every_leg_is_an_arrow_between_boxes_and_inside_the_picture(name: str) -> None:
    assembly, ways = planned(name)
    for probe, way in ways:
        picture = ET.fromstring(svg(assembly.plan, way))
        width, height = float(picture.attrib["width"]), float(picture.attrib["height"])
        numbers = [each.text for each in picture.iter(f"{SVG}text") if each.get("class") == "number"]
        assert numbers == [str(number) for number in range(1, len(way.all_legs) + 1)], probe.name
        for line in picture.iter(f"{SVG}line"):
            assert all(0 <= float(line.attrib[x]) <= width for x in ("x1", "x2"))
            assert all(0 <= float(line.attrib[y]) <= height for y in ("y1", "y2"))
        mermaid = "\n".join(mermaid_lines(assembly.plan, way))
        assert mermaid.count("==>") == mermaid.count("linkStyle") == len(way.all_legs)


def test_of_many_endpoints_eight_are_drawn_and_the_number_of_all_is_said() -> None:
    _, ways = planned("spread/five-hundred-endpoints")
    probe, way = ways[0]
    assert len(way.branches) == 8, probe.name
    assert way.ends[0].endswith("to one of 500 endpoints")
    assert way.ends[1] == "of which 8 are shown"
