"""Where the flows of a probe may arrive, by what Services and EndpointSlices say."""

import pytest

from proxylab.addresses import IPAddress
from proxylab.plan.assembly import Assembly, assemble
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.cases import cases
from proxylab.scenario.load import parse_scenario

TEXT = """
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: endpoints}
spec:
  dns: true
  nodes: {node-a: {}, node-b: {}}
  pods:
    one: {nodes: [node-a], labels: {app: shop}, ports: [{name: http, port: 8080}, {name: metrics, port: 9090}]}
    other: {nodes: [node-b], labels: {app: shop}, ports: [{name: http, port: 8081}]}
    agent: {nodes: [node-b], hostNetwork: true, labels: {app: agent}, ports: [5353]}
    client: {nodes: [node-a]}
  hosts: {outside: {}}
  probes:
  - {name: cluster IP, from: client, to: {service: shop, port: http, via: clusterIP}, expect: {outcome: refused}}
  - {name: other port, from: client, to: {service: shop, port: metrics, via: clusterIP}, expect: {outcome: refused}}
  - {name: node port, from: outside, to: {service: shop, port: http, via: nodePort, node: node-b},
     expect: {outcome: refused}}
  - {name: external IP, from: outside, to: {service: shop, port: http, via: externalIP}, expect: {outcome: refused}}
  - {name: health check, from: outside, to: {service: shop, via: healthCheckNodePort, node: node-a},
     expect: {http: {status: 200}}}
  - {name: by name, from: client, to: {service: shop, port: http, via: dnsName}, expect: {outcome: refused}}
  - {name: headless, from: client, to: {service: each, via: dnsName}, expect: {outcome: refused}}
  - {name: host network, from: client, to: {service: agents, via: clusterIP}, expect: {outcome: refused}}
  - {name: pod, from: client, to: {pod: other, port: 8081}, expect: {outcome: refused}}
  - {name: node port by address, from: outside, to: {address: 172.18.0.2, port: 30080}, expect: {outcome: refused}}
  - {name: no port of it, from: outside, to: {address: 192.0.2.1, port: 81}, expect: {outcome: refused}}
  - {name: echo request, from: client, to: {pod: other}, send: {protocol: ICMP}, expect: {outcome: rejected}}
  - {name: given slices, from: client, to: {service: given, via: clusterIP}, expect: {outcome: refused}}
  steps:
  - name: another target port
    change:
      services:
        shop: {spec: {ports: [{name: http, port: 80, targetPort: 9000, nodePort: 30080}]}}
      endpointSlices:
        given-1: {ports: [{name: "", port: 7001}]}
    probes:
    - {name: moved, from: client, to: {service: shop, port: http, via: clusterIP}, expect: {outcome: refused}}
    - {name: given moved, from: client, to: {service: given, via: clusterIP}, expect: {outcome: refused}}
---
apiVersion: v1
kind: Service
metadata: {name: shop}
spec:
  type: LoadBalancer
  externalTrafficPolicy: Local
  healthCheckNodePort: 30999
  externalIPs: [192.0.2.1]
  selector: {app: shop}
  ports: [{name: http, port: 80, targetPort: http, nodePort: 30080}, {name: metrics, port: 9090, targetPort: metrics}]
---
apiVersion: v1
kind: Service
metadata: {name: each}
spec: {clusterIP: None, selector: {app: shop}, ports: [{port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: agents}
spec: {selector: {app: agent}, ports: [{port: 53, targetPort: 5353}]}
---
apiVersion: v1
kind: Service
metadata: {name: given}
spec: {ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: given-1, labels: {kubernetes.io/service-name: given}}
addressType: IPv4
ports: [{name: "", port: 7000}]
endpoints: [{addresses: [10.244.0.10], conditions: {ready: true}}]
"""


@pytest.fixture(scope="module")
def assembly() -> Assembly:
    return assemble(parse_scenario(TEXT, "endpoints.lab.yaml"))


def spelled(assembly: Assembly, resolved: ResolvedProbe) -> tuple[str, dict[str, int]]:
    """The Service's port, and the port at each endpoint, by the name of who has the address."""
    names: dict[IPAddress, str] = {}
    for name, addresses in assembly.addresses.items():
        names.update(dict.fromkeys(addresses, name))
    return resolved.service_port, {names.get(each.address, str(each.address)): each.port for each in resolved.endpoints}


HTTP = ("default/shop:http", {"one": 8080, "other": 8081})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cluster IP", HTTP),
        ("other port", ("default/shop:metrics", {"one": 9090})),
        ("node port", HTTP),
        ("external IP", HTTP),
        ("health check", ("", {"node-a": 30999})),
        ("by name", ("kube-system/kube-dns:dns", {"10.244.0.2": 53})),
        ("host network", ("default/agents", {"agent": 5353})),
        ("pod", ("", {"other": 8081})),
        ("node port by address", HTTP),
        ("no port of it", ("", {"192.0.2.1": 81})),
        ("echo request", ("", {})),
        ("given slices", ("default/given", {"one": 7000})),
        ("moved", ("default/shop:http", {"one": 9000, "other": 9000})),
        ("given moved", ("default/given", {"one": 7001})),
    ],
)
def test_where_flows_may_arrive(assembly: Assembly, name: str, expected: tuple[str, dict[str, int]]) -> None:
    resolved = next(each for each in assembly.resolved_probes if each.name == name)
    assert spelled(assembly, resolved) == expected


def test_what_a_name_leads_to_is_dialled_like_any_address(assembly: Assembly) -> None:
    by_name, headless = (
        next(each for each in assembly.scenario.all_probes if each.name == name) for name in ("by name", "headless")
    )
    service = next(each for each in assembly.timeline[0].services if each.name == "shop")
    assert spelled(assembly, assembly.with_address(by_name, service.cluster_ips[0])[0]) == HTTP
    # A client of a headless Service dials the pod itself, and the port that the Service declares.
    assert spelled(assembly, assembly.with_address(headless, assembly.addresses["other"][0])[0]) == (
        "",
        {"other": 8080},
    )


DAEMONS = """
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: daemons}
spec:
  nodes: {node-a: {daemons: {web: {port: 9000}, log: {port: 9000, protocol: UDP}}}}
  probes:
  - {name: web, from: node-a, to: {address: 172.18.0.2, port: 9000}, expect: {outcome: delivered, source: preserved}}
  - {name: log, from: node-a, to: {address: 172.18.0.2, port: 9000}, send: {protocol: UDP},
     expect: {outcome: delivered, source: preserved}}
"""


def test_a_program_receives_what_comes_over_its_own_protocol() -> None:
    """Two programs of a node may listen at one number, one over TCP and one over UDP."""
    both = assemble(parse_scenario(DAEMONS, "daemons.lab.yaml"))
    for resolved in both.resolved_probes:
        assert {each.name for each in resolved.receivers} == {resolved.name}


SERVED = """
apiVersion: proxylab/v1
kind: Scenario
metadata: {{name: served}}
spec:
  network: {{families: [IPv4, IPv6]}}
  nodes: {{node-a: {{addresses: [{{device: eth0, address: 172.18.0.99/24}}]}}, node-b: {{}}}}
  pods: {{echo: {{nodes: [node-b], labels: {{app: echo}}, ports: [8080]}}}}
  hosts: {{outside: {{}}}}
  probes:
  - {{name: first, from: outside, to: {{address: 172.18.0.2, port: 30080}}, expect: {{outcome: refused}}}}
  - {{name: second, from: outside, to: {{address: 172.18.0.99, port: 30080}}, expect: {{outcome: refused}}}}
  - {{name: loopback, from: node-a, to: {{address: 127.0.0.1, port: 30080}}, expect: {{outcome: refused}}}}
  - {{name: loopback of IPv6, from: node-a, to: {{address: "::1", port: 30080}}, expect: {{outcome: refused}}}}
  - {{name: other port, from: outside, to: {{address: 172.18.0.99, port: 30081}}, expect: {{outcome: refused}}}}
{steps}
---
apiVersion: v1
kind: Service
metadata: {{name: echo}}
spec:
  type: NodePort
  ipFamilyPolicy: RequireDualStack
  selector: {{app: echo}}
  ports: [{{port: 80, targetPort: 8080, nodePort: 30080}}]
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
{configuration}
"""
LATER_NFTABLES = "  steps: [{name: another mode, change: {engines: nftables}}]"


@pytest.mark.parametrize(
    ("mode", "configuration", "steps", "may_be_own"),
    [
        ("iptables", "", "", {"loopback of IPv6"}),
        ("iptables", "iptables: {localhostNodePorts: false}", "", {"loopback", "loopback of IPv6"}),
        ("iptables", "nodePortAddresses: [primary]", "", {"second", "loopback", "loopback of IPv6"}),
        ("iptables", "nodePortAddresses: [172.18.0.2/32]", "", {"second", "loopback", "loopback of IPv6"}),
        ("iptables", "nodePortAddresses: [172.18.0.99/32]", "", {"first", "loopback", "loopback of IPv6"}),
        ("iptables", "", LATER_NFTABLES, {"second", "loopback", "loopback of IPv6"}),
        ("nftables", "", "", {"second", "loopback", "loopback of IPv6"}),
        ("nftables", "nodePortAddresses: [0.0.0.0/0]", "", {"loopback", "loopback of IPv6"}),
        ("ipvs", "", "", {"loopback", "loopback of IPv6"}),
        ("userspace", "nodePortAddresses: [primary]", "", {"loopback", "loopback of IPv6"}),
    ],
)
def test_at_which_addresses_a_node_port_may_be_a_programs_of_the_node(
    mode: str, configuration: str, steps: str, may_be_own: set[str]
) -> None:
    text = SERVED.format(configuration=configuration, steps=steps)
    (case,) = cases(parse_scenario(text, "served.lab.yaml"), mode)
    found = {each.name: each for each in assemble(case).resolved_probes}
    assert {name for name, each in found.items() if each.or_dialled} == may_be_own
    assert found["second"].service_port == "default/echo"
    assert found["other port"].service_port == ""
