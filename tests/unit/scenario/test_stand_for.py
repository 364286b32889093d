"""One name among the backends of a probe may stand for the pods of a group, of a workload, or for a daemon."""

from broken_scenarios import BASE

from proxylab.scenario.expect import SourceByBackend
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.model import Scenario

DEPLOYMENT = """\
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: example.com/web, ports: [{containerPort: 8080}]}]}
"""


def read(backends: str, text: str = BASE, further: str = "") -> Scenario:
    expect = f"{{outcome: delivered, source: preserved, backends: [{backends}]{further}}}"
    return parse_scenario(
        text.replace("{outcome: delivered, source: preserved}", expect).replace(
            "    from: client\n", "    from: client\n    send: {as: packet, flows: 40}\n"
        ),
        "f",
    )


def test_the_name_of_an_entry_with_replicas_stands_for_its_pods() -> None:
    (probe,) = read("echo").probes
    assert probe.expect.backend_names == ("echo-1", "echo-2")


def test_a_port_behind_the_name_of_a_group_is_the_port_of_each_pod() -> None:
    (probe,) = read("echo:8080").probes
    assert list(map(str, probe.expect.backends or ())) == ["echo-1:8080", "echo-2:8080"]


def test_sources_by_backend_have_an_entry_for_each_pod_of_the_group() -> None:
    text = BASE.replace("source: preserved", "source: {echo: preserved}")
    source = parse_scenario(text, "f").probes[0].expect.source
    assert isinstance(source, SourceByBackend)
    assert list(source.of) == ["echo-1", "echo-2"]


def test_a_group_stands_for_the_pods_that_exist_at_the_step() -> None:
    steps = """\
  steps:
  - name: one pod goes
    change: {pods: {echo-1: null}}
    probes: [PROBE]
  - name: it comes back
    change: {pods: {echo: {present: true}}}
    probes: [PROBE]
---
""".replace(
        "PROBE",
        "{name: sent, from: client, to: {service: echo, via: clusterIP}, send: {flows: 20}, "
        "expect: {outcome: delivered, source: preserved, backends: [echo]}}",
    ).replace("change: {pods: {echo: {present: true}}}", "change: {pods: {echo-1: {present: true}}}")
    first, second = parse_scenario(BASE.replace("---\n", steps, 1), "f").steps
    assert first.probes[0].expect.backend_names == ("echo-2",)
    assert second.probes[0].expect.backend_names == ("echo-1", "echo-2")


def test_a_workload_of_another_namespace_is_listed_as_it_may_be_written() -> None:
    scenario = read("shop/web", BASE + DEPLOYMENT)
    assert len(scenario.probes[0].expect.backend_names) == 2
    assert all(each.startswith("web-") for each in scenario.probes[0].expect.backend_names)


def test_a_daemon_of_one_node_may_be_a_backend() -> None:
    daemon = BASE.replace("node-a: {}", "node-a: {daemons: {cache: {port: 5300, protocol: UDP}}}")
    (probe,) = read("cache", daemon).probes
    assert probe.expect.backend_names == ("cache",)
