"""Steps of a Python test, during a stream of its scenario: the lab makes and judges them like those of a file."""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from sandboxed import ROOT

PLUGIN = () if "proxylab" in entry_points(group="pytest11").names else ("-p", "proxylab.pytest_plugin")

SCENARIO = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: held-in-python}
spec:
  nodes: {node-a: {}, node-b: {}}
  pods:
    old: {nodes: [node-b], labels: {app: echo}, ports: [{port: 5353, protocol: UDP}]}
    new: {nodes: [node-b], labels: {app: echo}, ports: [{port: 5353, protocol: UDP}], present: false}
    client: {nodes: [node-a]}
  streams:
    queries: {from: {name: client, port: 12345}, to: {service: echo, via: clusterIP}, send: {every: 5ms}}
  steps:
  - {name: it stands, expect: {queries: {backend: old, lost: 0}}}
  - {name: the test never makes this step, change: {pods: {old: null}}}
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {selector: {app: echo}, ports: [{port: 53, targetPort: 5353, protocol: UDP}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {replicas: 1, template: {metadata: {labels: {app: web}}, spec: {containers: [{ports: [{containerPort: 80}]}]}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec: {scaleTargetRef: {kind: Deployment, name: web}, maxReplicas: 2}
"""

TEST = """\
import pytest

pytestmark = pytest.mark.lab("x.lab.yaml")

def test_a_pod_takes_the_place_of_another(lab):
    lab.step()
    assert lab.conclude().step.name == "it stands"
    stays = {"queries": {"backends": ["old"], "lost": 0}}
    lab.step("another comes", change={"pods": {"new": {"present": True}}}, expect=stays)
    lab.conclude()
    for number in range(2):
        gone, comes = (("old", "new"), ("new", "old"))[number]
        table = {"node": "node-a", "none": {"replyFrom": gone, "port": 53}}
        lab.step(
            change={"pods": {gone: None, comes: {"present": True}} if number else {gone: None}},
            expect={"queries": {"backend": comes}, "conntrack": table},
        )
        verdict = lab.conclude()
        assert verdict.number == number + 3
        assert len(verdict.evidence.streams[0].packets) > 5

def test_a_stream_that_does_not_hold(lab):
    lab.step("it goes", change={"pods": {"old": None}}, expect={"queries": {"backend": "new"}})
    lab.conclude()

def test_a_mistake(lab):
    lab.step("a slip", change={"pods": {"odd": None}})

def test_too_soon(lab):
    lab.conclude()

def test_a_workload_is_scaled_as_far_as_its_autoscaler_allows(lab):
    lab.step("more", change={"workloads": {"web": {"spec": {"replicas": 2}}}})

def test_a_workload_is_scaled_further(lab):
    lab.step("too many", change={"workloads": {"web": {"spec": {"replicas": 3}}}})
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("steps")
    (folder / "x.lab.yaml").write_text(SCENARIO)
    (folder / "test_x.py").write_text(TEST)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--lab-no-bundles", "test_x.py", *PLUGIN],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT / "lab"), os.environ.get("PYTHONPATH")))),
        },
    )
    return done.stdout + done.stderr


def test_steps_of_a_test_are_made_behind_those_of_the_file(said: str) -> None:
    assert "4 failed, 2 passed" in said, said


def test_a_step_that_fails_is_explained_at_its_line(said: str) -> None:
    assert "test_x.py:23:1: FAIL: it goes" in said, said
    assert "queries.backend  new" in said
    assert "reproduce: pytest test_x.py::test_a_stream_that_does_not_hold" in said


def test_mistakes_are_told_in_the_words_of_a_file(said: str) -> None:
    assert "test_x.py:27:1: spec.steps[0].change.pods.odd: 'odd' is neither an entry of spec.pods" in said, said
    assert "there is no step to conclude: call lab.step() before lab.conclude()" in said


def test_a_workload_gets_no_pod_that_the_lab_has_no_room_for(said: str) -> None:
    assert "the lab has no network namespace for web-" in said, said
