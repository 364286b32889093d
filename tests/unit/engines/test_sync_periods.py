"""When the sync loop runs: by a clock that only the test moves."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from memory_loader import MemoryLoader, engine_with
from msgspec.structs import replace
from rule_cases import HERE, Addresses, echo, endpoint, slice_of
from virtual_clock import VirtualClock

from proxylab.addresses import Family
from proxylab.cluster.objects import ZONE_LABEL, EndpointSlice, Node
from proxylab.cluster.store import Store
from proxylab.engines.embedded.settings import Periods
from proxylab.engines.embedded.sync import Pace

A = Addresses(Family.IPV4)
ECHO = echo(A)
SLICE = slice_of(ECHO, A, endpoint(A, 10))
PERIODS = Periods(least=1, sync=30, full=3600)


class Stage:
    """An engine that has started, its store, its loader and its clock."""

    def __init__(self) -> None:
        self.store, self.loader, self.clock = Store(), MemoryLoader(), VirtualClock()
        for thing in (Node(name=HERE, labels={ZONE_LABEL: "blue"}, addresses=(A.of("node", 2),)), ECHO, SLICE):
            self.store.apply(thing)
        self.engine = engine_with(self.store, self.loader, PERIODS, clock=self.clock)

    @property
    def loads(self) -> int:
        return len(self.loader.texts)

    async def change(self) -> None:
        self.store.apply(replace(ECHO, name=f"s{self.store.revision}"))
        await self.clock.settle()


def staged(test: Callable[[Stage], Awaitable[None]]) -> None:
    async def scenario() -> None:
        stage = Stage()
        await stage.engine.start()
        await test(stage)
        await stage.engine.stop()

    asyncio.run(asyncio.wait_for(scenario(), timeout=10))


def test_after_the_burst_changes_wait_for_the_least_period() -> None:
    async def test(stage: Stage) -> None:
        await stage.change()
        assert stage.loads == 2  # the start took one of the burst, this change the other
        await stage.change()
        await stage.change()
        assert stage.loads == 2
        await stage.clock.advance(0.9)
        assert stage.loads == 2
        await stage.clock.advance(0.2)
        assert stage.loads == 3
        await stage.clock.advance(10)
        assert stage.loads == 3

    staged(test)


def test_a_failed_load_is_tried_again_after_a_sync_period_and_in_full() -> None:
    async def test(stage: Stage) -> None:
        stage.loader.refuse = "Resource temporarily unavailable"
        await stage.change()
        saves = stage.loader.saves
        await stage.clock.advance(29)
        assert stage.loads == 2
        await stage.clock.advance(2)
        assert (stage.loads, stage.loader.saves) == (3, saves + 1)
        assert "s3" in stage.loader.texts[-1][1]
        await stage.clock.advance(29)
        assert stage.loads == 3

    staged(test)


@pytest.mark.parametrize("table", ["mangle", "nat", "filter"])
def test_a_flush_by_another_program_is_repaired_within_a_sync_period(table: str) -> None:
    async def test(stage: Stage) -> None:
        before = await stage.engine.dump()
        stage.loader.tables[Family.IPV4][table] = {
            chain: [] for chain in stage.loader.tables[Family.IPV4][table] if not chain.startswith("KUBE-")
        }
        await stage.clock.advance(29)
        assert stage.loads == 1
        await stage.clock.advance(2)
        assert sorted((await stage.engine.dump()).splitlines()) == sorted(before.splitlines())
        assert any("has flushed the rules" in line for line in stage.engine.logs())

    staged(test)


def test_while_nothing_happens_nothing_is_written() -> None:
    async def test(stage: Stage) -> None:
        for _ in range(10):
            await stage.clock.advance(31)
        assert (stage.loads, stage.loader.saves) == (1, 0)

    staged(test)


def test_once_an_hour_everything_is_written() -> None:
    async def test(stage: Stage) -> None:
        stage.loader.tables[Family.IPV4]["nat"]["KUBE-SERVICES"].clear()
        await stage.clock.advance(3601)
        assert stage.loads == 2
        assert stage.loader.tables[Family.IPV4]["nat"]["KUBE-SERVICES"]

    staged(test)


def test_in_a_large_cluster_nothing_is_written_without_need() -> None:
    """No hourly synchronisation in full; and stale chains go together, once a sync period."""

    def large(count: int) -> tuple[EndpointSlice, ...]:
        ips = [A.of("pod", 0) + number for number in range(count)]
        return (replace(SLICE, endpoints=tuple(replace(endpoint(A, 10), addresses=(ip,)) for ip in ips)),)

    def endpoint_chains(stage: Stage) -> int:
        return sum(chain.startswith("KUBE-SEP-") for chain in stage.loader.tables[Family.IPV4]["nat"])

    async def test(stage: Stage) -> None:
        for thing in (*large(1002), other := replace(ECHO, name="other")):
            stage.store.apply(thing)
        stage.store.apply(slice_of(other, A, endpoint(A, 10)))
        await stage.clock.advance(31)
        assert endpoint_chains(stage) == 1003

        saves = stage.loader.saves
        stage.store.delete(other.key)
        await stage.clock.advance(2)
        assert endpoint_chains(stage) == 1003, "one of them stale"
        await stage.clock.advance(31)
        assert endpoint_chains(stage) == 1003, "nothing has happened since"
        stage.store.apply(large(1001)[0])
        await stage.clock.advance(2)
        assert endpoint_chains(stage) == 1001

        nat = stage.loader.tables[Family.IPV4]["nat"]
        nat["KUBE-SERVICES"].clear()
        await stage.clock.advance(3601)
        assert stage.loader.saves == saves, "nothing was read back, so nothing was written in full"

    staged(test)


def test_a_node_that_moves_to_another_zone_is_written_in_full() -> None:
    async def test(stage: Stage) -> None:
        stage.store.apply(Node(name=HERE, labels={ZONE_LABEL: "green"}, addresses=(A.of("node", 2),)))
        await stage.clock.settle()
        assert (stage.loads, stage.loader.saves) == (2, 1)

    staged(test)


def test_health_follows_what_waits() -> None:
    async def test(stage: Stage) -> None:
        health = stage.engine.health
        assert health.is_healthy(Family.IPV4, stage.clock.now())
        stage.loader.gate.clear()
        await stage.change()
        await stage.clock.advance(59)
        assert health.is_healthy(Family.IPV4, stage.clock.now())
        await stage.clock.advance(2)
        assert not health.is_healthy(Family.IPV4, stage.clock.now())
        stage.loader.gate.set()
        await stage.clock.settle()
        assert health.is_healthy(Family.IPV4, stage.clock.now())

    staged(test)


def test_metrics_bear_kube_proxys_names() -> None:
    async def test(stage: Stage) -> None:
        stage.loader.refuse = "Permission denied"
        await stage.change()
        text = stage.engine.metrics.text({}).decode()
        assert 'kubeproxy_sync_proxy_rules_iptables_restore_failures_total{ip_family="IPv4"} 1.0' in text
        assert "kubeproxy_sync_proxy_rules_service_changes_total 1.0" in text
        assert "kubeproxy_sync_proxy_rules_service_changes_pending 0.0" in text
        assert 'kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family="IPv4"} 1.0' in text
        assert 'kubeproxy_sync_proxy_rules_iptables_last{ip_family="IPv4",table="nat"} 9.0' in text
        assert 'kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"}' in text

    staged(test)


def test_a_pace_of_nothing_never_waits() -> None:
    pace = Pace(0, 5)
    for _ in range(10):
        assert pace.ready_at(5) == 5
        pace.take(5)


def test_a_pace_holds_no_more_than_the_burst() -> None:
    pace = Pace(10, 0)
    for _ in range(2):
        assert pace.ready_at(1000) == 1000
        pace.take(1000)
    assert pace.ready_at(1000) == 1010
    assert pace.ready_at(1004) == pytest.approx(1010)
