"""``proxylab graph``: a network as text, Mermaid or SVG, and the path of a probe, planned or captured."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from caller import Caller
from recorded import World

from proxylab.errors import ExitCode
from proxylab.evidence.evidence import Capture
from proxylab.plan.model import Plan, PlannedNamespace, Role
from proxylab.report.bundle import CASE, PLAN, Circumstances, bundle
from proxylab.verdict.judge import judge

ROOT = Path(__file__).resolve().parents[4]
WHOLE = str(ROOT / "tests/golden/scenario/whole.lab.yaml")
POD = str(ROOT / "scenarios/clusterip/from-a-pod.lab.yaml")
SVG = "{http://www.w3.org/2000/svg}"


def test_graph_as_text_shows_pods_under_their_nodes(caller: Caller) -> None:
    lines = caller.type("graph", WHOLE)[1].splitlines()
    node_b = lines.index("└─ node node-b 172.18.0.3 172.19.0.10")
    assert lines[node_b + 1 : node_b + 3] == ["   ├─ pod echo-2 10.244.1.10", "   └─ pod client 10.244.1.11"]
    assert "segment storage" in lines


def test_graph_as_mermaid_draws_every_thing_and_links_what_it_draws(caller: Caller) -> None:
    lines = caller.type("graph", "-o", "mermaid", WHOLE)[1].splitlines()
    assert lines[0] == "flowchart TB"
    drawn = set(re.findall(r"^  (\w+)[\[({]", "\n".join(lines), re.MULTILINE))
    ties = [line for line in lines if any(tie in line for tie in (" --- ", " .- ", " -.-> "))]
    linked = {end for line in ties for end in re.findall(r"\b([nstb]\d+)\b", line)}
    assert drawn == linked
    assert [line for line in lines if line.startswith("  b0 -.-> ")] == ["  b0 -.-> n2"]
    assert sum(line.endswith(" .- t0") for line in lines) == 2


def test_graph_shows_tunnels_and_balancers_with_their_nodes(caller: Caller) -> None:
    lines = caller.type("graph", WHOLE)[1].splitlines()
    assert lines[lines.index("tunnel flannel.1 VXLAN 1, port 8472") :] == [
        "tunnel flannel.1 VXLAN 1, port 8472",
        "├─ node node-a 10.244.0.0",
        "└─ node node-b 10.244.1.0",
        "balancer edge 192.0.2.0/28",
        "└─ node node-a",
        "balancer segment 172.18.255.0/28",
        "└─ node node-a",
        "balancer cloud 192.0.2.32/28",
        "├─ node node-a",
        "└─ node node-b",
    ]


def test_graph_as_svg_keeps_everything_inside_the_picture(caller: Caller) -> None:
    picture = ET.fromstring(caller.type("graph", "-o", "svg", WHOLE)[1])
    width, height = int(picture.attrib["width"]), int(picture.attrib["height"])
    boxes = [{key: int(box.attrib[key]) for key in ("x", "y", "width", "height")} for box in picture.iter(f"{SVG}rect")
             if "fill" in box.attrib and "x" in box.attrib]  # fmt: skip
    assert len(boxes) == 13
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= width for box in boxes)
    assert all(box["y"] >= 0 and box["y"] + box["height"] <= height for box in boxes)
    for index, one in enumerate(boxes):
        for other in boxes[index + 1 :]:
            apart = abs(one["x"] - other["x"]) >= one["width"] or abs(one["y"] - other["y"]) >= one["height"]
            assert apart, (one, other)
    lines = [line for line in picture.iter(f"{SVG}line") if line.attrib["class"] in ("tunnel", "balanced")]
    assert sorted(line.attrib["class"] for line in lines) == [*["balanced"] * 4, "tunnel"]
    tops = [(box["x"] + box["width"] // 2, box["y"]) for box in boxes]
    for balanced in (line.attrib for line in lines if line.attrib["class"] == "balanced"):
        assert (int(balanced["x2"]), int(balanced["y2"])) in tops
    assert "tunnel flannel.1 (VXLAN 1, port 8472)" in [text.text for text in picture.iter(f"{SVG}text")]


@pytest.mark.parametrize("form", ["text", "mermaid", "svg"])
def test_graph_draws_the_way_of_a_probe_in_every_form(caller: Caller, form: str) -> None:
    without = caller.type("graph", POD, "-o", form)[1]
    code, output, _ = caller.type("graph", POD, "--probe", "ClusterIP from a pod preserves the client IP", "-o", form)
    assert code == ExitCode.OK
    assert "10.244.1.10:8080" in output
    assert "10.244.1.10:8080" not in without


def test_graph_says_which_probes_there_are(caller: Caller) -> None:
    code, output, errors = caller.type("graph", POD, "--probe", "a backend sees no client")
    assert (code, output) == (ExitCode.SCENARIO, "")
    assert "  ClusterIP from a pod preserves the client IP\n" in errors


def test_graph_of_a_bundle_draws_what_was_seen(caller: Caller, tmp_path: Path) -> None:
    world = World(pods=("echo-1",))
    evidence = world.evidence(world.crossing(0, "echo-1"))
    namespaces = tuple(
        PlannedNamespace(name=name, role=role, sysctls=())
        for name, role in (("debug", Role.POD), ("node-a", Role.NODE), ("node-b", Role.NODE), ("echo-1", Role.POD))
    )
    recorded = bundle(
        judge(world.probe, world.resolved, None, evidence),
        circumstances=Circumstances(
            proxylab="1",
            python="3.11",
            kernel="7.2.11",
            chosen_kernel="uml",
            machine="x",
            engine="embedded/iptables",
            iptables="(nft)",
        ),
        plan=Plan(namespaces=namespaces, links=()),
        capture=Capture(),
        nodes={},
        scenario=b"",
    )
    for name in (CASE, PLAN):
        (tmp_path / name).write_bytes(recorded[name])
    for given in (tmp_path, tmp_path / CASE):
        code, output, _ = caller.type("graph", str(given))
        assert code == ExitCode.OK
        assert "the path of a pod reaches echo through its cluster IP, as captured" in output
        assert "destination 10.96.0.10:80 becomes 10.244.2.3:8080" in output
    judged = caller.type("judge", str(tmp_path))[1]
    assert "[embedded/iptables on uml]" in judged, "and the kernel that it was"
    assert "kernel uml: 7.2.11" in judged.splitlines()
    (tmp_path / PLAN).unlink()
    assert "plan.json is missing" in caller.type("graph", str(tmp_path))[2]
    (tmp_path / CASE).unlink()
    assert "neither a scenario nor a bundle" in caller.type("graph", str(tmp_path))[2]
