"""Mode userspace: the balancer, the rules, and the proxier with a process in memory."""

import asyncio
import random
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_loader import MemoryLoader, fresh
from memory_process import MemoryProcess
from msgspec.structs import replace
from rule_cases import Addresses, case, echo, endpoint, facts, here_and_there, load_balancer, node_port, slice_of

from proxylab.addresses import Family, Protocol
from proxylab.cluster.objects import Service, ServicePort
from proxylab.engines.embedded.iptables.cleanup import remove
from proxylab.engines.embedded.ports import ClusterView, PortTracker
from proxylab.engines.embedded.proxier import ModeProxier, Proxier, SyncFailedError
from proxylab.engines.embedded.settings import ProxySettings
from proxylab.engines.embedded.userspace.balance import EndpointBalancer
from proxylab.engines.embedded.userspace.rules import CHAINS
from proxylab.engines.embedded.userspace.writer import (
    ProcessPort,
    UserspaceWriter,
    served_ports,
    tracked_ports,
)
from proxylab.engines.modes import MODES

A = Addresses(Family.IPV4)
ENDPOINTS = [("10.0.0.1", 80), ("10.0.0.2", 80), ("10.0.0.3", 80)]
MODE = MODES["userspace"]


def proxier(loader: MemoryLoader, process: MemoryProcess, settings: ProxySettings | None = None) -> Proxier:
    return ModeProxier(UserspaceWriter(Family.IPV4, loader, process, settings or ProxySettings()))


@given(st.integers(1, 8), st.integers(1, 40), st.integers())
def test_round_robin_takes_each_endpoint_in_its_turn(endpoints: int, connections: int, seed: int) -> None:
    known = [(f"10.0.0.{number}", 80) for number in range(endpoints)]
    balancer = EndpointBalancer(random.Random(seed))
    balancer.update(known, None)
    chosen = [balancer.choose("192.0.2.1", float(at)) for at in range(connections)]
    counts = Counter(chosen)
    assert max(counts.values()) - min(counts[each] for each in known) <= 1
    assert chosen == [chosen[at % endpoints] for at in range(connections)]


def test_without_endpoints_it_chooses_none() -> None:
    assert EndpointBalancer().choose("192.0.2.1", 0.0) is None


def test_a_client_keeps_its_endpoint_while_it_returns_in_time() -> None:
    balancer = EndpointBalancer(random.Random(1))
    balancer.update(ENDPOINTS, 10)
    first = balancer.choose("192.0.2.1", 0.0)
    assert balancer.choose("192.0.2.2", 1.0) != first
    assert balancer.choose("192.0.2.1", 9.0) == first
    assert balancer.choose("192.0.2.1", 18.0) == first, "each connection begins the timeout anew"
    assert balancer.choose("192.0.2.1", 28.0) != first


def test_a_client_of_a_refusing_endpoint_gets_the_next_one_and_keeps_it() -> None:
    balancer = EndpointBalancer(random.Random(1))
    balancer.update(ENDPOINTS, 10)
    refusing = balancer.choose("192.0.2.1", 0.0)
    instead = balancer.choose("192.0.2.1", 0.1, failed=True)
    assert instead != refusing
    assert balancer.choose("192.0.2.1", 1.0) == instead


def test_a_client_forgets_an_endpoint_that_is_gone_and_no_other() -> None:
    balancer = EndpointBalancer(random.Random(1))
    balancer.update(ENDPOINTS, 10)
    chosen = {client: balancer.choose(client, 0.0) for client in ("192.0.2.1", "192.0.2.2", "192.0.2.3")}
    gone = chosen["192.0.2.1"]
    balancer.update([each for each in ENDPOINTS if each != gone], 10)
    assert balancer.choose("192.0.2.1", 1.0) != gone
    assert balancer.choose("192.0.2.2", 1.0) == chosen["192.0.2.2"]
    assert balancer.choose("192.0.2.3", 1.0) == chosen["192.0.2.3"]


def test_the_same_endpoints_keep_their_turn() -> None:
    balancer = EndpointBalancer(random.Random(1))
    balancer.update(ENDPOINTS, None)
    first = balancer.choose("192.0.2.1", 0.0)
    balancer.update(list(reversed(ENDPOINTS)), None)
    assert balancer.choose("192.0.2.1", 0.0) != first


@pytest.mark.parametrize("other", [{"ready": False}, {"ready": False, "terminating": True}, {"serving": False}])
@pytest.mark.parametrize("is_first", [True, False])
def test_an_endpoint_of_two_slices_is_served_that_one_of_them_calls_ready(
    other: Mapping[str, bool], is_first: bool
) -> None:
    service = echo(A)
    here, there = slice_of(service, A, endpoint(A, 10)), slice_of(service, A, replace(endpoint(A, 10), **other))
    slices = replace(here, name="a" if is_first else "b"), replace(there, name="b" if is_first else "a")
    (port,) = tracked_ports(PortTracker(Family.IPV4, "node-a"), ClusterView((service,), slices))
    (served,) = served_ports([port]).values()
    assert served.endpoints == (("10.42.0.10", 8080),)


ECHO = "-m comment --comment default/echo -p tcp -m tcp --dport"
LOCAL = "-m addrtype --dst-type LOCAL"
NODE_PORTS = '-m comment --comment "handle service NodePorts; NOTE: this must be the last rule in the chain"'
PORTALS = '-m comment --comment "handle ClusterIPs; NOTE: this must be before the NodePort rules"'
RULES = f"""\
*filter
:KUBE-NODEPORT-NON-LOCAL - [0:0]
-I INPUT -m comment --comment "Ensure that non-local NodePort traffic can flow" -j KUBE-NODEPORT-NON-LOCAL
-A KUBE-NODEPORT-NON-LOCAL {ECHO} 40001 -m state --state NEW -j ACCEPT
COMMIT
*nat
:KUBE-PORTALS-CONTAINER - [0:0]
:KUBE-PORTALS-HOST - [0:0]
:KUBE-NODEPORT-CONTAINER - [0:0]
:KUBE-NODEPORT-HOST - [0:0]
-I PREROUTING {LOCAL} {NODE_PORTS} -j KUBE-NODEPORT-CONTAINER
-I PREROUTING {PORTALS} -j KUBE-PORTALS-CONTAINER
-I OUTPUT {LOCAL} {NODE_PORTS} -j KUBE-NODEPORT-HOST
-I OUTPUT {PORTALS} -j KUBE-PORTALS-HOST
-A KUBE-PORTALS-CONTAINER {ECHO} 80 -d 10.96.0.20 -j REDIRECT --to-ports 40001
-A KUBE-PORTALS-HOST {ECHO} 80 -d 10.96.0.20 -j DNAT --to-destination 172.18.0.2:40001
-A KUBE-PORTALS-CONTAINER {ECHO} 80 -d 203.0.113.7 -j REDIRECT --to-ports 40001
-A KUBE-PORTALS-HOST {ECHO} 80 -d 203.0.113.7 -j DNAT --to-destination 172.18.0.2:40001
-A KUBE-PORTALS-CONTAINER {ECHO} 80 -d 198.51.100.5 -m physdev ! --physdev-is-in -j REDIRECT --to-ports 40001
-A KUBE-PORTALS-CONTAINER {ECHO} 80 -d 198.51.100.5 {LOCAL} -j REDIRECT --to-ports 40001
-A KUBE-PORTALS-HOST {ECHO} 80 -d 198.51.100.5 {LOCAL} -j DNAT --to-destination 172.18.0.2:40001
-A KUBE-NODEPORT-CONTAINER {ECHO} 30080 -j REDIRECT --to-ports 40001
-A KUBE-NODEPORT-HOST {ECHO} 30080 -j DNAT --to-destination 172.18.0.2:40001
COMMIT
"""
"""Read beside iptablesCommonPortalArgs and its callers in pkg/proxy/userspace/proxier.go of 1.25.16."""


def test_the_rules_are_those_of_1_25() -> None:
    served = case(A, (load_balancer(A, external_ips=(A.of("external", 5),)), here_and_there(A)))
    assert MODE.load(served.cluster, served.node, served.settings, Family.IPV4, (1, 25)) == RULES


def test_the_address_of_the_default_route_takes_the_place_of_the_nodes() -> None:
    async def story() -> None:
        loader, service = MemoryLoader(), node_port(A)
        view = ClusterView((service,), (slice_of(service, A, endpoint(A, 10)),))
        writer = UserspaceWriter(Family.IPV4, loader, MemoryProcess(), ProxySettings(), host=A.of("node", 9))
        await ModeProxier(writer).sync(view, replace(facts(A), addresses=()))
        rules = loader.texts[-1][1]
        assert rules.count("--to-destination 172.18.0.9:40001") == 2
        assert rules.count("REDIRECT --to-ports 40001") == 2

    asyncio.run(story())


def test_only_the_first_address_of_a_service_is_served() -> None:
    """kube-proxy reads clusterIP, which iptables of the other family refuses."""
    six, four = Addresses(Family.IPV6), echo(A)
    both = replace(four, cluster_ips=(*four.cluster_ips, *echo(six).cluster_ips))
    view = ClusterView((both,), (slice_of(four, A, endpoint(A, 10)), slice_of(echo(six), six, endpoint(six, 10))))

    def served(service: Service, family: Family) -> int:
        return len(served_ports(tracked_ports(PortTracker(family, "node-a"), replace(view, services=(service,)))))

    assert [served(both, family) for family in Family] == [1, 0]
    turned = replace(both, cluster_ips=tuple(reversed(both.cluster_ips)))
    assert [served(turned, family) for family in Family] == [0, 1]


def test_a_bind_address_is_translated_to_in_place_of_a_redirect() -> None:
    served = case(A, (node_port(A), here_and_there(A)))
    bound = replace(served.settings, node_address=A.of("node", 9))
    text = MODE.load(served.cluster, replace(served.node, addresses=(A.of("node", 9),)), bound, Family.IPV4, (1, 25))
    assert "REDIRECT" not in text
    assert text.count("--to-destination 172.18.0.9:40001") == 4


def test_dumps_differ_by_rules_and_not_by_the_ports_of_the_process() -> None:
    served = case(A, (load_balancer(A), here_and_there(A)))
    text = MODE.load(served.cluster, served.node, served.settings, Family.IPV4, (1, 25))
    dump = "*mangle\nCOMMIT\n" + text
    assert MODE.differences(dump, dump.replace("40001", "37654")) == []
    assert MODE.differences(dump, dump.replace("--dport 80", "--dport 81"))


def test_the_process_listens_before_rules_lead_to_it_and_closes_after_they_are_gone() -> None:
    async def story() -> None:
        loader, process = MemoryLoader(), MemoryProcess()
        both = proxier(loader, process)
        service = node_port(A)
        await both.sync(ClusterView((service,), (slice_of(service, A, endpoint(A, 10)),)), facts(A))
        assert process.orders == [
            ({"default/echo/TCP": ProcessPort(Protocol.TCP, (("10.42.0.10", 8080),), None, 30080)}, [])
        ]
        assert "--to-ports 40001" in loader.texts[-1][1]
        assert await both.is_intact()
        loads = len(loader.texts)
        await both.sync(ClusterView(), facts(A))
        assert len(loader.texts) == loads + 1
        assert process.orders[-1] == ({}, ["default/echo/TCP"])
        assert not any(loader.tables[Family.IPV4]["nat"][chain.name] for chain in CHAINS if chain.table == "nat")

    asyncio.run(story())


def test_a_change_of_endpoints_changes_no_rule() -> None:
    async def story() -> None:
        loader, process = MemoryLoader(), MemoryProcess()
        both, service = proxier(loader, process), echo(A)
        await both.sync(ClusterView((service,), (slice_of(service, A, endpoint(A, 10)),)), facts(A))
        before = loader.tables[Family.IPV4]
        later = slice_of(service, A, endpoint(A, 10), endpoint(A, 11), endpoint(A, 12, ready=False))
        await both.sync(ClusterView((service,), (later,)), facts(A))
        assert loader.tables[Family.IPV4] == before
        (changed,) = process.orders[-1][0].values()
        assert changed.endpoints == (("10.42.0.10", 8080), ("10.42.0.11", 8080))

    asyncio.run(story())


def test_an_ended_process_is_replaced_and_all_rules_follow() -> None:
    async def story() -> None:
        loader, process = MemoryLoader(), MemoryProcess()
        both, service = proxier(loader, process), echo(A)
        view = ClusterView((service,), (slice_of(service, A, endpoint(A, 10)),))
        await both.sync(view, facts(A))
        process.dies = True
        other = slice_of(service, A, endpoint(A, 11))
        with pytest.raises(SyncFailedError, match="the proxy process ended"):
            await both.sync(ClusterView((service,), (other,)), facts(A))
        assert not await both.is_intact()
        await both.sync(view, facts(A), full=True)
        assert "--to-ports 40002" in str(loader.tables[Family.IPV4]["nat"])
        assert "--to-ports 40001" not in str(loader.tables[Family.IPV4]["nat"])

    asyncio.run(story())


def test_what_the_mode_lacks_is_said() -> None:
    async def story() -> None:
        process = MemoryProcess()
        both = proxier(MemoryLoader(), process)
        sctp = echo(A, name="sctp", ports=(ServicePort(port=80, target_port=8080, protocol=Protocol.SCTP),))
        taken = echo(A, name="taken")
        process.failing["default/taken/TCP"] = "Address already in use"
        done = await both.sync(ClusterView((sctp, taken)), facts(A))
        assert done.left_out == (
            "default/taken/TCP: Address already in use",
            "default/sctp is left out: mode userspace has no SCTP",
        )

    asyncio.run(story())


def test_only_the_chains_of_this_mode_go() -> None:
    async def story() -> None:
        loader, service = MemoryLoader(), node_port(A)
        await loader.load(Family.IPV4, "*nat\n:KUBE-SERVICES - [0:0]\n-A PREROUTING -j KUBE-SERVICES\nCOMMIT\n")
        view = ClusterView((service,), (slice_of(service, A, endpoint(A, 10)),))
        await proxier(loader, MemoryProcess()).sync(view, facts(A))
        assert await remove(loader, Family.IPV4, {chain.name for chain in CHAINS})
        left = fresh()
        left["nat"] |= {"KUBE-SERVICES": []}
        left["nat"]["PREROUTING"] = ["-j KUBE-SERVICES"]
        assert loader.tables[Family.IPV4] == left

    asyncio.run(story())
