"""DNS messages: which code, flags and sections a question gets."""

from ipaddress import ip_address

import dns.edns
import dns.flags
import dns.message
import dns.opcode
import dns.rcode
import dns.rdatatype
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxylab.addresses import Family
from proxylab.cluster.kube_dns import ClusterNames
from proxylab.cluster.objects import Endpoint, EndpointPort, EndpointSlice, Service, ServicePort, ServiceType
from proxylab.control.dns_server import LARGEST, SMALLEST, answer

WEB = Service(
    name="web",
    cluster_ips=(ip_address("10.96.0.7"),),
    ports=(ServicePort(name="http", port=80, target_port=8080),),
)
PEERS = replace(WEB, name="peers", headless=True, cluster_ips=())
INSIDE = Service(name="inside", type=ServiceType.EXTERNAL_NAME, external_name="web.default.svc.cluster.local")
OUTSIDE = replace(INSIDE, name="outside", external_name="example.org")
CIRCLE = replace(INSIDE, name="circle", external_name="circle.default.svc.cluster.local")


def peers(count: int) -> EndpointSlice:
    return EndpointSlice(
        name="peers-1",
        service="peers",
        address_type=Family.IPV4,
        ports=(EndpointPort(name="http", port=8080),),
        endpoints=tuple(Endpoint(addresses=(ip_address("10.244.0.1") + number,)) for number in range(count)),
    )


NAMES = ClusterNames((WEB, PEERS, INSIDE, OUTSIDE, CIRCLE), (peers(3),))
CROWD = ClusterNames((PEERS,), (peers(100),))


def ask(
    name: str, kind: str = "A", *, names: ClusterNames = NAMES, by_udp: bool = True, payload: int = 0
) -> dns.message.Message:
    query = dns.message.make_query(name, kind, use_edns=0 if payload else -1, payload=payload or 1232)
    said = answer(names, query.to_wire(), by_udp=by_udp)
    assert said is not None
    found = dns.message.from_wire(said)
    assert found.id == query.id
    assert found.question == query.question
    return found


def texts(sections: list) -> list[str]:
    return sorted(line for each in sections for line in each.to_text().split("\n"))


def test_an_address_is_answered_with_authority_and_five_seconds() -> None:
    said = ask("web.default.svc.cluster.local")
    assert said.rcode() == dns.rcode.NOERROR
    assert said.flags & dns.flags.AA
    assert not said.flags & dns.flags.RA
    assert texts(said.answer) == ["web.default.svc.cluster.local. 5 IN A 10.96.0.7"]
    assert said.authority == []


def test_names_are_compared_without_case_and_answered_in_the_case_asked() -> None:
    said = ask("WEB.Default.svc.cluster.local")
    assert texts(said.answer) == ["WEB.Default.svc.cluster.local. 5 IN A 10.96.0.7"]


def test_an_existing_name_without_such_a_record_is_empty_and_no_error() -> None:
    for name, kind in (("web.default.svc.cluster.local", "AAAA"), ("default.svc.cluster.local", "A")):
        said = ask(name, kind)
        assert (said.rcode(), said.answer) == (dns.rcode.NOERROR, [])
        assert texts(said.authority)[0].startswith("cluster.local. 5 IN SOA ")


def test_a_name_that_is_not_there_is_nxdomain() -> None:
    said = ask("wob.default.svc.cluster.local")
    assert (said.rcode(), said.answer) == (dns.rcode.NXDOMAIN, [])
    assert texts(said.authority)[0].startswith("cluster.local. 5 IN SOA ")


@pytest.mark.parametrize("name", ["example.org", ".", "local", "cluster.local.example.org"])
def test_what_is_outside_of_the_cluster_is_refused(name: str) -> None:
    said = ask(name)
    assert (said.rcode(), said.answer, said.authority) == (dns.rcode.REFUSED, [], [])
    assert not said.flags & dns.flags.AA


def test_srv_brings_the_addresses_of_its_targets_along() -> None:
    said = ask("_http._tcp.peers.default.svc.cluster.local", "SRV")
    name = "peers.default.svc.cluster.local."
    assert texts(said.answer) == [
        f"_http._tcp.{name} 5 IN SRV 0 100 8080 10-244-0-{number}.{name}" for number in (1, 2, 3)
    ]
    assert texts(said.additional) == [f"10-244-0-{number}.{name} 5 IN A 10.244.0.{number}" for number in (1, 2, 3)]


def test_a_reverse_name_points_to_the_service() -> None:
    said = ask("7.0.96.10.in-addr.arpa", "PTR")
    assert texts(said.answer) == ["7.0.96.10.in-addr.arpa. 5 IN PTR web.default.svc.cluster.local."]
    assert ask("8.0.96.10.in-addr.arpa", "PTR").rcode() == dns.rcode.NXDOMAIN


def test_an_alias_is_followed_while_it_stays_in_the_cluster() -> None:
    said = ask("inside.default.svc.cluster.local")
    assert texts(said.answer) == [
        "inside.default.svc.cluster.local. 5 IN CNAME web.default.svc.cluster.local.",
        "web.default.svc.cluster.local. 5 IN A 10.96.0.7",
    ]
    said = ask("outside.default.svc.cluster.local")
    assert texts(said.answer) == ["outside.default.svc.cluster.local. 5 IN CNAME example.org."]
    assert said.rcode() == dns.rcode.NOERROR


def test_aliases_in_a_circle_come_to_an_end() -> None:
    said = ask("circle.default.svc.cluster.local")
    assert said.answer


def test_the_version_and_the_authority_can_be_asked_for() -> None:
    assert texts(ask("dns-version.cluster.local", "TXT").answer) == ['dns-version.cluster.local. 5 IN TXT "1.1.0"']
    query = dns.message.make_query("cluster.local", "SOA")
    said = dns.message.from_wire(answer(NAMES, query.to_wire(), serial=42) or b"")
    assert " 42 7200 1800 86400 5" in texts(said.answer)[0]


def test_what_does_not_fit_is_truncated_and_comes_whole_by_tcp() -> None:
    name = "peers.default.svc.cluster.local"
    short = ask(name, names=CROWD)
    assert short.flags & dns.flags.TC
    assert len(short.to_wire(max_size=LARGEST)) <= SMALLEST
    assert not ask(name, names=CROWD, payload=4096).flags & dns.flags.TC
    whole = ask(name, names=CROWD, by_udp=False)
    assert not whole.flags & dns.flags.TC
    assert len(texts(whole.answer)) == 100


def test_a_client_may_not_ask_for_less_than_every_client_accepts() -> None:
    assert len(texts(ask("peers.default.svc.cluster.local", payload=100).answer)) == 3


def test_other_orders_are_not_implemented() -> None:
    query = dns.message.make_query("web.default.svc.cluster.local", "A")
    query.set_opcode(dns.opcode.NOTIFY)
    assert dns.message.from_wire(answer(NAMES, query.to_wire()) or b"").rcode() == dns.rcode.NOTIMP


def test_two_questions_at_once_are_malformed() -> None:
    query = dns.message.make_query("web.default.svc.cluster.local", "A")
    query.question *= 2
    assert dns.message.from_wire(answer(NAMES, query.to_wire()) or b"").rcode() == dns.rcode.FORMERR


def test_an_answer_is_not_answered() -> None:
    query = dns.message.make_query("web.default.svc.cluster.local", "A")
    query.flags |= dns.flags.QR
    assert answer(NAMES, query.to_wire()) is None


@given(st.binary(max_size=80))
def test_garbage_gets_formerr_or_silence(garbage: bytes) -> None:
    said = answer(NAMES, garbage)
    assert said is None or said[:2] == garbage[:2]


@given(st.data())
def test_a_damaged_question_never_breaks_the_server(data: st.DataObject) -> None:
    network = bytearray(dns.message.make_query("web.default.svc.cluster.local", "A", use_edns=0).to_wire())
    for _ in range(data.draw(st.integers(1, 4))):
        network[data.draw(st.integers(0, len(network) - 1))] = data.draw(st.integers(0, 255))
    said = answer(NAMES, bytes(network))
    assert said is None or said[:2] == bytes(network[:2])
