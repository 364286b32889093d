"""A Service whose rules the kernel does not take stops no other."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from memory_loader import MemoryLoader, engine_with
from msgspec.structs import replace
from rule_cases import HERE, Addresses, echo, endpoint, slice_of
from virtual_clock import VirtualClock

from proxylab.addresses import Family
from proxylab.cluster.objects import Endpoint, Key, Node
from proxylab.cluster.store import Store
from proxylab.engines.embedded.fault_isolation import MOST_LOADS
from proxylab.engines.embedded.settings import Periods
from proxylab.errors import EngineError

A = Addresses(Family.IPV4)
PERIODS = Periods(least=0, sync=30, full=3600)


def port_of(number: int) -> str:
    """What only the rules of that Service have in them."""
    return f"10.42.0.{number}:8080"


class Stage:
    """A cluster of Services ``s10`` and on, with an endpoint each, and a proxy that has not started."""

    def __init__(self, services: int) -> None:
        self.store, self.loader, self.clock = Store(), MemoryLoader(), VirtualClock()
        self.store.apply(Node(name=HERE, addresses=(A.of("node", 2),)))
        for number in range(10, 10 + services):
            self.serve(number, endpoint(A, number))
        self.engine = engine_with(self.store, self.loader, PERIODS, clock=self.clock)

    def serve(self, number: int, *endpoints: Endpoint) -> None:
        service = echo(A, name=f"s{number}", cluster_ips=(A.of("cluster", number),))
        self.store.apply(service)
        self.store.apply(slice_of(service, A, *endpoints))

    def served(self) -> set[str]:
        rules = self.loader.tables[Family.IPV4]["nat"]
        return {rule.rpartition(" ")[2] for chain in rules.values() for rule in chain if "--to-destination" in rule}

    def said(self, number: int) -> list[str]:
        return [line for line in self.engine.logs() if f"Service default/s{number} " in line]


def staged(services: int, test: Callable[[Stage], Awaitable[None]]) -> None:
    async def scenario() -> None:
        stage = Stage(services)
        try:
            await test(stage)
        finally:
            await stage.engine.stop()

    asyncio.run(asyncio.wait_for(scenario(), timeout=20))


@pytest.mark.parametrize("silently", [False, True], ids=["by name", "silently"])
def test_at_the_start_all_others_are_served(silently: bool) -> None:
    async def test(stage: Stage) -> None:
        stage.loader.never, stage.loader.silently = (port_of(17), port_of(31)), silently
        await stage.engine.start()
        assert stage.served() == {port_of(number) for number in range(10, 50)} - {port_of(17), port_of(31)}
        (line,) = stage.said(17)
        assert "IPv4: Service default/s17 is left out: iptables-restore refused" in line
        assert ("a rule of the table" if silently else "of Service default/s17: -A KUBE-SVC-") in line
        assert len(stage.loader.texts) <= (3 if not silently else 30)

    staged(40, test)


@pytest.mark.parametrize("silently", [False, True], ids=["by name", "silently"])
def test_a_service_keeps_the_rules_it_had_while_others_change(silently: bool) -> None:
    async def test(stage: Stage) -> None:
        await stage.engine.start()
        stage.loader.never, stage.loader.silently = (port_of(99),), silently
        stage.serve(10, endpoint(A, 99))
        stage.serve(11, endpoint(A, 11), endpoint(A, 98))
        await stage.clock.settle()
        assert stage.served() == {port_of(10), port_of(11), port_of(98), port_of(12)}
        (line,) = stage.said(10)
        assert "Service default/s10 keeps the rules it had: iptables-restore refused" in line

        offered = len(stage.loader.texts)
        stage.serve(12, endpoint(A, 97))
        await stage.clock.settle()
        assert port_of(97) in stage.served()
        assert len(stage.loader.texts) == offered + 1, "what was refused is not offered again as it is"

    staged(3, test)


def test_it_is_tried_again_when_it_changes_and_after_a_sync_period() -> None:
    async def test(stage: Stage) -> None:
        stage.loader.never = (port_of(10),)
        await stage.engine.start()
        stage.serve(10, endpoint(A, 20))
        await stage.clock.settle()
        assert stage.served() == {port_of(20), port_of(11)}

        stage.serve(10, endpoint(A, 10))
        await stage.clock.settle()
        stage.loader.never = ()
        await stage.clock.advance(29)
        assert stage.served() == {port_of(20), port_of(11)}
        await stage.clock.advance(2)
        assert stage.served() == {port_of(10), port_of(11)}

    staged(2, test)


def test_a_refused_service_can_be_deleted() -> None:
    async def test(stage: Stage) -> None:
        await stage.engine.start()
        stage.loader.never = (port_of(99),)
        stage.serve(10, endpoint(A, 99))
        await stage.clock.settle()
        stage.store.delete(Key("Service", "default", "s10"))
        await stage.clock.settle()
        assert stage.served() == {port_of(11)}

    staged(2, test)


def test_what_is_no_services_fault_is_the_engines() -> None:
    async def test(stage: Stage) -> None:
        stage.loader.never, stage.loader.silently = ("KUBE-MARK-MASQ - ",), True
        with pytest.raises(EngineError, match="refused a rule of the table, without naming its line"):
            await stage.engine.start()
        assert len(stage.loader.texts) < MOST_LOADS
        assert stage.served() == set()

    staged(20, test)


def test_metrics_count_each_refusal() -> None:
    async def test(stage: Stage) -> None:
        stage.loader.never = (port_of(10), port_of(11))
        await stage.engine.start()
        text = stage.engine.metrics.text({}).decode()
        assert 'kubeproxy_sync_proxy_rules_iptables_restore_failures_total{ip_family="IPv4"} 2.0' in text

    staged(3, test)


def test_two_ports_of_one_name_share_no_fate() -> None:
    """A Service in another namespace is another one."""

    async def test(stage: Stage) -> None:
        stage.loader.never = (f"other/s10 -> {port_of(50)}",)
        there = replace(echo(A, name="s10", cluster_ips=(A.of("cluster", 50),)), namespace="other")
        stage.store.apply(there)
        stage.store.apply(slice_of(there, A, endpoint(A, 50)))
        await stage.engine.start()
        assert stage.served() == {port_of(10)}

    staged(1, test)
