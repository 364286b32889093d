"""What a mode lacks of what scenarios ask for, and the word by which a probe means either manner."""

from ipaddress import ip_address

import pytest

from proxylab.engines.lacking import lacking, lacking_of_step, refuse, refuse_dialogue, refuse_server
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


def past_the_proxy(service: str = "externalTrafficPolicy: Cluster") -> str:
    """The text of a scenario whose probe asks nothing of the proxy."""
    expect = "{outcome: delivered, source: preserved}"
    return TEXT.format(target="{pod: echo}", send="{}", expect=expect, service=service, protocol="TCP", node_port=30080)


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
        ({"expect": "{outcome: dropped}"}, "no rule that lets a flow be dropped"),
        ({"service": "internalTrafficPolicy: Local"}, "no traffic policy Local"),
        (
            {"service": "externalTrafficPolicy: Local", "target": "{service: echo, via: nodePort, node: node-a}"},
            "no traffic policy Local",
        ),
        (
            {"service": "externalIPs: ['2001:db8:51::7']", "target": "{service: echo, via: nodePort, node: node-a}"},
            "no frontend of default/echo behind 2001:db8:51::7, which is no IPv4 address",
        ),
        (
            {"service": "ipFamilies: [IPv6, IPv4]", "target": "{service: echo, via: clusterIP, family: IPv4}"},
            "serves clusterIP alone, and that of default/echo is no IPv4 address",
        ),
        (
            {
                "service": "ipFamilies: [IPv6, IPv4]",
                "target": "{service: echo, via: nodePort, node: node-a, family: IPv4}",
            },
            "serves clusterIP alone, and that of default/echo is no IPv4 address",
        ),
    ],
)
def test_it_lacks_what_kube_proxy_never_gave_it(changes: dict[str, str], reason: str) -> None:
    assert reason in why(scenario(**changes))  # type: ignore[arg-type]
    assert why(scenario(**changes), "iptables") == ""  # type: ignore[arg-type]


def test_datagrams_without_an_endpoint_are_dropped() -> None:
    assert why(scenario(expect="{outcome: dropped}", protocol="UDP")) == ""


EXTERNAL = "{service: echo, via: externalIP}"


def test_a_node_reaches_an_external_ip_that_it_owns() -> None:
    def from_node(address: str) -> str:
        written = TEXT.replace("from: client", "from: node-a")
        text = written.format(
            target=EXTERNAL,
            send="{}",
            expect=f"{{outcome: delivered, source: {BY_NODE}}}",
            service=f"externalIPs: [{address}]",
            protocol="TCP",
            node_port=30080,
        )
        return why(parse_scenario(text, "lacking.lab.yaml"))

    assert from_node("172.18.0.2") == ""
    assert "only where the node has the address" in from_node("198.51.100.7")


def test_an_address_of_the_other_family_does_not_concern_the_cluster_ip() -> None:
    assert why(scenario(service="externalIPs: ['2001:db8:51::7']")) == ""


def test_ipv6_before_ipv4_is_not_served() -> None:
    written = TEXT.replace("[IPv4, IPv6]", "[IPv6, IPv4]").format(
        target="{service: echo, via: clusterIP, family: IPv6}",
        send="{}",
        expect=f"{{outcome: delivered, source: {BY_NODE}}}",
        service="externalTrafficPolicy: Cluster",
        protocol="TCP",
        node_port=30080,
    )
    assert "serves no IPv6 beside IPv4" in why(parse_scenario(written, "lacking.lab.yaml"))


def test_an_external_ip_may_be_left_alone() -> None:
    external = "externalIPs: [198.51.100.7]"
    assert why(scenario(target=EXTERNAL, expect="{outcome: untranslated}", service=external)) == ""
    assert "no rule that lets a flow be dropped" in why(
        scenario(target=EXTERNAL, expect="{outcome: dropped}", service=external)
    )


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


def test_a_node_sends_from_no_node_port() -> None:
    text = "from: client"
    written = past_the_proxy()
    for sender, reason in (("{name: node-a, port: 30080}", "off its node ports"), ("{name: node-a, port: 30081}", "")):
        assert reason in (found := why(parse_scenario(written.replace(text, f"from: {sender}"), "f.lab.yaml")))
        assert bool(found) is bool(reason)


def test_a_daemon_on_a_node_port_is_refused() -> None:
    refuse("embedded/iptables", scenario(node_port=30090))
    with pytest.raises(CapabilityError, match="leaves ports of Services to daemons"):
        refuse("embedded/userspace", scenario(node_port=30090))


def _at_an_address_of_its_own(daemon: str, external: str = "192.0.2.7") -> Scenario:
    text = past_the_proxy(f"externalIPs: [{external}]").replace(
        "daemons: {own: {port: 30090}}", f"addresses: [192.0.2.7], daemons: {{own: {daemon}}}"
    )
    return parse_scenario(text, "held.lab.yaml")


@pytest.mark.parametrize("daemon", ["{port: 80}", "{port: 80, address: 192.0.2.7}"])
def test_a_daemon_on_a_service_port_at_an_address_of_the_node_is_refused(daemon: str) -> None:
    refuse("embedded/iptables", _at_an_address_of_its_own(daemon))
    refuse("embedded/userspace", _at_an_address_of_its_own(daemon, external="192.0.2.8"))
    with pytest.raises(CapabilityError, match="leaves ports of Services to daemons"):
        refuse("embedded/userspace", _at_an_address_of_its_own(daemon))


@pytest.mark.parametrize("daemon", ["{port: 80, address: 127.0.0.1}", "{port: 80, protocol: UDP}", "{port: 81}"])
def test_a_daemon_beside_it_is_not(daemon: str) -> None:
    refuse("embedded/userspace", _at_an_address_of_its_own(daemon))


def test_rules_of_another_mode_are_refused_and_foreign_ones_are_not() -> None:
    def left(chain: str) -> Scenario:
        rules = f'"*nat\\n:{chain} - [0:0]\\nCOMMIT\\n"'
        text = past_the_proxy().replace("daemons: {own: {port: 30090}}", f"leftovers: {{iptables: {rules}}}")
        return parse_scenario(text, "left.lab.yaml")

    refuse("embedded/iptables", left("KUBE-SERVICES"))
    refuse("embedded/userspace", left("DOCKER"))
    with pytest.raises(CapabilityError, match="removes the rules of another mode"):
        refuse("embedded/userspace", left("KUBE-SERVICES"))


def test_only_the_embedded_engine_removes_its_rules_when_another_mode_takes_its_place() -> None:
    text = past_the_proxy()
    step = "  steps: [{name: it changes, change: {engines: {node-a: iptables}}}]\n---"
    changed = parse_scenario(text.replace("---", step, 1), "changed.lab.yaml")
    refuse("embedded/userspace", changed)
    refuse("kube-proxy/iptables", changed)
    with pytest.raises(CapabilityError, match="removes its rules when another mode takes its place"):
        refuse("kube-proxy/userspace", changed)


@pytest.mark.parametrize(
    ("balanced", "port", "protocol", "reason"),
    [
        ("192.0.2.7", 80, "TCP", ""),
        ("2001:db8::7", 80, "TCP", "for 2001:db8::7"),
        ("2001:db8::7", 80, "UDP", ""),
        ("2001:db8::7", 81, "TCP", ""),
    ],
)
def test_rules_of_a_service_with_an_address_of_the_other_family_are_never_removed(
    balanced: str, port: int, protocol: str, reason: str
) -> None:
    text = past_the_proxy(f"clusterIPs: [10.96.0.80, 'fd00:10:96::80']\n  externalIPs: ['{balanced}']")
    step = f"""  steps:
  - name: the Service is deleted
    change: {{services: {{echo: null}}}}
    probes:
    - name: it is gone
      from: client
      to: {{address: 10.96.0.80, port: {port}}}
      send: {{protocol: {protocol}}}
      expect: {{outcome: untranslated}}
---"""
    (case,) = cases(parse_scenario(text.replace("---", step, 1), "kept.lab.yaml"), "userspace")
    found = lacking("userspace", assemble(case), case.steps[0].probes[0])
    assert found.endswith(reason)
    assert bool(found) is bool(reason)


def test_a_daemon_may_listen_over_another_protocol_than_the_node_port() -> None:
    refuse("embedded/userspace", scenario(node_port=30090, protocol="UDP"))


def test_a_headless_service_is_reached_past_the_proxy() -> None:
    source = "{outcome: delivered, source: preserved}"
    text = TEXT.format(
        target="{service: echo, via: dnsName}",
        send="{}",
        expect=source,
        service="clusterIP: None",
        protocol="TCP",
        node_port=0,
    )
    headless = text.replace("type: LoadBalancer", "type: ClusterIP").replace("nodePort: 0, ", "")
    assert why(parse_scenario(headless, "headless.lab.yaml")) == ""
    assert "never preserves" in why(scenario("{service: echo, via: dnsName}", expect=source))


def test_a_server_of_the_second_family_is_refused_at_its_cluster_ip() -> None:
    written = scenario()
    for served in ("10.96.0.10", "10.244.0.2", "fd00:10:244::2"):
        refuse_server("userspace", written, ip_address(served))
    refuse_server("nftables", written, ip_address("fd00:10:96::a"))
    with pytest.raises(CapabilityError, match="serves IPv6: mode userspace serves one family"):
        refuse_server("userspace", written, ip_address("fd00:10:96::a"))


def test_crafted_dialogues_are_refused() -> None:
    refuse_dialogue(["nftables", "iptables"])
    with pytest.raises(CapabilityError, match="crafted segments open no connection"):
        refuse_dialogue(["iptables", "userspace"])


STREAMS = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: lacking-of-streams}
spec:
  network: {families: [IPv4, IPv6]}
  matrix: {family: [IPv4, IPv6]}
  nodes: {node-a: {}}
  pods:
    echo: {nodes: [node-a], labels: {app: echo}, ports: [{port: 5353, protocol: UDP}]}
    client: {nodes: [node-a]}
  streams:
    queries: {from: client, to: {service: dns, via: clusterIP}, send: {every: 5ms}}
    nearby: {from: client, to: {service: local, via: clusterIP}, send: {every: 5ms}}
    straight: {from: client, to: {pod: echo, port: 5353}, send: {protocol: UDP, every: 5ms}}
  steps:
  - name: the first
    expect:
      queries: {backend: echo, source: preserved, rejected: 0}
      nearby: {backend: echo}
      straight: {backend: echo, source: preserved}
      conntrack: {some: {replyFrom: echo}}
  - name: the Service is gone
    change: {services: {dns: null}, engines: {node-a: kill}}
    until: {backends: {straight: echo}}
    expect: {queries: {rejected: {atLeast: 5}}, conntrack: {none: {replyFrom: 10.96.0.10}}}
  - name: and remains so
    expect: {queries: {rejected: {atLeast: 5}}}
---
apiVersion: v1
kind: Service
metadata: {name: dns}
spec: {ipFamilyPolicy: RequireDualStack, selector: {app: echo}, ports: [{port: 53, targetPort: 5353, protocol: UDP}]}
---
apiVersion: v1
kind: Service
metadata: {name: local}
spec:
  ipFamilyPolicy: RequireDualStack
  internalTrafficPolicy: Local
  selector: {app: echo}
  ports: [{port: 53, targetPort: 5353, protocol: UDP}]
"""


def test_of_a_step_it_lacks_single_expectations_and_whole_streams() -> None:
    (case,) = cases(parse_scenario(STREAMS, "streams.lab.yaml"), "userspace")
    assembly = assemble(case)
    first, gone, later = (lacking_of_step("userspace", assembly, step) for step in case.steps)
    of_families = {
        f"queries[{family}]{key}" for family, key in (("ipv4", ".source"), ("ipv6", ".source"), ("ipv6", ""))
    }
    assert set(first) == {"conntrack", "nearby[ipv4]", "nearby[ipv6]", *of_families}
    assert "no traffic policy Local" in first["nearby[ipv4]"]
    assert "serves one family" in first["queries[ipv6]"]
    # The Service is there when this step begins.
    assert {"queries[ipv4].rejected", "queries[ipv6]"} < set(gone)
    assert "conntrack" not in gone, "no pod is named"
    assert sorted(later) == ["nearby[ipv4]", "nearby[ipv6]"]
    assert lacking_of_step("iptables", assembly, case.steps[0]) == {}


METRICS = """
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: metrics}
spec:
  nodes: {node-a: {}, node-b: {}}
  pods: {echo: {nodes: [node-a], labels: {app: echo}, ports: [8080]}}
  steps:
  - name: the first
    expect: {metrics: [{name: sync_proxy_rules_no_local_endpoints_total, node: node-a, value: 0}]}
  - name: the mode of one node changes
    change: {engines: {node-a: iptables}}
    expect: {metrics: [{name: sync_proxy_rules_no_local_endpoints_total, node: node-a, value: 0}]}
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {selector: {app: echo}, ports: [{port: 80, targetPort: 8080}]}
"""


def test_it_exports_no_metric_of_rules_on_the_nodes_that_are_in_the_mode() -> None:
    (case,) = cases(parse_scenario(METRICS, "metrics.lab.yaml"), "userspace")
    assembly = assemble(case)
    first, changed = (lacking_of_step("userspace", assembly, step) for step in case.steps)
    assert first == {"metrics": "mode userspace exports no metric of what its rules do"}
    assert changed == {}, "node-b is still in mode userspace, and no metric of it is expected"


def test_a_wait_for_streams_that_outlive_the_proxy_is_refused() -> None:
    (case,) = cases(parse_scenario(STREAMS, "streams.lab.yaml"), "userspace")
    refuse("embedded/iptables", case)
    with pytest.raises(CapabilityError, match="connections outlive the proxy"):
        refuse("embedded/userspace", case)


def test_what_a_step_makes_of_the_mode_counts_at_the_node_that_a_flow_enters() -> None:
    text = STREAMS.replace("engines: {node-a: kill}", "engines: {node-a: iptables}")
    (case,) = cases(parse_scenario(text, "streams.lab.yaml"), "userspace")
    assert case.modes_after("userspace", 1) == {"node-a": "userspace"}
    assert case.modes_after("userspace", 2) == {"node-a": "iptables"}
    assembly = assemble(case)
    first, changing, later = (lacking_of_step("userspace", assembly, step) for step in case.steps)
    assert first
    assert changing, "the step begins in mode userspace"
    assert later == {}
    refuse("embedded/userspace", case)
