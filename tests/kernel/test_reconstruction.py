"""``repro.sh`` of a failed step rebuilds what the step had led to, without proxylab, and says what it cannot."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sandboxed import ROOT

SCENARIO = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: failing}
spec:
  nodes: {node-a: {}, node-b: {}}
  pods:
    old: {nodes: [node-b], labels: {app: echo}, ports: [{port: 5353, protocol: UDP}]}
    new: {nodes: [node-b], labels: {app: echo}, ports: [{port: 5353, protocol: UDP}], present: false}
    client: {nodes: [node-a]}
  streams:
    queries: {from: {name: client, port: 12345}, to: {service: echo, via: clusterIP}, send: {every: 5ms}}
  steps:
  - {name: it stands, expect: {queries: {backend: old}}}
  - {name: another comes, change: {pods: {old: null, new: {present: true}}}, expect: {queries: {backend: old}}}
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {selector: {app: echo}, ports: [{port: 53, targetPort: 5353, protocol: UDP}]}
"""
LOOK = """\
for tool in legacy nft; do nsenter --net=/run/netns/node-a iptables-$tool-save -t nat 2>/dev/null; done
nsenter --net=/run/netns/new ip -brief address show dev eth0
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("failing")
    (folder / "failing.lab.yaml").write_text(SCENARIO)
    done = subprocess.run(
        [sys.executable, "-m", "lab", "run", "failing.lab.yaml", "--bundle-dir", "kept"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 1, done.stdout + done.stderr
    (found,) = folder.glob("kept/*/failing/step-*/repro.sh")
    return found


def test_the_rules_are_those_when_the_step_ended(script: Path) -> None:
    done = subprocess.run(
        ["sh", str(script), "shell"],
        input=LOOK,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rebuilt: " in done.stdout
    assert "--to-destination 10.244.1.11:5353" in done.stdout, "the pod that has come"
    assert "--to-destination 10.244.1.10:5353" not in done.stdout, "the pod that is gone"
    assert "10.244.1.11/" in done.stdout.splitlines()[-1]


def test_it_says_what_happened_and_what_it_cannot_rebuild(script: Path) -> None:
    text = script.read_text()
    head = text.partition("set -eu")[0]
    assert "FAIL: another comes" in head
    assert "what happened, from the beginning of the step:" in head
    assert "It cannot rebuild what is made of time and of the steps before" in head
