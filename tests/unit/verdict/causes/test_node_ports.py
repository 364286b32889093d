"""Why a node serves no node port at an address: it refused the packet itself, and a setting leaves the address out."""

from ipaddress import ip_address, ip_network

import pytest
from msgspec.structs import replace
from recorded import World

from proxylab.addresses import Family
from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.cluster.objects import Service, ServicePort
from proxylab.evidence.evidence import Direction, Packet, RuleCount
from proxylab.plan.dialled_service import DialledService
from proxylab.scenario.words import Frontend
from proxylab.verdict.case import Case
from proxylab.verdict.causes.failure import Failure
from proxylab.verdict.causes.node_ports import not_served, why_not_served
from proxylab.verdict.model import Judgement, Verdict

ADDRESS = ip_address("172.18.0.77")
PORT = ServicePort(port=80, target_port=8080, node_port=80)
OF_NFTABLES = RuleCount("node-a", "kube-proxy", "nat-prerouting", "jump services", 1)


def refused(
    proxy: ProxyConfiguration,
    *counts: RuleCount,
    address: str = "172.18.0.77",
    via: Frontend = Frontend.NODE_PORT,
    maker: str = "node-a",
) -> tuple[Failure, DialledService]:
    world = World(addresses={"service": ip_address(address)})
    heard = world.hears_reset(0)
    left = replace(heard, netns_name=maker, device="eth0", direction=Direction.OUT, at=1001)
    evidence = world.evidence([world.leaves(0), left, heard], counts=counts)
    service = Service(name="echo", ports=(PORT,), selector={"app": "echo"})
    dialled = DialledService(
        service=service, port=PORT, family=Family.IPV4, via=via, slices=(), pods=(), nodes=("node-a",), proxy=proxy
    )
    verdict = Verdict(
        expectation="outcome", judgement=Judgement.FAIL, expected="", observed="", position=world.probe.position
    )
    return Failure(Case(world.probe, world.resolved, evidence), verdict, service=dialled), dialled


@pytest.mark.parametrize(
    ("proxy", "address", "counts", "sentence"),
    [
        (
            ProxyConfiguration(node_port_addresses=(ip_network("172.18.0.2/32"), ip_network("fd00::/64"))),
            "172.18.0.77",
            (),
            (
                "172.18.0.77 is not in nodePortAddresses (172.18.0.2/32); with 172.18.0.77/32 among them, node-a "
                "serves node ports there."
            ),
        ),
        (ProxyConfiguration(node_port_addresses=(ip_network("172.18.0.0/16"),)), "172.18.0.77", (), ""),
        (
            ProxyConfiguration(node_port_primary=True),
            "172.18.0.77",
            (),
            (
                "nodePortAddresses is primary, and 172.18.0.77 is not node-a's primary address; networks that hold "
                "172.18.0.77 let node-a serve node ports there."
            ),
        ),
        (
            ProxyConfiguration(),
            "172.18.0.77",
            (OF_NFTABLES,),
            (
                "nodePortAddresses is empty, so mode nftables serves node ports at node-a's primary addresses alone; "
                "0.0.0.0/0 serves all addresses."
            ),
        ),
        (ProxyConfiguration(), "172.18.0.77", (), ""),
        (
            ProxyConfiguration(localhost_node_ports=False),
            "127.0.0.1",
            (),
            "localhostNodePorts is false, so node-a serves no node ports at 127.0.0.1; true serves them.",
        ),
        (ProxyConfiguration(), "127.0.0.1", (), ""),
        (
            ProxyConfiguration(),
            "127.0.0.1",
            (OF_NFTABLES,),
            (
                "mode nftables serves no node ports at loopback addresses; nodePortAddresses: [primary, localhost] "
                "lets kube-proxy 1.37 serve them there."
            ),
        ),
    ],
)
def test_the_setting_that_leaves_the_address_out(
    proxy: ProxyConfiguration, address: str, counts: tuple[RuleCount, ...], sentence: str
) -> None:
    failure, dialled = refused(proxy, *counts, address=address)
    assert why_not_served(failure, dialled) == sentence
    says = f"node-a serves no node port at {address}:80: it answered with a reset, as no program of it listens there."
    assert not_served(failure) == says


def test_only_the_dialled_node_itself_and_only_at_a_node_port() -> None:
    for failure, dialled in (
        refused(ProxyConfiguration(node_port_primary=True), via=Frontend.CLUSTER_IP),
        refused(ProxyConfiguration(node_port_primary=True), maker="outside"),
        refused(ProxyConfiguration(node_port_primary=True), World().translated("echo-1")),
    ):
        assert not_served(failure) == ""
        assert why_not_served(failure, dialled) == ""
    assert Packet.RESET in {each.packet for each in refused(ProxyConfiguration())[0].flow.resets}
