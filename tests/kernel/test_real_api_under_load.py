"""Two hundred pods and a thousand Services, made and gone by kubectl, and a stream that loses nothing meanwhile."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from test_real_control_plane import pytestmark as needs_control_plane

# A stream while kubectl makes five pods runs in every run: test_steps_run_kubectl_and_are_judged_by_what_it_makes.
pytestmark = [needs_control_plane, pytest.mark.thorough, pytest.mark.timeout(2400)]

PODS, SERVICES = 200, 1000

SCENARIO = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: crowd}
spec:
  controlPlane: real
  nodes: {node-a: {}, node-b: {}, node-c: {}}
  pods:
    client: {nodes: [node-a]}
    echo: {replicas: 2, nodes: [node-b, node-c], labels: {app: echo}, ports: [8080, {port: 8080, protocol: UDP}]}
  streams:
    datagrams: {from: client, to: {service: echo, port: udp, via: clusterIP}, send: {protocol: UDP, every: 20ms}}
    connection: {from: client, to: {service: echo, port: tcp, via: clusterIP}, send: {every: 20ms}}
  steps:
  - name: kubectl makes two hundred pods
    change: {kubectl: [create, -f, FOLDER/pods.json]}
    until: {within: 600s}
    expect: {datagrams: {lost: 0, rejected: 0}, connection: {lost: 0, resets: 0}}
  - name: kubectl makes a thousand Services of them
    change: {kubectl: [create, -f, FOLDER/services.json]}
    until: {within: 600s}
    expect: {datagrams: {lost: 0, rejected: 0}, connection: {lost: 0, resets: 0}}
    probes:
    - name: the first one leads to its pod
      from: client
      to: {service: load-0, via: clusterIP}
      expect: {outcome: delivered, source: preserved, backends: [crowd-0]}
    - name: the last one leads to its pod
      from: client
      to: {service: load-999, via: clusterIP}
      expect: {outcome: delivered, source: preserved, backends: [crowd-199]}
  - name: kubectl takes the pods away
    change: {kubectl: [delete, statefulset/crowd, --cascade=foreground]}
    until: {within: 600s}
    expect: {datagrams: {lost: 0, rejected: 0}, connection: {lost: 0, resets: 0}}
    probes:
    - name: a Service without its pod rejects
      from: client
      to: {service: load-999, via: clusterIP}
      expect: {outcome: rejected, at: node-a}
  - name: kubectl takes the Services away
    change: {kubectl: [delete, services, --selector=load=one]}
    until: {within: 600s}
    expect: {datagrams: {lost: 0, rejected: 0}, connection: {lost: 0, resets: 0}}
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec:
  selector: {app: echo}
  ports: [{name: tcp, port: 80, targetPort: 8080}, {name: udp, port: 80, targetPort: 8080, protocol: UDP}]
"""


def pods() -> dict[str, Any]:
    template = {
        "metadata": {"labels": {"app": "crowd"}},
        "spec": {"containers": [{"name": "crowd", "image": "crowd", "ports": [{"containerPort": 8080}]}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "crowd"},
        "spec": {
            "serviceName": "crowd",
            "replicas": PODS,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "crowd"}},
            "template": template,
        },
    }


def services() -> dict[str, Any]:
    def service(number: int) -> dict[str, Any]:
        selector = {"statefulset.kubernetes.io/pod-name": f"crowd-{number % PODS}"}
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": f"load-{number}", "labels": {"load": "one"}},
            "spec": {"selector": selector, "ports": [{"port": 80, "targetPort": 8080}]},
        }

    return {"apiVersion": "v1", "kind": "List", "items": [service(number) for number in range(SERVICES)]}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that kubectl can read: in a lab of root it runs as another user, who may not enter folders of tests."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="crowd-") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def test_two_hundred_pods_and_a_thousand_services_come_and_go_under_streams_that_lose_nothing(
    cli: CommandLine, folder: Path
) -> None:
    (folder / "pods.json").write_text(json.dumps(pods()))
    (folder / "services.json").write_text(json.dumps(services()))
    file = folder / "crowd.lab.yaml"
    file.write_text(SCENARIO.replace("FOLDER", str(folder)))
    done = cli.type("run", str(file), "--no-bundles")
    assert (done.status, "7 passed" in done.output) == (0, True), done
