"""A bundle holds what is needed to read a probe, and to judge it again to the same verdicts."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from recorded import World
from scenario_cases import front, probe, two_nodes

from lab.errors import ScenarioError
from lab.plan.topology import draw
from lab.report.bundle import CASE, Circumstances, bundle, read_case
from lab.report.pcapng import capture
from lab.scenario.model import Outcome
from lab.verdict.evidence import Direction, Packet, SeenFrame
from lab.verdict.judge import judge
from lab.verdict.model import Judgement, ProbeVerdict

HERE = Circumstances(proxylab="1", kernel="6.8", engine="embedded/iptables", iptables="v1.8.9 (legacy)")
FRAME = SeenFrame(3, "client", "eth0", Direction.OUT, Packet.REQUEST, 1_700_000_000_123_456_789, "ff" * 15)


def verdict() -> ProbeVerdict:
    world = World(outcome=Outcome.REJECTED)
    evidence = world.evidence(world.round_trip(0, "echo-1"), frames=(FRAME,))
    return judge(world.probe, world.errand, None, evidence)


def files(of: ProbeVerdict) -> dict[str, bytes]:
    plan = draw(two_nodes(probe("p", "sender", front())))
    return bundle(of, circumstances=HERE, source=None, plan=plan, rules={"node-a": "*nat\n"}, scenario=b"spec: {}\n")


def test_what_is_in_it() -> None:
    found = files(verdict())
    assert sorted(found) == [
        "capture.pcapng",
        "case.json",
        "explanation.txt",
        "plan.json",
        "rules/node-a.txt",
        "scenario.lab.yaml",
    ]
    assert found["explanation.txt"].startswith(b"scenarios/cluster-ip.lab.yaml:21:15: FAIL: ")
    assert found["rules/node-a.txt"] == b"*nat\n"


def test_a_trace_stands_in_a_file_of_its_own() -> None:
    assert "trace.txt" in files(replace(verdict(), traced=verdict().evidence))


def test_a_case_is_judged_again_to_the_same_verdicts() -> None:
    before = verdict()
    recorded = read_case("case.json", files(before)[CASE])
    again = judge(recorded.probe, recorded.errand, recorded.source, recorded.evidence)
    assert again.overall is Judgement.FAIL
    assert again == before
    assert recorded.verdicts == before.verdicts
    assert recorded.circumstances == HERE


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"format": 1}', b"\xff"])
def test_what_is_no_case_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(ScenarioError, match=r"x/case\.json: not a recorded case"):
        read_case("x/case.json", data)


def test_a_case_of_another_format_is_refused() -> None:
    data = files(verdict())[CASE].replace(b'{"circumstances"', b'{"format":2,"circumstances"', 1)
    with pytest.raises(ScenarioError, match="format 2 is not 1"):
        read_case("case.json", data)


READ = """
import sys
from scapy.utils import rdpcap
for p in rdpcap(sys.argv[1]):
    print(p.sniffed_on, p.comment.decode(), int(p.time * 10**9), bytes(p).hex())
"""


def test_a_capture_is_read_by_others(tmp_path: Path) -> None:
    """scapy reads it in a process of its own: importing it here would weigh on every test that follows."""
    later = replace(FRAME, place="echo-1", at=FRAME.at + 1000, direction=Direction.IN, data="ab" * 60)
    file = tmp_path / "capture.pcapng"
    file.write_bytes(capture([later, FRAME]))
    done = subprocess.run([sys.executable, "-c", READ, str(file)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        f"client/eth0 request of flow 3, out at client {FRAME.at} {'ff' * 15}",
        f"echo-1/eth0 request of flow 3, in at echo-1 {later.at} {'ab' * 60}",
    ]
