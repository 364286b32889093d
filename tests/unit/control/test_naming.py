"""Names at work follow the store, and who answers says so to who asks."""

from ipaddress import IPv4Network

import dns.edns
import dns.message
import dns.rcode

from proxylab.cluster.kube_dns import kube_dns
from proxylab.cluster.objects import Service
from proxylab.cluster.store import Store
from proxylab.control.dns_server import NameService

NAME = "kube-dns.kube-system.svc.cluster.local."
OWN = Service(namespace="proxylab", name="barrier", cluster_ips=(IPv4Network("192.0.0.8").network_address,))


def said(service: NameService, name: str, *options: dns.edns.Option) -> dns.message.Message:
    query = dns.message.make_query(name, "A", use_edns=0, options=list(options))
    answered = service.respond("coredns", query.to_wire(), True)
    assert answered is not None
    return dns.message.from_wire(answered)


def test_an_answer_is_of_the_cluster_as_it_is_now() -> None:
    store = Store()
    service = NameService(store)
    assert said(service, NAME).rcode() is dns.rcode.NXDOMAIN
    store.apply(kube_dns((IPv4Network("10.96.0.0/16"),)))
    (found,) = said(service, NAME).answer
    assert [record.to_text() for record in found] == ["10.96.0.10"]
    store.delete(kube_dns((IPv4Network("10.96.0.0/16"),)).key)
    assert said(service, NAME).rcode() is dns.rcode.NXDOMAIN


def test_what_is_the_labs_own_has_no_name() -> None:
    store = Store()
    store.apply(OWN)
    name = "barrier.proxylab.svc.cluster.local."
    assert said(NameService(store), name).rcode() is dns.rcode.NOERROR
    assert said(NameService(store, hidden="proxylab"), name).rcode() is dns.rcode.NXDOMAIN


def test_who_asks_which_server_it_is_is_told() -> None:
    nsid = dns.edns.OptionType.NSID
    asked = said(NameService(Store()), NAME, dns.edns.GenericOption(nsid, b""))
    assert [option.to_wire() for option in asked.options if option.otype is nsid] == [b"coredns"]
    assert said(NameService(Store()), NAME).options == ()
