"""The sync loop, against a store and a loader in memory."""

import asyncio
import re
from collections.abc import Coroutine

import pytest
from memory_loader import MemoryLoader, NoSurroundings, engine_with
from msgspec.structs import replace
from rule_cases import HERE, Addresses, echo, endpoint, node_port, slice_of
from virtual_clock import VirtualClock

from proxylab.addresses import Family
from proxylab.cluster.objects import Node, Pod
from proxylab.cluster.store import Store
from proxylab.engines.embedded.settings import Periods, ProxySettings
from proxylab.engines.embedded.sync import EmbeddedEngine, Served
from proxylab.engines.protocol import Engine
from proxylab.errors import EngineError, InternalError
from proxylab.timing import Deadline

A = Addresses(Family.IPV4)
ECHO = echo(A)
SLICE = slice_of(ECHO, A, endpoint(A, 10))
POD = Pod(name="echo-1", node_name=HERE, addresses=(A.of("pod", 10),))


def run(scenario: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, timeout=10))


def soon() -> Deadline:
    return Deadline.after(5)


def made(store: Store, loader: MemoryLoader, **options: object) -> EmbeddedEngine:
    engine = engine_with(store, loader, Periods(least=0), **options)
    checked: Engine = engine  # mypy: it keeps the protocol
    assert checked is engine
    return engine


def seeded() -> Store:
    store = Store()
    store.apply(Node(name=HERE, addresses=(A.of("node", 2),)))
    store.apply(ECHO)
    store.apply(SLICE)
    return store


def test_start_loads_the_cluster_as_it_stands() -> None:
    async def scenario() -> None:
        store, loader = seeded(), MemoryLoader()
        engine = made(store, loader)
        await engine.start()
        await engine.wait_synced(store.revision, soon())
        assert "DNAT --to-destination 10.42.0.10:8080" in await engine.dump()
        assert engine.logs()[0].startswith("revision 3: IPv4: loaded")
        await engine.stop()

    run(scenario())


def test_changes_are_followed() -> None:
    async def scenario() -> None:
        store, loader = seeded(), MemoryLoader()
        engine = made(store, loader)
        await engine.start()
        await engine.wait_synced(store.apply(slice_of(ECHO, A, endpoint(A, 10), endpoint(A, 11))), soon())
        assert "10.42.0.11:8080" in await engine.dump()
        await engine.wait_synced(store.delete(ECHO.key), soon())
        assert "KUBE-SVC-" not in await engine.dump()
        await engine.stop()

    run(scenario())


def test_whatever_ends_its_loop_a_stopped_engine_leaves_nothing_open() -> None:
    class Failing(NoSurroundings):
        """What follows the rules breaks at the second synchronisation."""

        def __init__(self) -> None:
            self.followed, self.closed = 0, False

        def hold(self, *, answers: bool) -> None:
            self.held = answers

        async def follow(self, served: Served) -> tuple[str, ...]:
            self.followed += 1
            if self.followed > 1:
                raise InternalError("conntrack cannot be read")
            return ()

        async def close(self) -> None:
            self.closed = True

    async def scenario() -> None:
        store, surroundings = seeded(), Failing()
        engine = made(store, MemoryLoader(), surroundings=surroundings)
        await engine.start()
        store.apply(slice_of(ECHO, A, endpoint(A, 11)))
        with pytest.raises(InternalError, match="conntrack"):
            await engine.wait_synced(store.revision, soon())
        with pytest.raises(InternalError, match="conntrack"):
            await engine.stop()
        assert surroundings.closed

    run(scenario())


def test_changes_made_together_are_loaded_together() -> None:
    async def scenario() -> None:
        store, loader = seeded(), MemoryLoader()
        engine = made(store, loader)
        await engine.start()
        for number in range(20):
            store.apply(replace(ECHO, name=f"s{number}"))
        await engine.wait_synced(store.revision, soon())
        assert len(loader.texts) == 2
        await engine.stop()

    run(scenario())


def test_changes_during_a_load_follow_in_one_more() -> None:
    async def scenario() -> None:
        store, loader = seeded(), MemoryLoader()
        engine = made(store, loader)
        await engine.start()
        loader.gate.clear()
        early = store.apply(replace(ECHO, name="early"))
        while len(loader.texts) < 2:
            await asyncio.sleep(0)
        late = [store.apply(replace(ECHO, name=f"late-{number}")) for number in range(3)]
        loader.gate.set()
        await engine.wait_synced(early, soon())
        await engine.wait_synced(late[-1], soon())
        assert len(loader.texts) == 3
        await engine.stop()

    run(scenario())


def test_what_changes_no_rule_is_not_loaded_but_counts_as_synced() -> None:
    async def scenario() -> None:
        store, loader = seeded(), MemoryLoader()
        engine = made(store, loader)
        await engine.start()
        for change in (POD, Node(name="node-z"), replace(ECHO, name="headless", headless=True, cluster_ips=())):
            await engine.wait_synced(store.apply(change), soon())
        assert len(loader.texts) == 1
        await engine.stop()

    run(scenario())


@pytest.mark.parametrize("chain", ["KUBE-SVC-LEFT", "DOCKER"])
def test_only_the_first_synchronisation_reads_the_rules_back_where_a_proxy_has_left_chains(chain: str) -> None:
    async def scenario() -> None:
        store, loader = seeded(), MemoryLoader()
        loader.tables[Family.IPV4]["nat"][chain] = []
        engine = made(store, loader)
        await engine.start()
        await engine.wait_synced(store.delete(SLICE.key), soon())
        is_of_a_proxy = chain.startswith("KUBE-")
        assert (loader.saves, len(loader.texts)) == (int(is_of_a_proxy), 2)
        assert (chain in loader.tables[Family.IPV4]["nat"]) is not is_of_a_proxy
        await engine.stop()

    run(scenario())


def test_a_refused_load_keeps_the_rules_and_the_next_is_a_full_one() -> None:
    async def scenario() -> None:
        store, loader = seeded(), MemoryLoader()
        engine = made(store, loader)
        await engine.start()
        before = await engine.dump()
        saves = loader.saves
        loader.refuse = "-j MARK --or-mark"
        revision = store.apply(replace(SLICE, endpoints=(endpoint(A, 11), endpoint(A, 12))))
        with pytest.raises(EngineError, match=r"refused line \d+: -A KUBE-MARK-MASQ -j MARK") as raised:
            await engine.wait_synced(revision, soon())
        assert raised.value.node == HERE
        assert re.fullmatch(r"iptables-restore: line \d+ failed", raised.value.log)
        assert await engine.dump() == before

        await engine.wait_synced(store.apply(replace(ECHO, name="web")), soon())
        assert loader.saves == saves + 2  # one dump, one full synchronisation
        assert "10.42.0.12:8080" in await engine.dump()
        await engine.stop()

    run(scenario())


def test_start_fails_if_the_first_load_is_refused_and_follows_nothing() -> None:
    async def scenario() -> None:
        store, loader = seeded(), MemoryLoader()
        loader.refuse = "Permission denied"
        engine = made(store, loader)
        with pytest.raises(EngineError, match="refused"):
            await engine.start()
        store.apply(replace(ECHO, name="web"))
        with pytest.raises(EngineError, match="does not run"):
            await engine.wait_synced(store.revision, soon())
        assert len(loader.texts) == 1

    run(scenario())


def test_one_familys_refusal_does_not_stop_the_other() -> None:
    async def scenario() -> None:
        store, loader = seeded(), MemoryLoader()
        engine = made(store, loader, families=(Family.IPV4, Family.IPV6))
        await engine.start()
        six = echo(Addresses(Family.IPV6), name="six")
        store.apply(slice_of(six, Addresses(Family.IPV6), endpoint(Addresses(Family.IPV6), 10)))
        loader.refuse = "Permission denied"
        store.apply(echo(A, name="four"))
        with pytest.raises(EngineError, match="IPv4: "):
            await engine.wait_synced(store.apply(six), soon())
        assert "fd00:42::10" in await loader.dump(Family.IPV6)
        await engine.stop()

    run(scenario())


def test_wait_synced_gives_up_at_its_deadline_and_says_what_it_waited_for() -> None:
    async def scenario() -> None:
        store, loader = seeded(), MemoryLoader()
        engine = made(store, loader)
        await engine.start()
        loader.gate.clear()
        store.delete(SLICE.key)
        with pytest.raises(EngineError, match="rules that reflect revision 4"):
            await engine.wait_synced(4, Deadline.after(0.02))
        loader.gate.set()
        await engine.stop()

    run(scenario())


def test_stop_lets_a_load_finish_and_leaves_the_rules() -> None:
    async def scenario() -> None:
        store, loader = seeded(), MemoryLoader()
        engine = made(store, loader)
        await engine.start()
        loader.gate.clear()
        store.apply(slice_of(ECHO, A, endpoint(A, 11)))
        while len(loader.texts) < 2:
            await asyncio.sleep(0)
        stopping = asyncio.create_task(engine.stop())
        await asyncio.sleep(0)
        assert not stopping.done()
        loader.gate.set()
        await stopping
        assert "10.42.0.11:8080" in await engine.dump()
        store.delete(ECHO.key)
        with pytest.raises(EngineError, match="was stopped"):
            await engine.wait_synced(store.revision, soon())
        assert len(loader.texts) == 2

    run(scenario())


def test_an_error_of_ours_reaches_who_waits() -> None:
    class Broken(MemoryLoader):
        async def load(self, family: Family, text: str) -> None:
            if self.texts:
                raise OSError("no such namespace")
            await super().load(family, text)

    async def scenario() -> None:
        store = seeded()
        engine = made(store, Broken())
        await engine.start()
        with pytest.raises(OSError, match="no such namespace"):
            await engine.wait_synced(store.delete(ECHO.key), soon())

    run(scenario())


def test_restricted_node_ports_ask_for_the_interfaces_addresses() -> None:
    async def scenario() -> None:
        store, loader = seeded(), MemoryLoader()
        store.apply(node_port(A))
        settings = ProxySettings(node_port_addresses=(A.narrow("node"),))
        own = (A.of("node", 2), A.of("vip", 1))
        engine = engine_with(store, loader, Periods(), settings=settings, interface_addresses=lambda: own)
        await engine.start()
        rules = await engine.dump()
        assert "-d 172.18.0.2 -j KUBE-NODEPORTS" in rules
        assert "203.0.113.1" not in rules
        await engine.stop()

    run(scenario())


def test_what_another_mode_has_left_is_removed_before_the_first_rule() -> None:
    class Left:
        """Rules of another mode, over IPv4 only."""

        def __init__(self, loader: MemoryLoader) -> None:
            self.loader, self.asked = loader, list[Family]()

        async def remove(self, family: Family) -> bool:
            assert not self.loader.texts
            self.asked.append(family)
            return family is Family.IPV4

    async def scenario() -> None:
        store, loader = seeded(), MemoryLoader()
        left = Left(loader)
        engine = made(store, loader, families=tuple(Family), others={"nftables": left})
        await engine.start()
        assert left.asked == list(Family)
        removed = [line for line in engine.logs() if "removed" in line]
        assert removed == ["IPv4: removed the rules of a proxy in mode nftables"]
        await engine.stop()

    run(scenario())


@pytest.mark.parametrize("change", ["moved", "gone"])
def test_an_engine_ends_when_its_node_goes_or_moves(change: str) -> None:
    async def scenario() -> None:
        store = seeded()
        engine = made(store, MemoryLoader(), ends_with_node=True)
        await engine.start()
        node = store.list(Node)[0]
        store.apply(replace(node, labels={"a": "b"}))
        await engine.wait_synced(store.revision, soon())
        if change == "gone":
            store.delete(node.key)
        else:
            store.apply(replace(node, addresses=(A.of("node", 9),)))
        await engine.wait_ended(soon())
        with pytest.raises(EngineError):
            await engine.wait_synced(store.revision, soon())
        await engine.stop()

    run(scenario())


@pytest.mark.parametrize("comes", [True, False])
def test_an_engine_waits_for_its_node_for_a_while(comes: bool) -> None:
    async def scenario() -> None:
        store, clock = seeded(), VirtualClock()
        node = store.list(Node)[0]
        store.delete(node.key)
        loader = MemoryLoader()
        engine = made(store, loader, ends_with_node=True, node_seconds=30.0, clock=clock)
        await engine.start()
        await clock.advance(29)
        assert not engine.has_given_up
        assert "DNAT" not in await engine.dump()
        if comes:
            store.apply(node)
        else:
            await clock.advance(2)
        await engine.wait_synced(store.revision, soon())
        assert "DNAT --to-destination 10.42.0.10:8080" in await engine.dump()
        assert engine.has_given_up is not comes
        await engine.stop()

    run(scenario())


def test_an_engine_keeps_the_addresses_that_its_node_had_when_it_started() -> None:
    async def scenario() -> None:
        store = seeded()
        store.apply(node_port(A))
        loader = MemoryLoader()
        settings = ProxySettings(node_port_primary=True)
        own = [A.of("node", 2), A.of("node", 9)]
        engine = made(store, loader, settings=settings, interface_addresses=lambda: own)
        await engine.start()
        store.apply(replace(store.list(Node)[0], addresses=(A.of("node", 9),)))
        await engine.wait_synced(store.revision, soon())
        assert str(A.of("node", 2)) in await engine.dump()
        assert str(A.of("node", 9)) not in await engine.dump()
        await engine.stop()

    run(scenario())


def test_an_engine_whose_loads_work_again_waits_for_its_retry() -> None:
    async def scenario() -> None:
        store, loader, clock = seeded(), MemoryLoader(), VirtualClock()
        engine = engine_with(store, loader, Periods(least=0, sync=30), clock=clock)
        await engine.start()
        loader.refuse = "KUBE-"
        store.apply(node_port(A))
        await clock.settle()
        with pytest.raises(EngineError):
            await engine.wait_synced(store.revision, soon())
        await engine.forgive()
        waiting = asyncio.create_task(engine.wait_synced(store.revision, soon()))
        await clock.advance(29)
        assert not waiting.done()
        await clock.advance(2)
        await waiting
        await engine.stop()

    run(scenario())
