"""Workloads in a scenario: their pods from the first moment to the last step, and in a standing lab."""

import re

import pytest
from broken_scenarios import BASE
from golden_words import Told

from proxylab.client.edit import edit
from proxylab.cluster.objects import EndpointSlice, KubeObject, Pod
from proxylab.engines.lacking import lacking
from proxylab.plan.assembly import assemble, lay_out
from proxylab.report.description import describe
from proxylab.report.listing import kind_named, listing, of_kind
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.model import Scenario

WEB = """\
apiVersion: {version}
kind: {kind}
metadata: {{name: web}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}, annotations: {{try: "{attempt}"}}}}
    spec:
      terminationGracePeriodSeconds: {grace}
      containers:
      - name: web
        ports: [{{name: http, containerPort: 8080}}]
        readinessProbe: {{initialDelaySeconds: {late}}}
---
apiVersion: v1
kind: Service
metadata: {{name: web}}
spec: {{selector: {{app: web}}, ports: [{{port: 80, targetPort: http}}]}}
"""
SCALER = """\
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, minReplicas: 1, maxReplicas: 4}
"""


def text(steps: str = "", further: str = "", **values: object) -> str:
    own = {"version": "apps/v1", "kind": "Deployment", "replicas": 2, "attempt": 1, "grace": 5, "late": 0, **values}
    whole = BASE.replace("hosts: {outside: {}}", f"hosts: {{outside: {{}}}}\n  steps: [{steps}]") if steps else BASE
    return f"{whole}---\n{WEB.format(**own)}{further}"


def read(steps: str = "", further: str = "", **values: object) -> Scenario:
    return parse_scenario(text(steps, further, **values), "f")


def web(objects: tuple[KubeObject, ...]) -> list[Pod]:
    return [each for each in objects if isinstance(each, Pod) and each.labels.get("app") == "web"]


def states(objects: tuple[KubeObject, ...]) -> list[tuple[bool, bool, bool]]:
    """Whether each endpoint of the Service is ready, serving and terminating."""
    return [
        (each.ready, each.serving, each.terminating)
        for piece in objects
        if isinstance(piece, EndpointSlice) and piece.service == "web"
        for each in piece.endpoints
    ]


@pytest.mark.parametrize("version", ["apps/v1", "extensions/v1beta1", "apps/v1beta2"])
def test_a_deployment_has_pods_on_both_nodes_behind_its_service(version: str) -> None:
    objects = lay_out(read(version=version)).objects
    assert sorted(each.node_name for each in web(objects)) == ["node-a", "node-b"]
    assert states(objects) == [(True, True, False)] * 2


READY, NOT_YET, LEAVING = (True, True, False), (False, False, False), (False, True, True)


def test_a_new_template_is_a_sequence_of_endpoint_changes() -> None:
    scenario = read(
        "{name: update, change: {workloads: {web: {spec: {template: {metadata: {annotations: {try: '2'}}}}}}}}",
        replicas=1,
        late=2,
    )
    first, *stages = assemble(scenario).timeline[0].through(scenario.steps[0])
    assert [sorted(states(each.objects)) for each in (first, *stages)] == [
        [READY],
        sorted([READY, NOT_YET]),
        [READY, READY],
        sorted([LEAVING, READY]),
        [READY],
    ]
    ((change,),) = [step.change.workloads for step in scenario.steps]
    assert [stage.delay for stage in change.stages] == [0, 2000, 0, 0]


def test_without_grace_a_pod_is_gone_at_once() -> None:
    scenario = read("{name: less, change: {workloads: {web: {spec: {replicas: 1}}}}}", grace=0)
    ((change,),) = [step.change.workloads for step in scenario.steps]
    (stage,) = change.stages
    assert (len(stage.deleted), stage.killed, stage.terminating) == (1, True, ())


def test_a_workload_may_come_and_go_in_steps() -> None:
    new = (
        "{apiVersion: apps/v1, kind: StatefulSet, spec: {serviceName: db, replicas: 2, template: "
        "{metadata: {labels: {app: web}}, spec: {containers: [{name: db, ports: [{containerPort: 1}]}]}}}}"
    )
    scenario = read(
        f"{{name: a, change: {{workloads: {{db: {new}}}}}}}, {{name: b, change: {{workloads: {{db: null}}}}}}"
    )
    counts = [len(web(each.objects)) for each in assemble(scenario).timeline]
    assert counts == [2, 4, 2]
    kinds = [{each.key.kind for each in cluster.objects} for cluster in assemble(scenario).timeline]
    assert ["StatefulSet.apps" in each for each in kinds] == [False, True, False]


def test_a_workload_stands_for_the_pods_that_it_has_when_a_probe_is_sent() -> None:
    probe = (
        "{name: p, from: client, to: {service: web, via: clusterIP}, send: {flows: 4}, "
        "expect: {outcome: delivered, backends: [web], source: preserved}}"
    )
    scenario = read(f"{{name: more, change: {{workloads: {{web: {{spec: {{replicas: 3}}}}}}}}, probes: [{probe}]}}")
    (sent,) = scenario.steps[0].probes
    assert set(sent.expect.backend_names) == {each.name for each in web(assemble(scenario).timeline[1].objects)}
    assert len(sent.expect.backend_names) == 3


def test_a_pod_that_finds_no_node_is_noted() -> None:
    spread = text().replace("containers:", "nodeSelector: {disk: ssd}\n      containers:")
    scenario = parse_scenario(spread, "f")
    assert "Deployment default/web: 2 of 2 pods find no node, and would stay Pending" in scenario.notes


@pytest.mark.parametrize(("target", "noted"), [("http", False), ("8080", False), ("9090", True), ("metrics", True)])
def test_a_target_port_that_no_container_declares_is_noted(target: str, noted: bool) -> None:
    notes = parse_scenario(text().replace("targetPort: http", f"targetPort: {target}"), "f").notes
    wanted = f"Service web sends to TCP port {target}, which no container of Deployment default/web declares: "
    assert (f"{wanted}nothing answers there" in notes) is noted


def test_only_crafted_packets_reach_a_program_that_is_not_the_labs_own() -> None:
    probes = ", ".join(
        f"{{name: {way}, from: client, to: {{service: web, via: clusterIP}}, send: {{as: {way}, flows: 2}}, "
        "expect: {outcome: delivered, source: preserved}}"
        for way in ("packet", "connect")
    )
    run = text().replace("- name: web\n", "- name: web\n        command: [serve]\n        args: [all]\n")
    whole = re.sub(r"  probes:.*?---", f"  commands: [web]\n  probes: [{probes}]\n---", run, count=1, flags=re.DOTALL)
    assembly = assemble(parse_scenario(whole, "f"))
    assert {each.commands for each in assembly.plan.pods if each.name.startswith("web")} == {(("serve", "all"),)}
    packet, connect = (lacking("iptables", assembly, probe) for probe in assembly.scenario.probes)
    assert packet == ""
    assert connect.endswith("is not the lab's own program; write as: packet, over TCP")


def test_a_standing_lab_scales_a_workload_as_far_as_its_autoscaler_allows(told: Told) -> None:
    stands = assemble(read(further=SCALER))
    for replicas, lines in ((1, "-"), (4, "+")):
        found = edit(stands, 0, read(further=SCALER, replicas=replicas))
        assert found.refused == ()
        pods = [line for line in found.changes if line.startswith(f"{lines} Pod")]
        assert len(pods) == abs(replicas - 2)
        again = edit(assemble(found.scenario), 0, read(further=SCALER, replicas=2))
        assert again.refused == ()
    refused = edit(stands, 0, read(further=SCALER, replicas=5)).refused
    assert [each.partition(": ")[2] for each in refused] == told()


def test_tables_and_descriptions_know_a_workload() -> None:
    layout = lay_out(read())
    kind = kind_named("deploy")
    assert kind is not None
    found = of_kind(kind, layout.objects)
    assert listing(kind, found, layout.objects, wide=False) == [
        "NAME   READY   NODES",
        "web    2/2     node-a,node-b",
    ]
    (page,) = [describe(each, layout.objects, layout.plan, layout.scenario.network.families) for each in found]
    assert [line for line in page if "web-" in line and line.endswith("on node-b: ready, serving")]
