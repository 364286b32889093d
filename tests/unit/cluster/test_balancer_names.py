"""Load balancers that publish a hostname: the addresses behind it, who serves them, and what DNS says."""

from ipaddress import ip_address, ip_network

from proxylab.addresses import Family
from proxylab.cluster.allocate import Pool, give_ingress
from proxylab.cluster.documents import document_of
from proxylab.cluster.kube_dns import ClusterNames
from proxylab.cluster.objects import LoadBalancerIngress, Service, ServicePort, ServiceType
from proxylab.scenario.targets import addresses_by_frontend
from proxylab.scenario.words import Frontend

POOL = Pool("cloud", (ip_network("192.0.2.0/28"), ip_network("2001:db8:192::/64")))
FOUR, SIX = ip_address("192.0.2.1"), ip_address("2001:db8:192::1")
NAMED = Service(
    name="named",
    type=ServiceType.LOAD_BALANCER,
    ip_families=(Family.IPV4, Family.IPV6),
    ports=(ServicePort(port=80, target_port=8080),),
    load_balancer_ingress=(LoadBalancerIngress(hostname="Named.elb.example"),),
)


def test_a_hostname_stands_for_addresses_that_the_api_does_not_show() -> None:
    (given,) = give_ingress([NAMED], [POOL])
    assert given.load_balancer_ingress[0].addresses == (FOUR, SIX)
    assert document_of(given, 1, "2026-11-28T00:00:00Z")["status"]["loadBalancer"]["ingress"] == [
        {"hostname": "Named.elb.example"}
    ]
    assert give_ingress([given], [POOL]) == (given,)


def test_the_address_behind_a_hostname_is_dialled_and_claimed_by_no_node() -> None:
    (given,) = give_ingress([NAMED], [POOL])
    assert addresses_by_frontend(given)[Frontend.LOAD_BALANCER_IP] == (FOUR, SIX)
    assert addresses_by_frontend(given, claimed=True)[Frontend.LOAD_BALANCER_IP] == ()


def test_no_other_service_gets_the_address_behind_a_hostname() -> None:
    other = Service(name="other", type=ServiceType.LOAD_BALANCER, ip_families=(Family.IPV4,), ports=NAMED.ports)
    (given,) = give_ingress([NAMED], [POOL])
    both = give_ingress([other, given], [POOL])
    assert both[0].load_balancer_ingress == (LoadBalancerIngress(ip=ip_address("192.0.2.2")),)


def test_dns_resolves_a_hostname_and_knows_nothing_of_its_domain() -> None:
    names = ClusterNames(give_ingress([NAMED], [POOL]), [])
    assert [each.value for each in names.at("named.elb.example") or ()] == [FOUR, SIX]
    assert names.covers("named.elb.example")
    assert not names.covers("elb.example")
    assert not names.covers("other.elb.example")
    assert not ClusterNames([NAMED], []).covers("named.elb.example")
