"""A bundle holds what is needed to read a probe, and to judge it again to the same verdicts."""

import subprocess
import sys
from pathlib import Path

import pytest
from circumstances import HERE
from golden_words import Told
from kube_proxies import identity
from msgspec.structs import replace
from recorded import World
from scenario_cases import frontend, probe, two_nodes

from proxylab.errors import ScenarioError
from proxylab.evidence.evidence import Capture, Direction, Packet, SeenFrame, TrackedFlow
from proxylab.plan.model import PlannedNamespace, Role
from proxylab.plan.topology import draw
from proxylab.report.bundle import CASE, Circumstances, NodeState, bundle, read_case
from proxylab.report.pcapng import pcapng
from proxylab.scenario.words import Outcome
from proxylab.verdict.judge import judge
from proxylab.verdict.model import Judgement, ProbeVerdict

FRAME = SeenFrame(3, "client", "eth0", Direction.OUT, Packet.REQUEST, 1_700_000_000_123_456_789, "ff" * 15)


def verdict() -> ProbeVerdict:
    world = World(outcome=Outcome.REJECTED)
    evidence = world.evidence(world.round_trip(0, "echo-1"))
    return judge(world.probe, world.resolved, None, evidence)


def files(of: ProbeVerdict, circumstances: Circumstances = HERE) -> dict[str, bytes]:
    plan = draw(two_nodes(probe("p", "sender", frontend())))
    sender = PlannedNamespace(name=of.resolved.sender.namespace, role=Role.HOST)
    return bundle(
        of,
        circumstances=circumstances,
        plan=replace(plan, namespaces=(*plan.namespaces, sender)),
        capture=Capture((FRAME,), 3),
        nodes={"node-a": NodeState("*nat\n", ("synchronised",))},
        scenario=b"spec: {}\n",
    )


def test_what_is_in_it() -> None:
    found = files(verdict())
    assert sorted(found) == [
        "capture.pcapng",
        "case.json",
        "conntrack.txt",
        "explanation.txt",
        "logs/node-a.txt",
        "plan.json",
        "repro.sh",
        "rules/node-a.txt",
        "scenario.lab.yaml",
        "versions.txt",
    ]
    assert found["explanation.txt"].startswith(b"scenarios/cluster-ip.lab.yaml:21:15: FAIL: ")
    assert found["rules/node-a.txt"] == b"*nat\n"
    assert found["logs/node-a.txt"] == b"synchronised\n"
    embedded = b"binary: none, embedded/iptables is a part of proxylab\n"
    assert found["versions.txt"].endswith(b"seed: 7\n" + embedded + b"frames: 1 in capture.pcapng, 3 left out\n")


def test_it_says_which_binary_ran() -> None:
    binary = replace(identity("v1.37.2-dirty", "built in /home/me/kubernetes"), commit="f28b4c9efbca5c5c", dirty=True)
    found = files(verdict(), replace(HERE, engine="kube-proxy/iptables", binary=binary))
    assert read_case(CASE, found[CASE]).circumstances.binary == binary
    for line in (f"binary: {binary}", "binary's commit: f28b4c9efbca5c5c", f"binary's SHA-256: {binary.digest}"):
        assert line in found["versions.txt"].decode().splitlines()


def test_conntrack_names_the_flow_its_answerer_and_a_translated_client(told: Told) -> None:
    world = World(flows=2)
    node = world.address("node-a")
    ends = (world.client(0), world.as_seen(1, node))
    tracked = tuple(TrackedFlow(flow, "node-a", world.address("echo-1"), 8080, *end) for flow, end in enumerate(ends))
    evidence = world.evidence((*world.round_trip(0, "echo-1"), *world.round_trip(1, "echo-1", node)), tracked=tracked)
    found = files(judge(world.probe, world.resolved, None, evidence))["conntrack.txt"]
    assert found.decode().splitlines() == told()


def test_a_trace_stands_in_a_file_of_its_own() -> None:
    assert "trace.txt" in files(replace(verdict(), traced=verdict().evidence))


def test_a_case_is_judged_again_to_the_same_verdicts() -> None:
    before = verdict()
    recorded = read_case("case.json", files(before)[CASE])
    again = judge(recorded.probe, recorded.resolved, recorded.source, recorded.evidence)
    assert again.overall is Judgement.FAIL
    assert again == before
    assert recorded.verdicts == before.verdicts
    assert recorded.circumstances == HERE


@pytest.mark.parametrize("data", [b"", b'{"format":6}', b'{"format":7}', b"[1]", b"\xff"])
def test_what_is_no_case_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(ScenarioError, match=r"x/case\.json: not a recorded case"):
        read_case("x/case.json", data)


def test_a_case_of_another_format_is_refused() -> None:
    data = files(verdict())[CASE].replace(b'"format":7', b'"format":9', 1)
    cure = "judge it with proxylab 1, which wrote it"
    with pytest.raises(ScenarioError, match=rf"case\.json: has format 9, this version reads 6 and 7; {cure}"):
        read_case("case.json", data)


def test_a_case_from_before_formats_were_written_is_refused() -> None:
    written = b'{"circumstances":{"proxylab":"0.1.0"},"evidence":{"sent":1,"observations":{"flow":[0]}}}'
    with pytest.raises(
        ScenarioError,
        match=r"not a recorded case or step with a format, this version reads 6 and 7; judge it with proxylab 0\.1\.0",
    ):
        read_case("case.json", written)


READ = """
import sys
from scapy.utils import rdpcap
for p in rdpcap(sys.argv[1]):
    print(p.sniffed_on, p.comment.decode(), int(p.time * 10**9), bytes(p).hex())
"""


def test_a_capture_is_read_by_others(tmp_path: Path) -> None:
    """scapy reads it in a process of its own: importing it here would weigh on every test that follows."""
    later = replace(FRAME, netns_name="echo-1", at=FRAME.at + 1000, direction=Direction.IN, data="ab" * 60)
    file = tmp_path / "capture.pcapng"
    file.write_bytes(pcapng([later, FRAME]))
    done = subprocess.run([sys.executable, "-c", READ, str(file)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        f"client/eth0 request of flow 3, out at client {FRAME.at} {'ff' * 15}",
        f"echo-1/eth0 request of flow 3, in at echo-1 {later.at} {'ab' * 60}",
    ]
