"""What a full sync finds in the kernel it does not add again, and what is missing or changed it restores."""

import asyncio

import pytest
from memory_ipvs import MemoryIpvs
from memory_loader import BUILT_IN, MemoryLoader
from memory_nft import MemoryNft
from memory_process import MemoryProcess
from msgspec.structs import replace
from rule_cases import Addresses, echo, endpoint, facts, slice_of

from proxylab.addresses import Family
from proxylab.engines.embedded.iptables.writer import IptablesWriter
from proxylab.engines.embedded.ipvs.writer import IpvsWriter
from proxylab.engines.embedded.nftables.writer import NftablesWriter
from proxylab.engines.embedded.ports import ClusterView
from proxylab.engines.embedded.proxier import ModeProxier, Proxier
from proxylab.engines.embedded.settings import ProxySettings
from proxylab.engines.embedded.userspace.writer import UserspaceWriter

A = Addresses(Family.IPV4)
ECHO = echo(A)
VIEW = ClusterView((ECHO,), (slice_of(ECHO, A, endpoint(A, 10)),))
CHANGED = ClusterView((replace(ECHO, affinity_timeout=60),), VIEW.slices)
NODE = facts(A)


def jumps(loader: MemoryLoader) -> dict[tuple[str, str], list[str]]:
    """The rules of the kernel's own chains."""
    tables = loader.tables[Family.IPV4]
    return {(table, chain): [*tables[table][chain]] for table, chains in BUILT_IN.items() for chain in chains}


def made(mode: str) -> tuple[MemoryLoader, Proxier]:
    """A proxier whose rules are those of iptables, and its kernel."""
    settings = ProxySettings()
    match mode:
        case "ipvs":
            kernel = MemoryIpvs()
            return kernel, ModeProxier(IpvsWriter(Family.IPV4, kernel, settings))
        case "userspace":
            loader = MemoryLoader()
            return loader, ModeProxier(UserspaceWriter(Family.IPV4, loader, MemoryProcess(), settings))
    loader = MemoryLoader()
    return loader, ModeProxier(IptablesWriter(Family.IPV4, loader, settings, sync_period=30, now=lambda: 100.0))


@pytest.mark.parametrize("lost", [None, *BUILT_IN["nat"], *BUILT_IN["filter"]])
@pytest.mark.parametrize(("mode", "least"), [("iptables", 9), ("ipvs", 6), ("userspace", 5)])
def test_a_full_sync_adds_only_the_jumps_that_are_lost(mode: str, least: int, lost: str | None) -> None:
    async def story() -> None:
        loader, proxier = made(mode)
        await proxier.sync(VIEW, NODE, full=False)
        before = jumps(loader)
        assert sum(map(len, before.values())) >= least
        for table in loader.tables[Family.IPV4].values():
            if lost in table:
                table[lost].clear()
        for view in (VIEW, CHANGED, VIEW):
            await proxier.sync(view, NODE, full=True)
        assert {where: sorted(rules) for where, rules in jumps(loader).items()} == {
            where: sorted(rules) for where, rules in before.items()
        }

    asyncio.run(asyncio.wait_for(story(), timeout=10))


def test_a_full_sync_of_mode_nftables_restores_the_fixed_part() -> None:
    async def story() -> None:
        tables = MemoryNft()
        proxier = ModeProxier(NftablesWriter(Family.IPV4, tables, ProxySettings(), now=lambda: 100.0))
        await proxier.sync(VIEW, NODE, full=False)
        chains = {name: [*rules] for name, rules in tables.tables[Family.IPV4].chains.items()}
        tables.tables[Family.IPV4].chains["masquerading"] = ["return"]
        await proxier.sync(VIEW, NODE, full=True)
        assert tables.tables[Family.IPV4].chains == chains

    asyncio.run(asyncio.wait_for(story(), timeout=10))


def test_a_proxy_of_mode_nftables_with_other_settings_replaces_the_fixed_part() -> None:
    async def story() -> None:
        tables = MemoryNft()
        for bit in (14, 10):
            settings = replace(ProxySettings(), masquerade_bit=bit)
            proxier = ModeProxier(NftablesWriter(Family.IPV4, tables, settings, now=lambda: 100.0))
            await proxier.sync(VIEW, NODE, full=False)
            chains = tables.tables[Family.IPV4].chains
            rules = [rule for each in chains.values() for rule in each if "mark" in rule]
            own, other = (f"0x{1 << each:06x}" for each in (bit, 24 - bit))
            assert [rule for rule in chains["masquerading"] if own in rule] != []
            assert [rule for rule in rules if other in rule] == []

    asyncio.run(asyncio.wait_for(story(), timeout=10))
