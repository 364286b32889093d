"""Invariants of the table of mode nftables, of any cluster."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st
from memory_nft import MemoryNft
from msgspec.structs import replace
from rule_worlds import ZONES, World, clusters, edited, proxies, twice, worlds
from thoroughness import examples as many

from proxylab.addresses import Family
from proxylab.engines.embedded.nftables.loader import Present
from proxylab.engines.embedded.nftables.render import render
from proxylab.engines.embedded.nftables.transaction import write_table
from proxylab.engines.embedded.nftables.writer import NftablesWriter
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.proxier import ModeProxier
from proxylab.engines.embedded.settings import ProxySettings

# No deadline: the time of an example depends on the machine more than on the rules.
examples = settings(max_examples=many(20), deadline=None)


def written(world: World) -> str:
    (family, chosen, node), cluster = world
    return write_table(render(cluster, node, chosen, family), Present(), rehook=True).text


@given(twice())
@examples
def test_the_order_of_objects_makes_no_difference(pair: tuple[World, World]) -> None:
    world, reordered = pair
    assert written(reordered) == written(world)


@given(worlds)
@examples
def test_a_first_load_is_taken_and_no_chain_or_set_is_unused(world: World) -> None:
    """The table in memory refuses whatever leads to nothing."""
    loader = MemoryNft()
    asyncio.run(loader.load(written(world)))
    (table,) = loader.tables.values()
    rules = "\n".join(rule for rules in table.chains.values() for rule in rules)
    verdicts = "\n".join(verdict for each in table.containers.values() for verdict in each.values())
    for chain in table.chains:
        assert "/" not in chain or f"goto {chain}" in rules + verdicts
    for name in table.containers:
        assert f"@{name}" in rules


@given(worlds)
@examples
def test_every_endpoint_of_a_chain_gets_an_equal_share(world: World) -> None:
    for line in written(world).splitlines():
        head, numbered, choices = line.partition(" numgen random mod ")
        if numbered:
            count, _, elements = choices.partition(" ")
            numbers = [each.split(" : ")[0].strip() for each in elements[elements.index("{") + 1 : -1].split(",")]
            assert numbers == [str(number) for number in range(int(count))], head


@given(proxies(), st.data())
@examples
def test_after_any_changes_the_table_is_that_of_a_fresh_node(
    proxy: tuple[Family, ProxySettings, NodeFacts], data: st.DataObject
) -> None:
    """Each cluster changes one object of the one before; sometimes the node changes too, or a full sync comes."""
    family, chosen, node = proxy
    clock = 0.0
    loader, fresh = MemoryNft(), MemoryNft()
    proxier = ModeProxier(NftablesWriter(family, loader, chosen, now=lambda: clock))
    cluster = data.draw(clusters(family))

    async def story() -> None:
        nonlocal cluster, node, clock
        await proxier.sync(cluster, node)
        for _ in range(data.draw(st.integers(1, 5))):
            cluster = edited(cluster, data.draw(clusters(family)), data)
            node = replace(node, zone=data.draw(st.sampled_from([node.zone, *ZONES])))
            clock += data.draw(st.sampled_from([0.1, 2.0]))
            await proxier.sync(cluster, node, full=data.draw(st.booleans()))
        await ModeProxier(NftablesWriter(family, fresh, chosen)).sync(cluster, node)

    asyncio.run(story())
    assert loader.tables[family].meaning == fresh.tables[family].meaning
