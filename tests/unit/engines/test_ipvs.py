"""Mode ipvs: what it plans for a node, the rules around it, and the proxier with a kernel in memory."""

import asyncio
from collections.abc import Iterable
from ipaddress import ip_address, ip_network

import pytest
from memory_ipvs import MemoryIpvs, planned, synced
from msgspec.structs import replace
from rule_cases import (
    LOCAL_INSIDE,
    LOCAL_OUTSIDE,
    Addresses,
    Case,
    case,
    echo,
    external_ip,
    facts,
    here_and_there,
    load_balancer,
    node_port,
    settings,
    there,
)

from proxylab.addresses import Family, Protocol
from proxylab.cluster.configuration import IpvsConfiguration, Scheduler
from proxylab.cluster.objects import ServicePort
from proxylab.engines.embedded.ipvs.node import Ending
from proxylab.engines.embedded.ipvs.sets import NodeSet
from proxylab.engines.embedded.ipvs.tables import Tables
from proxylab.engines.embedded.ipvs.writer import IpvsWriter
from proxylab.engines.embedded.proxier import ModeProxier, SyncFailedError
from proxylab.engines.modes import MODES
from proxylab.evidence.ipvs import IpvsDestination, VirtualServer

A = Addresses(Family.IPV4)
OWN = (A.of("loopback", 1), A.of("node", 2), A.of("node", 3))
NODE = facts(A, interface_addresses=OWN)
FAMILIES = pytest.mark.parametrize("family", Family)


def lines(given: Case, family: Family = Family.IPV4) -> list[str]:
    """The virtual servers and destinations, in ipvsadm's words."""
    return [line for server in planned(given, family).servers.values() for line in server.lines()]


def members(tables: Tables, which: NodeSet) -> list[str]:
    return sorted(str(each) for each in tables.members.get(which, ()))


@FAMILIES
def test_a_cluster_ip_is_a_virtual_server_with_all_endpoints(family: Family) -> None:
    a = Addresses(family)
    tables = planned(case(a, (echo(a), here_and_there(a))), family)
    (server,) = tables.servers.values()
    assert (server.address, server.port, server.protocol) == (a.of("cluster", 20), 80, Protocol.TCP)
    assert [each.address for each in server.destinations] == [a.of("pod", number) for number in (10, 11, 12)]
    assert {each.port for each in server.destinations} == {8080}
    assert tables.bound == {a.of("cluster", 20)}


def test_node_ports_have_a_virtual_server_on_each_address_of_the_node_but_none_on_loopback() -> None:
    tables = planned(case(A, (node_port(A), here_and_there(A)), node=NODE))
    assert {key[0] for key in tables.servers if key[1] == 30080} == {A.of("node", 2), A.of("node", 3)}
    assert members(tables, NodeSet.NODE_PORT_TCP) == ["30080"]
    assert tables.bound == {A.of("cluster", 20)}, "the node has its own addresses already"


def test_node_port_addresses_choose_among_the_addresses_of_the_node() -> None:
    chosen = settings(A, node_port_addresses=(ip_network("172.18.0.3/32"), ip_network("127.0.0.0/8")))
    tables = planned(case(A, (node_port(A), here_and_there(A)), node=NODE, using=chosen))
    assert {key[0] for key in tables.servers if key[1] == 30080} == {A.of("node", 3)}


def test_sctp_node_ports_lie_in_a_set_with_addresses() -> None:
    ports = (ServicePort(protocol=Protocol.SCTP, port=80, target_port=8080, node_port=30080),)
    tables = planned(case(A, (replace(node_port(A), ports=ports), here_and_there(A)), node=NODE))
    assert members(tables, NodeSet.NODE_PORT_SCTP) == ["172.18.0.2,sctp:30080", "172.18.0.3,sctp:30080"]
    assert not members(tables, NodeSet.NODE_PORT_TCP)


def test_policy_local_uses_the_endpoints_of_the_node_or_else_all() -> None:
    service = node_port(A, **LOCAL_OUTSIDE)
    near = planned(case(A, (service, here_and_there(A)), node=NODE))
    far = planned(case(A, (service, there(A)), node=NODE))
    at = (A.of("node", 2), 30080, Protocol.TCP)
    assert [each.address for each in near.servers[at].destinations] == [A.of("pod", 10), A.of("pod", 11)]
    assert [each.address for each in far.servers[at].destinations] == [A.of("pod", 12)], "kubernetes#97081"
    assert members(near, NodeSet.NODE_PORT_LOCAL_TCP) == ["30080"]


def test_internal_policy_local_without_an_endpoint_on_the_node_has_no_destination() -> None:
    assert lines(case(A, (echo(A, **LOCAL_INSIDE), there(A)))) == ["-A -t 10.96.0.20:80 -s rr"]


def test_an_address_of_the_node_does_not_go_on_the_dummy_device() -> None:
    own = facts(A, interface_addresses=(*OWN, A.of("external", 9)))
    assert planned(case(A, (external_ip(A), there(A)), node=own)).bound == {A.of("cluster", 20)}
    assert planned(case(A, (external_ip(A), there(A)), node=NODE)).bound == {A.of("cluster", 20), A.of("external", 9)}


def test_source_ranges_fill_sets_and_close_the_address_to_a_node_outside_them() -> None:
    ranges = (ip_network("10.0.0.0/8"), ip_network("192.0.2.1/32"))
    closed = planned(case(A, (load_balancer(A, source_ranges=ranges), there(A)), node=NODE))
    vip = A.of("vip", 7)
    assert members(closed, NodeSet.LOAD_BALANCER_SOURCE_CIDR) == [
        f"{vip},tcp:80,10.0.0.0/8",
        f"{vip},tcp:80,192.0.2.1",
    ]
    assert closed.closed == ((vip, 80, Protocol.TCP),)
    opened = planned(case(A, (load_balancer(A, source_ranges=(A.wide("node"),)), there(A)), node=NODE))
    assert (opened.closed, members(opened, NodeSet.LOAD_BALANCER_SOURCE_IP)) == ((), [f"{vip},tcp:80,{vip}"])


def test_a_hairpin_needs_the_local_endpoints_ready_or_not() -> None:
    unready = tuple(replace(each, ready=False) for each in here_and_there(A))
    tables = planned(case(A, (echo(A), unready)))
    pods = [A.of("pod", 10), A.of("pod", 11)]
    assert members(tables, NodeSet.LOOP_BACK) == [f"{pod},tcp:8080,{pod}" for pod in pods]


def test_affinity_and_scheduler_are_those_of_every_virtual_server() -> None:
    hashing = settings(A, ipvs=IpvsConfiguration(scheduler=Scheduler.MH))
    found = lines(case(A, (node_port(A, affinity_timeout=30), ()), node=NODE, using=hashing))
    assert [line.partition(" -s ")[2] for line in found] == ["mh -p 30 -b flag-2"] * 3


@FAMILIES
def test_names_of_sets_fit_the_kernel_and_differ_by_family(family: Family) -> None:
    names = [each.name_in(family) for each in NodeSet]
    assert len({*names}) == len(names)
    assert all(len(name) <= 31 for name in names)
    assert all(name.startswith("KUBE-6-") is (family is Family.IPV6) for name in names)


@FAMILIES
def test_rules_match_only_sets_that_have_members_or_guard_the_node(family: Family) -> None:
    a = Addresses(family)
    given = case(a, (echo(a), here_and_there(a)))
    text = MODES["ipvs"].load(given.cluster, given.node, given.settings, family, (1, 37))
    rules, _, tables = text.partition("# ipset save")
    assert f"--match-set {NodeSet.CLUSTER_IP.name_in(family)} dst,dst ! -s " in rules
    assert NodeSet.NODE_PORT_TCP.name_in(family) not in rules
    assert all(f"create {each.name_in(family)} " in tables for each in NodeSet)


def test_a_sync_brings_the_kernel_to_the_plan_and_removes_what_is_gone() -> None:
    kernel = MemoryIpvs()
    first = case(A, (external_ip(A), here_and_there(A)), node=NODE)
    proxier = ModeProxier(IpvsWriter(Family.IPV4, kernel, first.settings))
    assert synced(proxier, first).endswith("full sync")
    wanted = planned(first)
    assert (kernel.servers, kernel.bound) == (dict(wanted.servers), wanted.bound)
    second = case(A, (echo(A), there(A)), node=NODE)
    assert synced(proxier, second).endswith("partial sync")
    assert (kernel.servers, kernel.bound) == (dict(planned(second).servers), {A.of("cluster", 20)})
    kernel.servers.clear()
    assert not asyncio.run(proxier.is_intact())
    synced(proxier, second, full=True)
    assert asyncio.run(proxier.is_intact())


def test_virtual_servers_in_excluded_networks_stay() -> None:
    kernel = MemoryIpvs()
    foreign = VirtualServer(address=ip_address("192.0.2.9"), port=80, protocol=Protocol.TCP)
    stale = VirtualServer(
        address=ip_address("10.96.0.99"),
        port=80,
        protocol=Protocol.TCP,
        destinations=(IpvsDestination(address=OWN[1], port=1),),
    )
    kernel.servers = {each.key: each for each in (foreign, stale)}
    given = case(A, using=settings(A, ipvs=IpvsConfiguration(exclude_cidrs=(ip_network("192.0.2.0/24"),))))
    synced(ModeProxier(IpvsWriter(Family.IPV4, kernel, given.settings)), given)
    assert list(kernel.servers) == [foreign.key]


def test_a_refusal_fails_the_sync_and_the_next_one_reads_the_kernel() -> None:
    kernel = MemoryIpvs()
    given = case(A, (echo(A), here_and_there(A)))
    proxier = ModeProxier(IpvsWriter(Family.IPV4, kernel, given.settings))
    kernel.refusing = True
    with pytest.raises(SyncFailedError) as failed:
        synced(proxier, given)
    assert "Permission denied" in failed.value.output
    kernel.refusing = False
    assert synced(proxier, given).endswith("full sync")


class CountingIpvs:
    """The destinations of one virtual server with their connections, in place of the kernel's."""

    def __init__(self, **connections: int) -> None:
        self.found = {name: destination(name, active=number) for name, number in connections.items()}

    def destinations(self, _: VirtualServer) -> tuple[IpvsDestination, ...]:
        return tuple(self.found.values())

    def edit_destinations(self, pairs: Iterable[tuple[VirtualServer, IpvsDestination]]) -> None:
        for _, each in pairs:
            name = name_of(each)
            self.found[name] = replace(self.found[name], weight=each.weight)

    def delete_destinations(self, pairs: Iterable[tuple[VirtualServer, IpvsDestination]]) -> None:
        for _, each in pairs:
            del self.found[name_of(each)]


NAMES = ("busy", "idle")


def destination(name: str, **counts: int) -> IpvsDestination:
    return replace(IpvsDestination(address=A.of("pod", NAMES.index(name)), port=8080), **counts)


def name_of(each: IpvsDestination) -> str:
    return NAMES[int(each.address) - int(A.of("pod", 0))]


def ending_pairs(protocol: Protocol) -> list[tuple[VirtualServer, IpvsDestination]]:
    server = VirtualServer(address=A.of("cluster", 20), port=80, protocol=protocol)
    return [(server, destination(name)) for name in NAMES]


def test_a_tcp_endpoint_that_leaves_stays_with_weight_0_until_its_connections_are_gone() -> None:
    kernel, ending = CountingIpvs(busy=2, idle=0), Ending()
    pairs = ending_pairs(Protocol.TCP)
    ending.begin(kernel, pairs)  # type: ignore[arg-type]
    assert {name: each.weight for name, each in kernel.found.items()} == {"busy": 0}
    ending.look(kernel)  # type: ignore[arg-type]
    assert [*kernel.found] == ["busy"]
    kernel.found["busy"] = replace(kernel.found["busy"], active=0)
    ending.look(kernel)  # type: ignore[arg-type]
    assert not kernel.found


@pytest.mark.parametrize("protocol", [Protocol.UDP, Protocol.SCTP])
def test_endpoints_of_other_protocols_go_at_once(protocol: Protocol) -> None:
    kernel = CountingIpvs(busy=2, idle=0)
    Ending().begin(kernel, ending_pairs(protocol))  # type: ignore[arg-type]
    assert not kernel.found


def test_an_endpoint_that_returns_is_taken_back_once() -> None:
    kernel, ending = CountingIpvs(busy=2, idle=0), Ending()
    pairs = ending_pairs(Protocol.TCP)
    ending.begin(kernel, pairs)  # type: ignore[arg-type]
    assert ending.take_back(pairs) == pairs[:1]
    assert ending.take_back(pairs) == []
    ending.begin(kernel, pairs[:1])  # type: ignore[arg-type]
    ending.forget([pairs[0][0]])
    assert ending.take_back(pairs) == []
