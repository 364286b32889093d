"""``change: {apply: FILE}``: what a file of manifests makes of a cluster, as ``kubectl apply`` would."""

from pathlib import Path

import pytest

from proxylab.cluster.objects import Pod, Service
from proxylab.errors import ScenarioError
from proxylab.plan.assembly import assemble
from proxylab.scenario.load import load_scenario
from proxylab.scenario.model import Scenario

HEAD = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: s}
spec:
  nodes: {node-a: {}}
  pods: {client: {}}
  steps:
"""
FIRST = """\
---
apiVersion: v1
kind: Service
metadata: {name: web, labels: {tier: front}}
spec: {selector: {app: web}, sessionAffinity: ClientIP, externalIPs: [192.0.2.1], ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, ports: [{containerPort: 8080}]}]}}
"""
SERVICE = "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80}]}}"
MORE = (
    "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 3, selector: {matchLabels: "
    "{app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, ports: "
    "[{containerPort: 8080}]}]}}}}"
)


def read(folder: Path, files: dict[str, str], *changes: str) -> Scenario:
    for name, text in files.items():
        (folder / name).write_text(text)
    steps = "".join(f"  - {{name: step {number}, change: {each}}}\n" for number, each in enumerate(changes))
    (folder / "s.lab.yaml").write_text(HEAD + steps + FIRST)
    return load_scenario(folder / "s.lab.yaml")


def service(scenario: Scenario, made: int, name: str = "web") -> Service:
    objects = assemble(scenario).timeline[made].objects
    (found,) = (each for each in objects if isinstance(each, Service) and each.name == name)
    return found


def pods(scenario: Scenario, made: int) -> int:
    objects = assemble(scenario).timeline[made].objects
    return sum(isinstance(each, Pod) and each.name.startswith("web") for each in objects)


def test_what_the_former_manifest_had_and_the_file_has_not_goes(tmp_path: Path) -> None:
    scenario = read(tmp_path, {"a.yaml": SERVICE}, "{apply: a.yaml}")
    before, after = service(scenario, 0), service(scenario, 1)
    assert (before.affinity_timeout, before.labels, len(before.external_ips)) == (10800, {"tier": "front"}, 1)
    assert (after.affinity_timeout, after.labels, after.external_ips) == (None, {}, ())
    assert after.cluster_ips == before.cluster_ips  # what the API server has allocated stays


def test_what_no_file_has_said_stays(tmp_path: Path) -> None:
    patch = "{services: {web: {spec: {internalTrafficPolicy: Local}}}}"
    scenario = read(tmp_path, {"a.yaml": SERVICE}, patch, "{apply: a.yaml}", "{apply: [a.yaml]}")
    assert [service(scenario, made).internal_traffic_policy for made in range(4)] == ["Cluster", *["Local"] * 3]
    # From the second file on, that counts: the first one had taken affinity away, and so a patch may bring it.
    sticky = "{services: {web: {spec: {sessionAffinity: ClientIP}}}}"
    scenario = read(tmp_path, {"a.yaml": SERVICE}, "{apply: a.yaml}", sticky, "{apply: a.yaml}")
    assert [service(scenario, made).affinity_timeout for made in range(4)] == [10800, None, 10800, 10800]


def test_a_file_adds_objects_and_scales_workloads(tmp_path: Path) -> None:
    files = {"a.yaml": f"{SERVICE.replace('name: web}', 'name: new}')}\n---\n{MORE}"}
    scenario = read(tmp_path, files, "{apply: a.yaml}")
    assert (pods(scenario, 0), pods(scenario, 1)) == (2, 3)
    assert service(scenario, 1, "new").cluster_ips
    assert service(scenario, 1).affinity_timeout == 10800


def test_pods_without_ports_listen_where_a_service_of_the_same_file_sends(tmp_path: Path) -> None:
    deployment = MORE.replace("name: web", "name: new").replace("app: web", "app: new")
    deployment = deployment.replace(", ports: [{containerPort: 8080}]", "")
    selecting = SERVICE.replace("web", "new").replace("port: 80", "port: 80, targetPort: 9090")
    scenario = read(tmp_path, {"a.yaml": f"{selecting}\n---\n{deployment}"}, "{apply: a.yaml}")
    listening = {port.port for group in scenario.pods if group.name.startswith("new") for port in group.ports}
    assert listening == {9090}


@pytest.mark.parametrize(
    ("files", "change", "line"),
    [
        ({}, "{apply: none.yaml}", "spec.steps[0].change.apply: the file cannot be read: No such file or directory"),
        ({"a.yaml": "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c}]}}"},
         "{apply: a.yaml}", "kind: a step applies no Pod, such as p; write it into spec.pods"),
        ({"a.yaml": SERVICE}, "{apply: a.yaml, services: {web: {metadata: {labels: {a: b}}}}}",
         "spec.steps[0].change.apply: changes Service default/web twice, by a patch and by a file; use one of the two"),
        ({"a.yaml": MORE}, "{apply: a.yaml, workloads: {web: {spec: {replicas: 1}}}}",
         "changes Deployment default/web twice, by a patch and by a file; use one of the two"),
        ({"a.yaml": SERVICE.replace("port: 80", "port: 99999")}, "{apply: a.yaml}", "a.yaml:1:"),
        ({"a.yaml": SERVICE}, "{apply: [a.yaml, a.yaml]}", "'a.yaml' appears twice"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_at_its_place(tmp_path: Path, files: dict[str, str], change: str, line: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        read(tmp_path, files, change)
    assert line in str(caught.value)
    assert len(caught.value.problems) == 1


def test_an_object_that_changes_nothing_is_warned_of(tmp_path: Path) -> None:
    files = {"a.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: b}}"}
    (warning,) = (each for each in read(tmp_path, files, "{apply: a.yaml}").notes if "ConfigMap" in each)
    assert "ConfigMap c changes nothing" in warning
