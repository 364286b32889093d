"""The proxier of mode nftables, against tables in memory."""

import asyncio
from collections.abc import Coroutine
from ipaddress import ip_network

import pytest
from memory_loader import alone
from memory_nft import MemoryNft
from msgspec.structs import replace
from rule_cases import HERE, Addresses, echo, endpoint, facts, load_balancer, node_port, slice_of

from proxylab.addresses import Family
from proxylab.cluster.objects import EndpointSlice, Node, ObjectKey, Service
from proxylab.cluster.store import Store
from proxylab.engines.embedded.nftables.writer import NftablesWriter
from proxylab.engines.embedded.ports import ClusterView
from proxylab.engines.embedded.proxier import ModeProxier, SyncFailedError
from proxylab.engines.embedded.settings import Periods, ProxySettings
from proxylab.timing import Deadline

A = Addresses(Family.IPV4)
NODE = facts(A)
ECHO = echo(A)
SLICE = slice_of(ECHO, A, endpoint(A, 10))
OTHER = echo(A, name="other", cluster_ips=(A.of("cluster", 21),))
OTHERS = slice_of(OTHER, A, endpoint(A, 20))
BOTH = ClusterView((ECHO, OTHER), (SLICE, OTHERS))


def run(scenario: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, timeout=10))


class Stage:
    """A proxier, its tables, and its clock."""

    def __init__(self, settings: ProxySettings | None = None) -> None:
        self.loader, self.now = MemoryNft(), 100.0
        self.proxier = ModeProxier(
            NftablesWriter(Family.IPV4, self.loader, settings or ProxySettings(), now=lambda: self.now)
        )

    async def sync(self, *things: Service | EndpointSlice, full: bool = False) -> list[str]:
        """The lines that this sync loads."""
        before = len(self.loader.texts)
        services = tuple(each for each in things if isinstance(each, Service))
        slices = tuple(each for each in things if isinstance(each, EndpointSlice))
        await self.proxier.sync(ClusterView(services, slices), NODE, full=full)
        return [line for text in self.loader.texts[before:] for line in text.splitlines()]

    @property
    def chains(self) -> dict[str, list[str]]:
        return {name: rules for name, rules in self.loader.tables[Family.IPV4].chains.items() if "/" in name}

    @property
    def elements(self) -> dict[str, dict[str, str]]:
        return self.loader.tables[Family.IPV4].containers


def test_a_partial_sync_writes_the_changed_service_only() -> None:
    async def story() -> None:
        stage = Stage()
        await stage.sync(ECHO, OTHER, SLICE, OTHERS)
        lines = await stage.sync(ECHO, OTHER, slice_of(ECHO, A, endpoint(A, 10), endpoint(A, 11)), OTHERS)
        (rule,) = (line for line in lines if "add rule" in line)
        assert rule.startswith(
            "add rule ip kube-proxy service-LAZWMU44-default/echo/tcp/ meta l4proto tcp dnat ip addr"
        )
        assert rule.endswith("numgen random mod 2 map { 0 : 10.42.0.10 . 8080, 1 : 10.42.0.11 . 8080 }")
        assert not any("other" in line for line in lines)
        assert [line.split("{")[1] for line in lines if "element" in line] == [
            " 10.42.0.11 . 10.42.0.11 . tcp . 8080 }"
        ]
        assert await stage.sync(ECHO, OTHER, slice_of(ECHO, A, endpoint(A, 10), endpoint(A, 11)), OTHERS) == []

    run(story())


def test_a_stale_chain_is_emptied_at_once_and_deleted_a_second_later() -> None:
    async def story() -> None:
        stage = Stage()
        await stage.sync(ECHO, OTHER, SLICE, OTHERS)
        await stage.sync(OTHER, OTHERS)
        (gone,) = (name for name in stage.chains if "echo" in name)
        assert stage.chains[gone] == []
        assert "10.96.0.20" not in stage.elements["cluster-ips"]
        stage.now += 0.5
        assert await stage.sync(OTHER, OTHERS, replace(OTHER, name="third", cluster_ips=(A.of("cluster", 22),)))
        assert gone in stage.chains
        stage.now += 0.6
        await stage.sync(OTHER, OTHERS)
        assert gone not in stage.chains

    run(story())


def test_a_chain_that_is_used_again_is_not_deleted() -> None:
    async def story() -> None:
        stage = Stage()
        await stage.sync(ECHO, OTHER, SLICE, OTHERS)
        await stage.sync(OTHER, OTHERS)
        stage.now += 2
        await stage.sync(ECHO, OTHER, SLICE, OTHERS)
        stage.now += 2
        await stage.sync(ECHO, SLICE)
        assert any("echo" in name and rules for name, rules in stage.chains.items())

    run(story())


def test_a_refusal_names_the_service_and_leaves_the_table() -> None:
    async def story() -> None:
        stage = Stage()
        await stage.sync(ECHO, SLICE)
        before = stage.chains
        stage.loader.never = ("10.42.0.66",)
        bad = replace(ECHO, name="bad", cluster_ips=(A.of("cluster", 66),))
        with pytest.raises(SyncFailedError, match=r"IPv4: nft refused of Service default/bad: add .*Invalid argument"):
            await stage.sync(ECHO, bad, SLICE, slice_of(bad, A, endpoint(A, 66)))
        assert stage.chains == before
        assert await stage.sync(ECHO, bad, SLICE, slice_of(bad, A, endpoint(A, 67)))
        assert any("bad" in name for name in stage.chains)

    run(story())


def test_the_fixed_part_is_the_fault_of_no_service() -> None:
    async def story() -> None:
        stage = Stage()
        stage.loader.never = ("masquerade fully-random",)
        with pytest.raises(SyncFailedError, match="IPv4: nft refused: add rule ip kube-proxy masquerading"):
            await stage.sync(ECHO, SLICE)
        assert Family.IPV4 not in stage.loader.tables
        stage.loader.never = ()
        assert await stage.sync(ECHO, SLICE)
        assert stage.chains

    run(story())


def test_a_deleted_table_is_written_again_with_the_next_change() -> None:
    async def story() -> None:
        stage = Stage()
        await stage.sync(ECHO, SLICE)
        assert await stage.proxier.is_intact()
        del stage.loader.tables[Family.IPV4]
        done = await stage.proxier.sync(BOTH, NODE)
        assert done.full
        assert len(stage.chains) == 2

    run(story())


def test_a_full_sync_keeps_what_sets_remember_and_takes_what_others_left() -> None:
    async def story() -> None:
        stage = Stage()
        sticky = replace(ECHO, affinity_timeout=60)
        await stage.sync(sticky, SLICE)
        (memory,) = (name for name in stage.elements if name.startswith("affinity-"))
        stage.elements[memory]["10.42.0.99"] = ""
        stage.loader.tables[Family.IPV4].chains["service-AAAAAAAA-old/gone/tcp/"] = ["meta l4proto tcp drop"]
        stage.elements["service-ips"]["10.0.0.9 . tcp . 80"] = "goto service-AAAAAAAA-old/gone/tcp/"
        await stage.sync(sticky, SLICE, full=True)
        assert stage.elements[memory] == {"10.42.0.99": ""}
        assert stage.chains["service-AAAAAAAA-old/gone/tcp/"] == []
        assert list(stage.elements["service-ips"]) == ["10.96.0.20 . tcp . 80"]
        await stage.sync(sticky, SLICE)
        assert stage.elements[memory], "a partial sync leaves it, too"
        await stage.sync(replace(sticky, affinity_timeout=90), SLICE)
        assert stage.loader.tables[Family.IPV4].heads[memory].endswith("timeout 90s ; }")
        await stage.sync(replace(sticky, affinity_timeout=30), SLICE, full=True)
        assert stage.loader.tables[Family.IPV4].heads[memory].endswith("timeout 30s ; }")
        await stage.sync(ECHO, SLICE)
        assert memory not in stage.elements

    run(story())


def test_two_services_with_one_frontend_share_it_until_one_of_them_goes() -> None:
    async def story() -> None:
        stage = Stage()
        first, second = (replace(each, external_ips=(A.of("external", 9),)) for each in (ECHO, OTHER))
        await stage.sync(first, second, SLICE, OTHERS)
        key = "198.51.100.9 . tcp . 80"
        assert "default/other" in stage.elements["service-ips"][key]
        await stage.sync(first, OTHER, SLICE, OTHERS)
        assert "default/echo" in stage.elements["service-ips"][key]
        await stage.sync(ECHO, OTHER, SLICE, OTHERS)
        assert key not in stage.elements["service-ips"]

    run(story())


def test_networks_of_cluster_ips_are_part_of_the_table() -> None:
    async def story() -> None:
        stage = Stage()
        networks = (ip_network("10.96.0.0/16"), ip_network("fd00:96::/112"))
        await stage.sync(ECHO, SLICE)
        assert not any("drop" in rule for rule in stage.loader.tables[Family.IPV4].chains["cluster-ips-check"])
        done = await stage.proxier.sync(ClusterView((ECHO,), (SLICE,), networks), NODE)
        assert done.full
        rules = stage.loader.tables[Family.IPV4].chains["cluster-ips-check"]
        assert rules[-1] == 'ip daddr { 10.96.0.0/16 } drop comment "Drop traffic to unallocated ClusterIPs"'

    run(story())


def test_source_ranges_hold_even_without_an_endpoint() -> None:
    async def story() -> None:
        stage = Stage()
        await stage.sync(load_balancer(A, source_ranges=(A.narrow("external"),)))
        (chain,) = stage.chains
        assert stage.chains[chain] == ["ip saddr != { 198.51.100.0/24 } drop"]
        assert stage.elements["firewall-ips"] == {"203.0.113.7 . tcp . 80": f"goto {chain}"}

    run(story())


def test_a_node_port_is_served_at_the_primary_address_that_the_node_has() -> None:
    async def story() -> None:
        stage = Stage(ProxySettings(node_port_primary=True, localhost_node_ports=False))
        await stage.proxier.sync(ClusterView((node_port(A),), (SLICE,)), NODE)
        assert stage.elements["nodeport-ips"] == {}
        own = replace(NODE, interface_addresses=NODE.addresses)
        await stage.proxier.sync(ClusterView((node_port(A),), (SLICE,)), own)
        assert list(stage.elements["nodeport-ips"]) == [str(NODE.addresses[0])]

    run(story())


def test_the_loop_drives_it_like_any_other() -> None:
    async def story() -> None:
        store, loader = Store(), MemoryNft()
        for thing in (Node(name=HERE, addresses=(A.of("node", 2),)), ECHO, SLICE):
            store.apply(thing)
        proxiers = {family: ModeProxier(NftablesWriter(family, loader, ProxySettings())) for family in Family}
        engine = alone(store, "nftables", proxiers, Periods(least=0))
        await engine.start()
        assert "dnat to 10.42.0.10:8080" in await engine.dump()
        await engine.wait_synced(store.delete(ObjectKey("Service", "default", "echo")), Deadline.after(5))
        assert "10.42.0.10" not in await engine.dump()
        assert engine.metrics.mode == "nftables"
        await engine.stop()

    run(story())
