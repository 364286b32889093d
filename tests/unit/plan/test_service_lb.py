"""Pods that pass packets on: what they lead where, by the Service's policy, and the rules for it."""

from ipaddress import ip_address
from typing import Final

import pytest

from proxylab.addresses import Family, Protocol
from proxylab.cluster.objects import Node, PodPort, Service, ServicePort, ServiceType, TrafficPolicy
from proxylab.plan.model import Forwarding
from proxylab.plan.service_lb import ForwardedPort, forwarded_ports, forwarding_text

NODE: Final = Node(name="node-a", addresses=(ip_address("172.18.0.2"), ip_address("fd00:172:18::2")))
FORWARDING: Final = Forwarding(namespace="default", service="web", ports=(PodPort(port=80), PodPort(port=443)))


def service(policy: TrafficPolicy, node_port: int = 30080) -> Service:
    return Service(
        name="web",
        type=ServiceType.LOAD_BALANCER,
        cluster_ips=(ip_address("10.96.0.9"), ip_address("fd00:10:96::9")),
        external_traffic_policy=policy,
        ports=(
            ServicePort(port=80, target_port=8080, node_port=node_port),
            ServicePort(name="other", port=81, target_port=8080, node_port=30081),
        ),
    )


@pytest.mark.parametrize(
    ("policy", "family", "ends"),
    [
        (TrafficPolicy.CLUSTER, Family.IPV4, [("10.96.0.9", 80)]),
        (TrafficPolicy.CLUSTER, Family.IPV6, [("fd00:10:96::9", 80)]),
        (TrafficPolicy.LOCAL, Family.IPV4, [("172.18.0.2", 30080)]),
        (TrafficPolicy.LOCAL, Family.IPV6, [("fd00:172:18::2", 30080)]),
    ],
)
def test_packets_go_to_the_cluster_ip_or_to_the_nodes_own_node_port(
    policy: TrafficPolicy, family: Family, ends: list[tuple[str, int]]
) -> None:
    found = list(forwarded_ports(FORWARDING, service(policy), NODE, family))
    assert [(str(each.address), each.to) for each in found] == ends
    assert [(each.protocol, each.port) for each in found] == [(Protocol.TCP, 80)]


def test_nothing_is_passed_on_to_a_node_port_that_is_none() -> None:
    assert not list(forwarded_ports(FORWARDING, service(TrafficPolicy.LOCAL, node_port=0), NODE, Family.IPV4))


@pytest.mark.parametrize(
    ("address", "spelled"), [("10.96.0.9", "10.96.0.9:81"), ("fd00:10:96::9", "[fd00:10:96::9]:81")]
)
def test_the_rules_translate_and_masquerade_and_replace_all_others(address: str, spelled: str) -> None:
    port = ForwardedPort(protocol=Protocol.UDP, port=80, address=ip_address(address), to=81)
    assert forwarding_text([port]).splitlines() == [
        "*nat",
        "-F PREROUTING",
        "-F POSTROUTING",
        f"-A PREROUTING ! -s {address} -p udp --dport 80 -j DNAT --to-destination {spelled}",
        f"-A POSTROUTING -d {address} -p udp -j MASQUERADE",
        "COMMIT",
    ]
    assert forwarding_text([]).splitlines() == ["*nat", "-F PREROUTING", "-F POSTROUTING", "COMMIT"]
