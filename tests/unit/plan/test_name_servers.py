"""Who serves names in a lab, where, and what is asked before a name is dialled."""

from ipaddress import IPv4Address, ip_address
from typing import Any

import pytest
from msgspec.structs import replace

from proxylab.addresses import Family, Protocol
from proxylab.errors import ScenarioError
from proxylab.plan.assembly import Assembly, assemble
from proxylab.plan.name_servers import (
    candidates,
    has_own_server,
    name_servers,
    namespace_of_name_server,
    own_addresses,
    resolv_confs,
)
from proxylab.report.plan_overview import overview
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.model import Scenario

HEAD = """
apiVersion: proxylab/v1
kind: Scenario
metadata: {{name: named}}
spec:
  dns: {dns}
  network: {{families: {families}}}
  nodes: {{node-a: {{}}, node-b: {{}}}}
  pods:
    web: {{replicas: 2, nodes: [node-b], labels: {{app: web}}, ports: [8080]}}
    server: {{namespace: kube-system, labels: {{k8s-app: kube-dns}}, ports: [{{port: 53, protocol: UDP}}, 53]}}
    client: {{namespace: shop}}
    agent: {{hostNetwork: true}}
  probes: [{probe}]
---
apiVersion: v1
kind: Service
metadata: {{name: web}}
spec: {{clusterIP: {cluster_ip}, selector: {{app: web}}, ports: [{{port: 80}}]}}
"""
PROBE = "{name: p, from: client, to: {service: web, via: dnsName}, expect: {outcome: delivered, source: preserved}}"
OWN = """---
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec: {clusterIP: 10.96.0.53, selector: {k8s-app: kube-dns}, ports: [{port: 53, protocol: UDP}]}
"""


def named(more: str = "", **words: str) -> Scenario:
    given = {"dns": "true", "families": "[IPv4]", "probe": "", "cluster_ip": '""', **words}
    return parse_scenario(HEAD.format(**given) + more, "named.lab.yaml")


def resolved(scenario: Scenario) -> Any:
    return assemble(scenario).resolved_probes[0]


def test_a_lab_has_names_where_the_scenario_asks_for_dns_or_dials_one() -> None:
    assert not has_own_server(named(dns="false"))
    assert has_own_server(named())
    assert has_own_server(named(dns="false", probe=PROBE))
    assert not has_own_server(named(OWN))


def test_the_labs_own_server_is_connected_like_a_pod_and_in_no_list_of_pods() -> None:
    with_names, without = (assemble(named(dns=dns, families="[IPv4, IPv6]")) for dns in ("true", "false"))
    home = with_names.plan.namespace(namespace_of_name_server("node-a"))
    assert [str(each.interface.ip) for each in home.addresses] == ["10.244.0.2", "fd00:10:244::2"]
    assert {(each.name, each.protocol, each.port) for each in home.listeners} == {
        ("coredns", Protocol.UDP, 53),
        ("coredns", Protocol.TCP, 53),
    }
    assert with_names.plan.pods == without.plan.pods
    assert len(with_names.plan.links) == len(without.plan.links) + 1
    shown, plain = (overview(layout_of(each)) for each in (with_names, without))
    assert shown == plain


def layout_of(assembly: Assembly) -> Any:
    from proxylab.plan.assembly import lay_out

    return lay_out(assembly.scenario)


def test_the_address_of_its_own_makes_way_for_one_written_by_hand() -> None:
    scenario = named()
    taken = tuple(
        replace(group, addresses=(IPv4Address("10.244.0.2"),)) if group.name == "client" else group
        for group in scenario.pods
    )
    (server, *_) = name_servers(assemble(replace(scenario, pods=taken)).plan)
    assert str(server.address) == "10.244.0.3"


def test_pods_behind_an_authors_own_kube_dns_serve_names() -> None:
    plan = assemble(named(OWN)).plan
    assert [(each.name, str(each.address)) for each in name_servers(plan)] == [("server", "10.244.0.10")]
    assert all(each.serves_names for each in plan.namespace("server").listeners)
    assert not any(each.serves_names for each in plan.namespace("web-1").listeners)
    assert not any(each.serves_names for each in assemble(named(OWN, dns="false")).plan.namespace("server").listeners)


def test_pods_are_told_of_the_name_server_and_nodes_are_not() -> None:
    assembly = assemble(named(OWN))
    found = resolv_confs(assembly.scenario, assembly.plan, assembly.timeline[0].services)
    assert set(found) == {"web-1", "web-2", "server", "client"}
    assert "search shop.svc.cluster.local " in found["client"]
    assert "nameserver 10.96.0.53\n" in found["web-1"]
    assert assemble(named(dns="false")).resolv_confs == {}


@pytest.mark.parametrize(
    ("name", "home", "tried"),
    [
        ("web", "shop", ("web.shop.svc.cluster.local", "web.svc.cluster.local", "web.cluster.local", "web")),
        ("Web.", "shop", ("web",)),
        ("a.b.c.d.e.f", "shop", ("a.b.c.d.e.f", "a.b.c.d.e.f.shop.svc.cluster.local")),
        ("web", None, ("web",)),
    ],
)
def test_search_domains_come_first_for_names_with_few_dots(name: str, home: str | None, tried: tuple[str, ...]) -> None:
    assert candidates(name, home)[: len(tried)] == tried


def test_before_an_answer_the_errand_is_to_the_name_server() -> None:
    asking = resolved(named(probe=PROBE))
    assert (str(asking.destination), asking.port, asking.protocol) == ("10.96.0.10", 53, Protocol.UDP)
    question = asking.question
    assert question.names[0] == "web.default.shop.svc.cluster.local"
    assert question.names[1] == "web.default.svc.cluster.local"
    assert (question.port, question.protocol, question.families) == (80, Protocol.TCP, (Family.IPV4,))
    assert [str(each) for each in question.expected] == ["10.96.1.1"]
    assert [(each.name, str(each.address)) for each in question.servers] == [("coredns", "10.244.0.2")]


def test_the_name_of_a_headless_service_must_give_its_ready_endpoints() -> None:
    question = resolved(named(probe=PROBE, cluster_ip="None")).question
    assert question.headless
    assert [str(each) for each in question.expected or ()] == ["10.244.1.10", "10.244.1.11"]
    assert [str(each) for each in question.pods["web-1"]] == ["10.244.1.10"]


def test_an_answer_becomes_an_errand_of_its_family() -> None:
    assembly = assemble(named(probe=PROBE, families="[IPv4, IPv6]"))
    (probe,) = assembly.scenario.probes
    found, source = assembly.with_address(probe, ip_address("fd00:10:96::101"))
    assert (str(found.destination), found.port, source) == ("fd00:10:96::101", 80, None)
    assert found.sender.address.version == 6
    assert found.question == assembly.resolved_probes[0].question
    assert [str(each) for each in own_addresses(assembly.plan)] == ["10.244.0.2", "fd00:10:244::2"]


def test_a_lab_without_names_takes_no_probe_that_dials_one() -> None:
    (probe,) = named(probe=PROBE).probes
    with pytest.raises(ScenarioError, match="set dns: true in its scenario"):
        assemble(named(dns="false")).with_probes([probe])
    with pytest.raises(ScenarioError, match="the lab has no name server"):
        assemble(named(dns="false")).lookup("client", "web")
