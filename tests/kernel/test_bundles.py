"""Every probe or step that does not pass leaves a bundle, and judging the bundle again gives the same verdict."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from sandboxed import ROOT

from proxylab.report.bundle import read_case

# Without DNAT every delivery fails, by TCP and UDP, over both families, by sockets and crafted packets.
MUTATION = """
import proxylab.engines.embedded.iptables.service_chains as module
module.translation = lambda scope, endpoint: ()
"""


def proxylab(*arguments: str, mutation: Path | None = None) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([*([str(mutation)] if mutation else []), str(ROOT / "lab")])
    return subprocess.run(
        [sys.executable, "-m", "proxylab", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "NO_COLOR": "1"},
    )


# Sockets and crafted packets, TCP and UDP, pods and hosts, and steps. In a mutant, senders that wait for an answer get
# none. The longer selection adds nodes as senders, in nothing but their address another sender of the same packets.
SHORT = ("clusterip/from-a-pod.lab.yaml", "conntrack", "steps/a-rolling-update.lab.yaml")
LONG = ("clusterip/one-port-over-tcp-and-udp.lab.yaml", "senders", "steps/a-rolling-update.lab.yaml")


@pytest.mark.parametrize("chosen", [SHORT, pytest.param(LONG, marks=pytest.mark.thorough)], ids=["short", "long"])
def test_all_bundles_of_a_run_are_judged_again_to_the_same_verdicts(chosen: Sequence[str], tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(MUTATION, encoding="utf-8")
    kept = tmp_path / "kept"
    ran = proxylab(
        "run",
        *(str(ROOT / "scenarios" / each) for each in chosen),
        "--bundle-dir",
        str(kept),
        "-o",
        "json",
        mutation=tmp_path,
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    scenarios = json.loads(ran.stdout)["scenarios"]
    probes = [probe for scenario in scenarios for probe in scenario["probes"]]
    failed = sorted(probe["name"] for probe in probes if probe["judgement"] != "pass")
    assert 5 < len(failed) < len(probes)
    steps = [step["name"] for each in scenarios for step in each["steps"] if step["judgement"] != "pass"]
    assert len(sorted(kept.rglob("step.json"))) == len(steps) > 2
    for family in ("ipv4", "ipv6"):
        texts = [each for each in kept.rglob("streams/*.txt") if each.name == f"queries[{family}].txt"]
        assert texts
        assert all(each.stat().st_size > 100 for each in texts)

    bundles = sorted(kept.rglob("case.json"))
    assert len(bundles) == len(failed)
    for bundle in bundles:
        assert "-j KUBE-SERVICES" in (bundle.parent / "rules/node-a.txt").read_text()
        assert "goes to KUBE-SERVICES" in (bundle.parent / "trace.txt").read_text()
        assert (bundle.parent / "capture.pcapng").stat().st_size > 100

    # Without the mutation and without a lab: from the recorded evidence.
    again = proxylab("judge", str(kept), "-v")
    assert again.returncode == ran.returncode, again.stdout + again.stderr
    assert again.stderr == ""  # all verdicts are the same
    for name in (*failed, *steps):
        assert name in again.stdout


def sent(tmp_path: Path, seed: str) -> tuple[set[bytes], dict[int, int]]:
    """The tokens in the payloads and the source port of each flow, of a run's only probe."""
    kept = tmp_path / "kept"
    scenario = str(ROOT / "scenarios/conntrack/entries-of-a-translation.lab.yaml")
    probe = "ClusterIP over UDP leaves a conntrack entry with its backend on the client node[ipv4]"
    choice = ("--probe", probe, "--seed", seed, "--bundle-dir", str(kept))
    ran = proxylab("run", scenario, *choice, mutation=tmp_path)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert ("--seed" in ran.stdout) is (seed != "0")  # the command that reproduces it
    (case,) = kept.rglob("case.json")
    assert f"seed: {seed}\n" in (case.parent / "versions.txt").read_text()
    tokens = re.findall(rb"proxylab probe ([0-9a-f]{16} [0-9a-f]{16})", (case.parent / "capture.pcapng").read_bytes())
    recorded = read_case(str(case), case.read_bytes())
    leaving = [
        seen for seen in recorded.evidence.observations if (seen.netns_name, seen.direction) == ("client", "out")
    ]
    return set(tokens), {seen.flow: seen.source_port for seen in leaving}


@pytest.mark.thorough  # more evidence for what the test above shows
def test_a_flow_of_two_legs_is_judged_again_to_the_same_verdict(tmp_path: Path) -> None:
    """In mode userspace, of which the step also skips what that mode lacks."""
    wrong = {
        "userspace/every-pod-sees-the-node": ("device: uplink", "device: pods"),
        "userspace/accepted-then-closed": ("outcome: closed", "outcome: refused"),
        "steps/a-rolling-update": ("backends: [old]", "backends: [new]"),
    }
    for name, (text, becomes) in wrong.items():
        written = (ROOT / "scenarios" / f"{name}.lab.yaml").read_text()
        (tmp_path / Path(name).with_suffix(".lab.yaml").name).write_text(written.replace(text, becomes))
    kept = tmp_path / "kept"
    ran = proxylab("run", str(tmp_path), "--engine", "embedded/userspace", "--bundle-dir", str(kept), "-o", "json")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    cases = sorted(kept.rglob("case.json"))
    recorded = [read_case(str(case), case.read_bytes()) for case in cases]
    assert len([each for each in recorded if any(seen.leg for seen in each.evidence.observations)]) > 2
    assert len(list(kept.rglob("step.json"))) > 1
    again = proxylab("judge", str(kept), "-v")
    assert again.returncode == ran.returncode, again.stdout + again.stderr
    assert again.stderr == ""
    for case in recorded:
        assert case.probe.name in again.stdout
    steps = [text for file in kept.rglob("step.json") if (text := (file.parent / "explanation.txt").read_text())]
    assert all(re.search("^  skip", text, re.MULTILINE) for text in steps)


def test_a_seed_changes_ports_and_payloads_and_brings_them_back(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(MUTATION, encoding="utf-8")
    first, again, other = sent(tmp_path, "7"), sent(tmp_path, "7"), sent(tmp_path, "0")
    assert first == again
    assert first[0].isdisjoint(other[0])
    assert first[1] != other[1]
