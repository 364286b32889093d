"""Balancers that dial node ports: what they dial, by which rules, and what the plan and the oracle make of it."""

from collections.abc import Collection
from ipaddress import ip_address, ip_network
from typing import Final

import pytest

from proxylab.addresses import IPAddress
from proxylab.cluster.configuration import Mode
from proxylab.cluster.objects import LoadBalancerIngress, Service, ServicePort, ServiceType
from proxylab.errors import ScenarioError
from proxylab.oracle.flows import Oracle
from proxylab.oracle.from_scenario import ask, moment_of
from proxylab.plan.assembly import Assembly, assemble
from proxylab.plan.balance import pool_routes
from proxylab.plan.dialling import DialledPort, dialled_ports, dialling_text
from proxylab.plan.model import Balancer
from proxylab.plan.print import plan_lines
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.words import Outcome, Reply

NODES: Final = {
    "node-a": (ip_address("172.18.0.2"), ip_address("fd00:172:18::2")),
    "node-b": (ip_address("172.18.0.3"), ip_address("fd00:172:18::3")),
}
POOL: Final = (ip_network("192.0.2.0/28"), ip_network("2001:db8::/64"))
EDGE: Final = Balancer(name="edge", pool=POOL, nodes=NODES, device="nodes", health_checked=True, dials_node_ports=True)
ROUTED: Final = Balancer(name="routed", pool=POOL, nodes=NODES, device="nodes", health_checked=True)


def service(*addresses: str, node_port: int = 30080, kind: ServiceType = ServiceType.LOAD_BALANCER) -> Service:
    return Service(
        name="web",
        type=kind,
        ports=(ServicePort(port=80, target_port=8080, node_port=node_port),),
        load_balancer_ingress=tuple(LoadBalancerIngress(ip=ip_address(each)) for each in addresses),
    )


def everywhere(_address: IPAddress, _node: str) -> bool:
    return True


def dialled(
    *services: Service, balancer: Balancer = EDGE, excluded: Collection[str] = ()
) -> list[tuple[str, int, list[str]]]:
    found = dialled_ports([balancer], services, excluded, everywhere)
    return [(str(each.address), each.node_port, [str(own) for own in each.nodes.values()]) for each in found]


def test_each_address_is_dialled_at_node_ports_of_its_own_family() -> None:
    assert dialled(service("192.0.2.1", "2001:db8::1")) == [
        ("192.0.2.1", 30080, ["172.18.0.2", "172.18.0.3"]),
        ("2001:db8::1", 30080, ["fd00:172:18::2", "fd00:172:18::3"]),
    ]


@pytest.mark.parametrize(
    "asked",
    [
        service("198.51.100.1"),
        service("192.0.2.1", node_port=0),
        service("192.0.2.1", kind=ServiceType.NODE_PORT),
    ],
    ids=["of another pool", "without a node port", "no load balancer"],
)
def test_what_no_balancer_dials(asked: Service) -> None:
    assert dialled(asked) == []


def test_a_balancer_that_routes_dials_nothing() -> None:
    assert dialled(service("192.0.2.1"), balancer=ROUTED) == []


def test_excluded_and_unhealthy_nodes_are_not_dialled() -> None:
    assert dialled(service("192.0.2.1"), excluded={"node-a"}) == [("192.0.2.1", 30080, ["172.18.0.3"])]
    (found,) = dialled_ports([EDGE], [service("192.0.2.1")], (), lambda _address, node: node == "node-a")
    assert list(found.nodes) == ["node-a"]


def port(**changes: object) -> DialledPort:
    (found,) = dialled_ports([EDGE], [service("192.0.2.1")], (), everywhere)
    return DialledPort(**{**{name: getattr(found, name) for name in found.__struct_fields__}, **changes})


def test_the_rules_choose_each_node_equally_often() -> None:
    matched = "-A PREROUTING -d 192.0.2.1 -p tcp --dport 80"
    half = "-m statistic --mode random --probability 0.5000000000"
    assert dialling_text([port()]).splitlines() == [
        "*nat",
        "-F PREROUTING",
        "-F POSTROUTING",
        f"{matched} {half} -j DNAT --to-destination 172.18.0.2:30080",
        f"{matched} -j DNAT --to-destination 172.18.0.3:30080",
        "COMMIT",
    ]


def test_the_rules_hide_the_client_of_connections_to_the_balancer_alone() -> None:
    lines = dialling_text([port(hides_client=True, nodes={"node-b": ip_address("fd00::3")})]).splitlines()
    dialled, sent_on = "-d 192.0.2.1 -p tcp --dport 80", "-d fd00::3 -p tcp --dport 30080"
    assert lines[3:-1] == [
        f"-A PREROUTING {dialled} -j DNAT --to-destination [fd00::3]:30080",
        f"-A POSTROUTING {sent_on} -m conntrack --ctorigdst 192.0.2.1 -j MASQUERADE",
    ]


def test_the_pool_of_a_balancer_that_dials_has_no_route_to_a_node() -> None:
    assert all(each.unreachable for each in pool_routes([EDGE], ()))
    assert not any(each.unreachable for each in pool_routes([ROUTED], ()))


FILE: Final = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: dialling}
spec:
  nodes: {node-a: {}, node-b: {}}
  pods:
    echo: {nodes: [node-b], labels: {app: echo}, ports: [8080]}
    client: {nodes: [node-a]}
  hosts: {outside: {}}
  loadBalancers: {edge: {pool: [192.0.2.0/28], dials: nodePorts, healthChecked: true, clientIP: CLIENT}}
  probes:
  - {name: policy Cluster, from: outside, to: {service: cluster, via: loadBalancerIP}, expect: {also: promises}}
  - {name: policy Local, from: outside, to: {service: local, via: loadBalancerIP}, expect: {also: promises}}
  - {name: of a pod, from: client, to: {service: cluster, via: loadBalancerIP}, expect: {also: promises}}
  - {name: by the balancer, from: client, to: {service: proxied, via: loadBalancerIP}, expect: {also: promises}}
---
apiVersion: v1
kind: Service
metadata: {name: cluster}
spec: {type: LoadBalancer, selector: {app: echo}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: local}
spec: {type: LoadBalancer, externalTrafficPolicy: Local, selector: {app: echo}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: proxied}
spec: {type: LoadBalancer, selector: {app: echo}, ports: [{port: 80, targetPort: 8080}]}
status: {loadBalancer: {ingress: [{ip: 192.0.2.9, ipMode: Proxy}]}}
"""


def assembled(client: str = "preserved") -> Assembly:
    return assemble(parse_scenario(FILE.replace("CLIENT", client), "dialling.lab.yaml"))


@pytest.mark.parametrize(
    ("client", "name", "sources", "reply"),
    [
        ("preserved", "policy Cluster", {"172.18.0.2", "10.244.1.1"}, Reply.TRANSLATED),
        ("preserved", "policy Local", {"203.0.113.10"}, Reply.TRANSLATED),
        ("replaced", "policy Local", {"172.18.0.1"}, Reply.TRANSLATED),
        ("preserved", "of a pod", {"172.18.0.2"}, Reply.TRANSLATED),
        ("preserved", "by the balancer", {"172.18.0.2", "10.244.1.1"}, Reply.NODE_PORT),
        ("replaced", "by the balancer", {"172.18.0.2", "10.244.1.1"}, Reply.TRANSLATED),
    ],
)
def test_the_oracle_goes_through_the_balancer(client: str, name: str, sources: set[str], reply: Reply) -> None:
    assembly = assembled(client)
    probe = next(each for each in assembly.scenario.probes if each.name == name)
    moment = moment_of(assembly, 0, Mode.IPTABLES, (1, 37))
    ((_, answer),) = ask(assembly, probe, moment, Oracle(moment)).flows
    assert (answer.outcomes, answer.outside) == ((Outcome.DELIVERED,), "")
    assert {str(each.address) for end in answer.reached for each in end.sources} == sources
    assert {end.reply for end in answer.reached} == {reply}


def test_a_plan_says_that_the_balancer_dials() -> None:
    said = "balancer edge: 192.0.2.0/28 to the node ports of node-a, node-b while healthy"
    assert said in plan_lines(assembled().plan)


def test_a_probe_cannot_choose_the_node() -> None:
    named = FILE.replace("CLIENT", "preserved").replace(
        "{service: cluster, via: loadBalancerIP}", "{service: cluster, via: loadBalancerIP, node: node-a}", 1
    )
    scenario = parse_scenario(named, "dialling.lab.yaml")
    with pytest.raises(ScenarioError, match=r"to\.node"):
        assemble(scenario)
