"""What a mode lacks of what scenarios ask for, and the word by which a probe means either manner."""

import pytest

from proxylab.engines.lacking import lacking, refuse, refuse_dialogue
from proxylab.errors import CapabilityError
from proxylab.plan.assembly import assemble
from proxylab.scenario.cases import cases
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.model import Scenario
from proxylab.scenario.words import Manner

TEXT = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {{name: lacking}}
spec:
  network: {{families: [IPv4, IPv6]}}
  nodes: {{node-a: {{daemons: {{own: {{port: 30090}}}}}}}}
  pods:
    echo: {{nodes: [node-a], labels: {{app: echo}}, ports: [8080]}}
    client: {{nodes: [node-a]}}
  hosts: {{outside: {{}}}}
  probes:
  - name: it
    from: client
    to: {target}
    send: {send}
    expect: {expect}
---
apiVersion: v1
kind: Service
metadata: {{name: echo}}
spec:
  type: LoadBalancer
  ipFamilyPolicy: RequireDualStack
  selector: {{app: echo}}
  {service}
  ports: [{{port: 80, targetPort: 8080, nodePort: {node_port}, protocol: {protocol}}}]
"""

BY_NODE = "{node: node-a, device: pods}"


def scenario(
    target: str = "{service: echo, via: clusterIP}",
    send: str = "{}",
    expect: str = f"{{outcome: delivered, source: {BY_NODE}}}",
    service: str = "externalTrafficPolicy: Cluster",
    protocol: str = "TCP",
    node_port: int = 30080,
) -> Scenario:
    text = TEXT.format(target=target, send=send, expect=expect, service=service, protocol=protocol, node_port=node_port)
    return parse_scenario(text, "lacking.lab.yaml")


def why(written: Scenario, mode: str = "userspace") -> str:
    (case,) = cases(written, mode)
    return lacking(mode, assemble(case), case.probes[0])


def test_it_lacks_nothing_of_an_ordinary_probe() -> None:
    assert why(scenario()) == ""


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"send": "{as: packet}"}, "a single crafted SYN opens none; write send: {as: connect}, or {as: either}"),
        ({"protocol": "SCTP"}, "has no SCTP"),
        ({"target": "{service: echo, via: clusterIP, family: IPv6}"}, "serves one family"),
        ({"expect": "{outcome: delivered, source: preserved}"}, "never preserves the client's address"),
        ({"expect": "{outcome: rejected}"}, "no rule that lets a flow be rejected"),
        ({"service": "internalTrafficPolicy: Local"}, "no traffic policy Local"),
        (
            {"service": "externalTrafficPolicy: Local", "target": "{service: echo, via: nodePort, node: node-a}"},
            "no traffic policy Local",
        ),
    ],
)
def test_it_lacks_what_kube_proxy_never_gave_it(changes: dict[str, str], reason: str) -> None:
    assert reason in why(scenario(**changes))  # type: ignore[arg-type]
    assert why(scenario(**changes), "iptables") == ""  # type: ignore[arg-type]


def test_a_local_policy_for_outside_does_not_concern_the_cluster_ip() -> None:
    assert why(scenario(service="externalTrafficPolicy: Local")) == ""


def test_a_probe_without_a_service_needs_no_mode() -> None:
    to_pod = "{pod: echo}"
    assert why(scenario(target=to_pod, send="{as: packet}", expect="{outcome: delivered, source: preserved}")) == ""


@pytest.mark.parametrize(
    ("mode", "manner"), [("iptables", Manner.PACKET), ("nftables", Manner.PACKET), ("userspace", Manner.CONNECT)]
)
def test_either_is_a_packet_where_the_proxy_forwards_and_a_connection_where_it_ends_them(
    mode: str, manner: Manner
) -> None:
    (case,) = cases(scenario(send="{as: either}"), mode)
    assert case.probes[0].send.manner is manner
    assert why(scenario(send="{as: either}"), mode) == ""


def test_a_daemon_on_a_node_port_is_refused() -> None:
    refuse("iptables", scenario(node_port=30090))
    with pytest.raises(CapabilityError, match="leaves node ports to daemons"):
        refuse("userspace", scenario(node_port=30090))


def test_crafted_dialogues_are_refused() -> None:
    refuse_dialogue("nftables")
    with pytest.raises(CapabilityError, match="crafted segments open no connection"):
        refuse_dialogue("userspace")
