"""kube-dns answers every kind of record of Kubernetes' DNS specification, by real queries.

https://github.com/kubernetes/dns/blob/master/docs/specification.md
"""

import re
import shutil
from collections.abc import Iterable
from ipaddress import ip_address

import pytest

from proxylab.pytest_plugin import Lab

pytestmark = pytest.mark.lab("records.lab.yaml")

ZONE = "default.svc.cluster.local"
PODS = {"db-1": "10.244.0.10", "db-2": "10.244.1.10", "boss": "10.244.1.11", "late": "10.244.1.12"}
TTL = 5
SOA = 1


def values(lab: Lab, name: str, kind: str) -> set[str]:
    """The records of one kind that a name has; the TTL of each is five seconds."""
    lookup = lab.query("client", f"{name}.{ZONE}", kind)
    assert lookup.code == "NOERROR"
    assert {each.ttl for each in lookup.answers} <= {TTL}
    return {each.value for each in lookup.answers if each.kind == kind}


def test_a_service_name_gives_its_cluster_ips(lab: Lab) -> None:
    assert values(lab, "front", "A") == {"10.96.0.77"}
    assert values(lab, "front", "AAAA") == {"fd00:10:96::77"}


def test_a_headless_service_name_gives_its_ready_pods_in_both_families(lab: Lab) -> None:
    assert values(lab, "db", "A") == {PODS["db-1"], PODS["db-2"], PODS["boss"]}
    assert len(values(lab, "db", "AAAA")) == 3
    assert values(lab, "peers", "A") == set(PODS.values())


def without_weight(records: Iterable[str]) -> set[str]:
    """SRV records without their weight, which the specification leaves open: CoreDNS divides 100 by the addresses."""
    return {re.sub(r"^0 \d+ ", "", record) for record in records}


def test_a_named_port_has_an_srv_record(lab: Lab) -> None:
    assert without_weight(values(lab, "_sql._tcp.front", "SRV")) == {f"5433 front.{ZONE}"}
    found = lab.query("client", f"_sql._tcp.db.{ZONE}", "SRV")
    assert without_weight(each.value for each in found.answers) == {
        f"5432 {host}.db.{ZONE}" for host in ("db-1", "db-2", "boss")
    }
    addresses = {each.value for each in found.additional if each.kind == "A"}
    assert addresses == {PODS["db-1"], PODS["db-2"], PODS["boss"]}
    assert lab.query("client", f"_sql._udp.front.{ZONE}", "SRV").code == "NXDOMAIN"


def test_a_pod_has_a_name_below_its_subdomain(lab: Lab) -> None:
    assert values(lab, "db-1.db", "A") == {PODS["db-1"]}
    assert values(lab, "boss.db", "A") == {PODS["boss"]}
    assert lab.query("client", f"late.db.{ZONE}").code == "NXDOMAIN"
    assert values(lab, PODS["late"].replace(".", "-") + ".peers", "A") == {PODS["late"]}


def test_a_ptr_record_leads_from_an_address_to_its_name(lab: Lab) -> None:
    def owner(address: str) -> set[str]:
        return {each.value for each in lab.query("client", ip_address(address).reverse_pointer, "PTR").answers}

    assert owner("10.96.0.77") == {f"front.{ZONE}"}
    assert owner("fd00:10:96::77") == {f"front.{ZONE}"}
    # CoreDNS also gives the names without a hostname: below the other Services of the pod.
    assert f"boss.db.{ZONE}" in owner(PODS["boss"])
    assert owner("10.96.0.10") == {"kube-dns.kube-system.svc.cluster.local"}
    assert lab.query("client", ip_address("10.96.0.78").reverse_pointer, "PTR").code == "NXDOMAIN"


def test_an_external_name_is_a_cname_that_is_followed_within_the_cluster(lab: Lab) -> None:
    abroad = lab.query("client", f"abroad.{ZONE}")
    assert [(each.kind, each.value) for each in abroad.answers] == [("CNAME", "www.example.org")]
    home = lab.query("client", f"alias.{ZONE}", "AAAA")
    assert [(each.kind, each.value) for each in home.answers] == [
        ("CNAME", f"front.{ZONE}"),
        ("AAAA", "fd00:10:96::77"),
    ]


def test_a_missing_name_is_nxdomain_and_a_name_without_such_records_is_empty(lab: Lab) -> None:
    gone, without_pods = lab.query("client", f"gone.{ZONE}"), lab.query("client", f"empty.{ZONE}")
    for each in (gone, without_pods):
        assert (each.code, each.answers) == ("NXDOMAIN", ())
    of_one_family, of_names_only = lab.query("client", f"peers.{ZONE}", "AAAA"), lab.query("client", ZONE)
    for each in (of_one_family, of_names_only):
        assert (each.code, each.answers) == ("NOERROR", ())
    for each in (gone, of_one_family):
        (soa,) = each.authority
        assert (soa.kind, soa.name, soa.ttl) == ("SOA", "cluster.local", TTL)
    assert lab.query("client", "www.example.org").code == "REFUSED"


def test_an_answer_too_large_for_udp_comes_over_tcp(lab: Lab) -> None:
    asked = lab.query("client", f"crowd.{ZONE}", size=0)
    assert (asked.truncated, asked.by_tcp, len(asked.addresses)) == (True, True, 40)
    roomy = lab.query("client", f"crowd.{ZONE}", size=4096)
    assert (roomy.truncated, roomy.by_tcp, len(roomy.addresses)) == (False, False, 40)
    assert len(lab.query("client", f"crowd.{ZONE}", by_tcp=True).addresses) == 40


def test_every_query_goes_to_kube_dns_and_its_pod_answers(lab: Lab) -> None:
    for place in ("client", "db-1", "node-a", "node-b"):
        lookup = lab.query(place, f"front.{ZONE}")
        assert (str(lookup.server), lookup.served_by) == ("10.96.0.10", "coredns")


def test_kube_dns_answers_at_its_second_address(lab: Lab) -> None:
    assert lab.query("client", f"front.{ZONE}", server="fd00:10:96::a").served_by == "coredns"


def test_a_program_finds_names_below_its_search_domains(lab: Lab) -> None:
    addresses = (ip_address("10.96.0.77"), ip_address("fd00:10:96::77"))
    for name in ("front", "front.default", "front.default.svc", f"front.{ZONE}"):
        assert set(lab.resolve("client", name)) == set(addresses)
    assert lab.resolve("client", "nowhere") == ()


def test_commands_in_a_pod_find_names(lab: Lab) -> None:
    assert lab.execute("client", "cat", "/etc/resolv.conf").stdout == (
        f"search {ZONE} svc.cluster.local cluster.local\n"
        "nameserver 10.96.0.10\n"
        "nameserver fd00:10:96::a\n"
        "options ndots:5\n"
    )
    found = lab.execute("client", "getent", "ahostsv4", "front")
    assert found.stdout.split()[0] == "10.96.0.77", found
    assert lab.execute("client", "getent", "hosts", "db-1.db").stdout.split()[1] == f"db-1.db.{ZONE}"
    assert lab.execute("client", "getent", "hosts", "10.96.0.77").stdout.split()[1] == f"front.{ZONE}"
    assert lab.execute("client", "getent", "hosts", "nowhere").status == 2


@pytest.mark.skipif(shutil.which("dig") is None, reason="needs dig; 'apt-get install bind9-dnsutils'")
def test_dig_in_a_pod_finds_names(lab: Lab) -> None:
    def dig(*words: str) -> list[str]:
        done = lab.execute("client", "dig", "+time=3", "+tries=1", *words)
        assert done.status == 0, done
        return done.stdout.splitlines()

    assert dig("+search", "+short", "front") == ["10.96.0.77"]
    assert without_weight(dig("+short", f"_sql._tcp.front.{ZONE}", "SRV")) == {f"5433 front.{ZONE}."}
    assert dig("+short", "-x", "10.96.0.77") == [f"front.{ZONE}."]
    assert len(dig("+short", "+noedns", f"crowd.{ZONE}")) == 40
    assert len(dig("+short", "+tcp", f"crowd.{ZONE}")) == 40
    assert any("status: NXDOMAIN" in line for line in dig(f"gone.{ZONE}"))
