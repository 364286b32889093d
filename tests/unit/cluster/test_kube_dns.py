"""The cluster's own name server as the API shows it."""

from ipaddress import IPv4Network, IPv6Network, ip_address

from proxylab.addresses import Family, Protocol
from proxylab.cluster.allocate import allocate_services
from proxylab.cluster.kube_dns import KUBE_DNS, coredns, kube_dns, resolv_conf
from proxylab.cluster.slices import derive_slices

V4, V6 = IPv4Network("10.96.0.0/16"), IPv6Network("fd00:10:96::/112")


def test_it_asks_for_the_tenth_address_of_each_network_and_gets_it() -> None:
    for networks, families in (((V4,), [Family.IPV4]), ((V6, V4), [Family.IPV6, Family.IPV4])):
        (service,) = allocate_services((kube_dns(networks),), networks)
        assert service.key == KUBE_DNS
        assert service.cluster_ips == tuple(network[10] for network in networks)
        assert list(service.ip_families) == families


def test_it_is_served_over_both_protocols_by_its_pod() -> None:
    (service,) = allocate_services((kube_dns((V4,)),), (V4,))
    (found,) = derive_slices((service,), (coredns("node-a", [ip_address("10.244.0.2")]),), ())
    assert [(each.name, each.protocol, each.port) for each in found.ports] == [
        ("dns", Protocol.UDP, 53),
        ("dns-tcp", Protocol.TCP, 53),
    ]
    assert [each.addresses for each in found.endpoints] == [(ip_address("10.244.0.2"),)]


def test_a_pod_looks_for_names_in_its_own_namespace_first() -> None:
    assert resolv_conf("shop", [ip_address("10.96.0.10"), ip_address("fd00:10:96::a")]) == (
        "search shop.svc.cluster.local svc.cluster.local cluster.local\n"
        "nameserver 10.96.0.10\n"
        "nameserver fd00:10:96::a\n"
        "options ndots:5\n"
    )
