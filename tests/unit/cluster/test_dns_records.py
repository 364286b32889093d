"""Every row of the schema's tables: which names a cluster has, and what they point to."""

from ipaddress import ip_address

import pytest
from msgspec.structs import replace

from proxylab.addresses import Family
from proxylab.cluster.kube_dns import ClusterNames, DnsRecord, RecordKind, Srv
from proxylab.cluster.objects import Pod, Service, ServicePort, ServiceType
from proxylab.cluster.slices import derive_slices

PORTS = (
    ServicePort(name="http", port=80, target_port=8080),
    ServicePort(name="dns", port=53, target_port=5353, protocol="UDP"),
)
WEB = Service(
    name="web",
    selector={"app": "web"},
    ports=PORTS,
    cluster_ips=(ip_address("10.96.0.7"), ip_address("fd00:10:96::7")),
    ip_families=(Family.IPV4, Family.IPV6),
)
HEADLESS = replace(WEB, name="peers", headless=True, cluster_ips=())
ALIAS = Service(name="alias", type=ServiceType.EXTERNAL_NAME, external_name="Mirror.Example.ORG.")


def pod(number: int, **fields: object) -> Pod:
    plain = Pod(
        name=f"web-{number}",
        labels={"app": "web"},
        node_name="node-a",
        addresses=(ip_address("10.244.0.0") + number, ip_address("fd00:10:244::") + number),
    )
    return replace(plain, **fields)


def names(*services: Service, pods: tuple[Pod, ...] = (pod(1), pod(2))) -> ClusterNames:
    return ClusterNames(services, derive_slices(services, pods, ()))


def values(found: ClusterNames, name: str, kind: RecordKind) -> list[object]:
    records = found.at(name)
    assert records is not None, f"{name} does not exist"
    return [each.value for each in records if each.kind is kind]


def test_the_schema_has_a_version() -> None:
    assert names().at("dns-version.cluster.local") == (DnsRecord(RecordKind.TXT, "1.1.0"),)


def test_a_service_is_found_at_its_cluster_ips_and_they_at_its_name() -> None:
    found = names(WEB)
    name = "web.default.svc.cluster.local"
    assert values(found, name, RecordKind.A) == [ip_address("10.96.0.7")]
    assert values(found, name, RecordKind.AAAA) == [ip_address("fd00:10:96::7")]
    assert values(found, "7.0.96.10.in-addr.arpa", RecordKind.PTR) == [name]
    assert values(found, ip_address("fd00:10:96::7").reverse_pointer, RecordKind.PTR) == [name]


def test_a_named_port_is_found_by_its_protocol() -> None:
    found = names(WEB)
    name = "web.default.svc.cluster.local"
    assert values(found, f"_http._tcp.{name}", RecordKind.SRV) == [Srv(name, 80)]
    assert values(found, f"_dns._udp.{name}", RecordKind.SRV) == [Srv(name, 53)]
    assert found.at(f"_http._udp.{name}") is None


def test_a_port_without_a_name_has_no_record() -> None:
    found = names(replace(WEB, ports=(ServicePort(port=80, target_port=8080),)))
    assert values(found, "web.default.svc.cluster.local", RecordKind.A)
    assert found.at("_tcp.web.default.svc.cluster.local") is None


def test_a_headless_service_is_its_ready_endpoints() -> None:
    found = names(HEADLESS, pods=(pod(1), pod(2), pod(3, ready=False), pod(4, terminating=True)))
    name = "peers.default.svc.cluster.local"
    assert values(found, name, RecordKind.A) == [ip_address("10.244.0.1"), ip_address("10.244.0.2")]
    assert values(found, name, RecordKind.AAAA) == [ip_address("fd00:10:244::1"), ip_address("fd00:10:244::2")]
    assert values(found, f"_http._tcp.{name}", RecordKind.SRV) == [
        Srv(f"10-244-0-1.{name}", 8080),
        Srv(f"10-244-0-2.{name}", 8080),
        Srv(f"fd00-10-244--1.{name}", 8080),
        Srv(f"fd00-10-244--2.{name}", 8080),
    ]
    assert values(found, f"10-244-0-2.{name}", RecordKind.A) == [ip_address("10.244.0.2")]


def test_a_headless_service_has_srv_records_of_its_ports_over_udp() -> None:
    found = names(HEADLESS)
    name = "peers.default.svc.cluster.local"
    assert values(found, f"_dns._udp.{name}", RecordKind.SRV) == [
        Srv(f"{host}.{name}", 5353) for host in ("10-244-0-1", "10-244-0-2", "fd00-10-244--1", "fd00-10-244--2")
    ]
    assert found.at(f"_dns._tcp.{name}") is None


def test_endpoints_that_are_not_ready_are_published_where_the_service_says_so() -> None:
    found = names(replace(HEADLESS, publish_not_ready_addresses=True), pods=(pod(1), pod(3, ready=False)))
    assert values(found, "peers.default.svc.cluster.local", RecordKind.A) == [
        ip_address("10.244.0.1"),
        ip_address("10.244.0.3"),
    ]


def test_a_headless_service_without_ready_endpoints_exists_and_has_no_address() -> None:
    found = names(HEADLESS, pods=(pod(1, ready=False),))
    assert found.at("peers.default.svc.cluster.local") is None  # CoreDNS: no endpoints, no name
    assert found.at("default.svc.cluster.local") == ()


def test_a_pod_with_hostname_and_subdomain_has_a_name_of_its_own_and_is_found_by_its_address() -> None:
    found = names(HEADLESS, pods=(pod(1, hostname="first", subdomain="peers"), pod(2, hostname="x", subdomain="other")))
    name = "first.peers.default.svc.cluster.local"
    assert values(found, name, RecordKind.A) == [ip_address("10.244.0.1")]
    assert values(found, name, RecordKind.AAAA) == [ip_address("fd00:10:244::1")]
    assert values(found, "1.0.244.10.in-addr.arpa", RecordKind.PTR) == [name]
    assert found.at("x.peers.default.svc.cluster.local") is None
    assert found.at("2.0.244.10.in-addr.arpa") is None


def test_an_external_name_is_an_alias_and_nothing_else() -> None:
    assert names(ALIAS).at("alias.default.svc.cluster.local") == (DnsRecord(RecordKind.CNAME, "mirror.example.org"),)


def test_the_same_name_in_another_namespace_is_another_name() -> None:
    other = replace(WEB, namespace="prod", cluster_ips=(ip_address("10.96.0.8"),))
    found = names(WEB, other)
    assert values(found, "web.prod.svc.cluster.local", RecordKind.A) == [ip_address("10.96.0.8")]
    assert values(found, "web.default.svc.cluster.local", RecordKind.A) == [ip_address("10.96.0.7")]


@pytest.mark.parametrize(
    ("name", "exists"),
    [
        ("cluster.local", True),
        ("svc.cluster.local", True),
        ("default.svc.cluster.local", True),
        ("kube-system.svc.cluster.local", True),
        ("_tcp.web.default.svc.cluster.local", True),
        ("nowhere.svc.cluster.local", False),
        ("wob.default.svc.cluster.local", False),
        ("web.web.default.svc.cluster.local", False),
        ("9.0.96.10.in-addr.arpa", False),
    ],
)
def test_what_only_has_names_below_it_exists_and_is_empty(name: str, exists: bool) -> None:
    assert names(WEB).at(name) == (() if exists else None)


@pytest.mark.parametrize(
    ("name", "covered"),
    [
        ("web.default.svc.cluster.local", True),
        ("cluster.local", True),
        ("1.0.0.10.in-addr.arpa", True),
        ("example.org", False),
        ("notcluster.local", False),
    ],
)
def test_the_cluster_answers_for_its_own_domain_and_for_reverse_names(name: str, covered: bool) -> None:
    assert names().covers(name) is covered


def test_the_domain_can_be_another() -> None:
    found = ClusterNames((WEB,), (), domain="Kube.Test")
    assert values(found, "web.default.svc.kube.test", RecordKind.A) == [ip_address("10.96.0.7")]
    assert not found.covers("web.default.svc.cluster.local")
