"""Where a stream may be, step by step: at what it could once reach, and new flows only at what they may reach now."""

from textwrap import dedent

from proxylab.plan.assembly import Assembly, assemble
from proxylab.scenario.load import parse_scenario

SCENARIO = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: moving}
spec:
  nodes: {node-a: {}, node-b: {}}
  pods:
    client: {nodes: [node-a]}
    old: {nodes: [node-b], labels: {app: dns}, ports: [{port: 5353, protocol: UDP}]}
    new: {nodes: [node-b], labels: {app: dns}, ports: [{port: 5353, protocol: UDP}], ready: false}
  streams:
    queries: {from: client, to: {service: dns, via: clusterIP}}
    direct: {from: client, to: {pod: old, port: 5353}, send: {protocol: UDP}}
  steps:
  - {name: nothing changes}
  - {name: the pods change places, change: {pods: {old: {ready: false}, new: {ready: true}}}}
  - {name: the Service goes, change: {services: {dns: null}}}
---
apiVersion: v1
kind: Service
metadata: {name: dns}
spec: {selector: {app: dns}, ports: [{name: dns, port: 53, targetPort: 5353, protocol: UDP}]}
"""


def ends(assembly: Assembly, stream: int) -> list[tuple[str, dict[str, bool]]]:
    """At the end of each step: the Service's port, and each end with whether a new flow may reach it."""
    found = (each[stream] for each in assembly.streams_by_step)
    return [(each.service_port, {str(end.address): end.is_reachable for end in each.endpoints}) for each in found]


def test_a_stream_keeps_the_ends_that_it_once_could_reach() -> None:
    assembly = assemble(parse_scenario(dedent(SCENARIO), "moving.lab.yaml"))
    old, new = (str(assembly.addresses[name][0]) for name in ("old", "new"))
    first, changed, gone = ends(assembly, 0)
    assert first == ("default/dns:dns", {old: True})
    assert changed == ("default/dns:dns", {old: False, new: True})
    assert gone[0] == "default/dns:dns"
    assert gone[1] | {old: False, new: False} == gone[1]
    assert all(each == ("", {old: True}) for each in ends(assembly, 1))


def test_a_stream_may_begin_at_the_end_of_its_own_entry_from_before_the_proxy() -> None:
    known = """\
          conntrack:
          - {protocol: UDP, from: "10.244.0.50:40001", to: "10.96.0.53:53", replyFrom: "10.244.0.99:5353"}
          - {protocol: UDP, from: "10.244.0.50:40002", to: "10.96.0.53:53", replyFrom: "10.244.0.98:5353"}
          - {protocol: TCP, from: "10.244.0.50:40001", to: "10.96.0.53:53", replyFrom: "10.244.0.97:5353"}
          - {protocol: UDP, from: "10.244.0.50:40001", to: "10.96.0.53:54", replyFrom: "10.244.0.96:5353"}
"""
    text = (
        SCENARIO.replace("{node-a: {}, node-b: {}}", "\n    node-b: {}\n    node-a:\n" + known.rstrip())
        .replace("client: {nodes: [node-a]}", "client: {nodes: [node-a], addresses: [10.244.0.50]}")
        .replace("queries: {from: client,", "queries: {from: {name: client, port: 40001},")
        .replace("spec: {selector", "spec: {clusterIP: 10.96.0.53, selector")
    )
    assembly = assemble(parse_scenario(dedent(text), "moving.lab.yaml"))
    old = str(assembly.addresses["old"][0])
    assert ends(assembly, 0)[0] == ("default/dns:dns", {"10.244.0.99": False, old: True})
