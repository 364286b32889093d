"""What is waited for before a kube-proxy has taken up a change, by one that does what the test says."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from proxylab.addresses import Family
from proxylab.cluster.objects import Service
from proxylab.cluster.store import Store
from proxylab.engines.barrier import Barrier, highest_number_in
from proxylab.engines.embedded.settings import Periods
from proxylab.engines.kubeproxy.engine import KubeProxyEngine, KubeProxyNode
from proxylab.engines.kubeproxy.metrics import SyncState, read_metrics, says_of_node
from proxylab.errors import EngineError
from proxylab.kernel.sandbox.running import Running
from proxylab.timing import Deadline, wait_until

PAGE = b"""\
# TYPE kubeproxy_sync_full_proxy_rules_duration_seconds histogram
kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family="IPv4"} 2
kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family="IPv6"} 1
kubeproxy_sync_proxy_rules_iptables_restore_failures_total{ip_family="IPv4"} 3
kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family="IPv6"} 4
"""


PERIODS = Periods(least=0.03)


class Alive:
    """A process that goes on."""

    has_ended = False


@dataclass
class Proxy:
    """A kube-proxy of one family, and what its node and its metrics show."""

    store: Store
    barrier: Barrier
    programmed: int = 0
    full: int = 1
    failures: int = 0
    zone: str | None = ""
    knows_networks: bool = True
    agrees: bool = True
    serves: bool = False
    one_by_one: bool = False
    moved: list[str] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)
    asked: int = 0
    shows_ends: bool = False
    periods: Periods = PERIODS
    say: Callable[[str], None] = lambda _line: None

    def engine(self) -> KubeProxyEngine:
        async def nothing() -> None:
            return None

        async def launch(heard: Callable[[str], None]) -> Running:
            self.say = heard
            return Alive()  # type: ignore[return-value]  # all that is asked of it

        async def state() -> SyncState:
            self.asked += 1
            return SyncState(self.failures, {"IPv4": self.full})

        async def agrees() -> bool:
            return self.agrees

        async def dump() -> str:
            return ""

        node_of_proxy = KubeProxyNode(
            prepare=nothing,
            launch=launch,
            reached=lambda _family: self.programmed,
            state=state,
            zone=lambda: self.zone,
            move=self.moved.append,
            serves=lambda: self.serves,
            agrees=agrees,
            dump=dump,
            one_by_one=self.one_by_one,
            shows_ends=self.shows_ends,
            knows_networks=lambda: self.knows_networks,
            periods=self.periods,
        )
        return KubeProxyEngine("node-a", self.barrier, (Family.IPV4,), node_of_proxy)

    @property
    def wanted(self) -> int:
        """The barrier's number in the store."""
        (service,) = self.store.list(Service)
        return int(service.ports[0].name[1:])


def tell(
    story: Callable[[Proxy, KubeProxyEngine], Awaitable[None]],
    *,
    one_by_one: bool = False,
    shows_ends: bool = False,
    periods: Periods = PERIODS,
) -> None:
    async def main() -> None:
        store = Store()
        barrier = Barrier(store, (Family.IPV4,))
        proxy = Proxy(store, barrier, one_by_one=one_by_one, shows_ends=shows_ends, periods=periods)
        engine = proxy.engine()
        await engine.start()
        await story(proxy, engine)

    asyncio.run(main())


async def follow(proxy: Proxy) -> None:
    """Program whatever the store holds, as soon as it does."""
    while True:
        proxy.programmed = proxy.wanted
        await asyncio.sleep(0)


async def is_waiting(task: "asyncio.Task[None]") -> bool:
    for _ in range(50):
        await asyncio.sleep(0.001)
    return not task.done()


def synced(engine: KubeProxyEngine, proxy: Proxy, seconds: float = 5) -> "asyncio.Task[None]":
    return asyncio.create_task(engine.wait_synced(proxy.store.revision, Deadline.after(seconds)))


def test_one_that_goes_from_a_name_to_the_next_but_one_has_caught_up_with_the_first() -> None:
    async def story(proxy: Proxy, engine: KubeProxyEngine) -> None:
        waiting = synced(engine, proxy)
        assert await is_waiting(waiting)
        proxy.barrier.advance_anyway()  # since another node's proxy was quicker
        proxy.programmed = proxy.barrier.advance_anyway()
        await waiting

    tell(story)


def test_the_first_synchronisation_must_be_over_where_it_opens_ports() -> None:
    async def story(proxy: Proxy, engine: KubeProxyEngine) -> None:
        proxy.serves = True
        proxy.programmed = 2
        waiting = synced(engine, proxy)
        assert await is_waiting(waiting), "rules stand, and ports are opened behind them"
        proxy.programmed = proxy.wanted
        await waiting

    tell(story)


def test_the_first_synchronisation_must_be_over_where_it_writes_one_service_after_the_other() -> None:
    async def story(proxy: Proxy, engine: KubeProxyEngine) -> None:
        proxy.programmed = 2
        waiting = synced(engine, proxy)
        assert await is_waiting(waiting), "the barrier's rules stand, and those of another Service may come after them"
        proxy.programmed = proxy.wanted
        await waiting

    tell(story, one_by_one=True)


def test_a_zone_that_it_may_have_missed_at_its_start_is_given_once_more() -> None:
    async def story(proxy: Proxy, engine: KubeProxyEngine) -> None:
        following = asyncio.create_task(follow(proxy))
        proxy.zone = "zone-a"
        waiting = synced(engine, proxy)
        assert await is_waiting(waiting)
        assert proxy.moved == [""]
        proxy.full += 1
        assert await is_waiting(waiting)
        assert proxy.moved == ["", "zone-a"]
        proxy.full += 1
        await waiting
        await synced(engine, proxy)
        assert proxy.moved == ["", "zone-a"], "which is done at its start, and at no other time"
        following.cancel()

    tell(story)


def test_one_that_has_not_read_the_service_networks_by_its_first_synchronisation_makes_a_full_one() -> None:
    async def story(proxy: Proxy, engine: KubeProxyEngine) -> None:
        following = asyncio.create_task(follow(proxy))
        proxy.knows_networks = False
        waiting = synced(engine, proxy)
        for count in range(1, 5):
            await wait_until(lambda: len(proxy.moved) == count, Deadline.after(5), "a change of the zone")  # noqa: B023
            assert await is_waiting(waiting), "the full sync has not come, or did not know them either"
            proxy.knows_networks = count == 4
            proxy.full += 1
        await waiting
        other, last, *_ = proxy.moved
        assert other, "a zone that it did not have"
        assert not last, "the node has no zone at the end, as before"
        proxy.knows_networks = False
        await synced(engine, proxy)
        assert len(proxy.moved) == 4, "which is done at its start, and at no other time"
        following.cancel()

    tell(story)


def test_after_the_first_time_the_synchronisation_must_be_over_too() -> None:
    async def story(proxy: Proxy, engine: KubeProxyEngine) -> None:
        proxy.programmed = 2
        await synced(engine, proxy)
        before = proxy.wanted
        waiting = synced(engine, proxy)
        await wait_until(lambda: proxy.wanted == before + 1, Deadline.after(5), "the first number")
        proxy.programmed = before + 1
        assert await is_waiting(waiting)
        assert proxy.wanted == before + 2
        proxy.programmed = before + 2
        await waiting

    tell(story)


@pytest.mark.parametrize("noted", ["a flush", "a node in another zone"])
def test_some_changes_are_taken_up_by_a_full_synchronisation_only(noted: str) -> None:
    async def story(proxy: Proxy, engine: KubeProxyEngine) -> None:
        following = asyncio.create_task(follow(proxy))
        await synced(engine, proxy)
        await engine.note(flush=noted == "a flush")
        proxy.zone = "" if noted == "a flush" else "zone-b"
        proxy.failures += 1  # to load a part into tables that are not there
        waiting = synced(engine, proxy)
        assert await is_waiting(waiting)
        proxy.full += 1
        await waiting
        await synced(engine, proxy)
        following.cancel()

    tell(story)


def test_one_that_tells_of_no_error_is_asked_for_none() -> None:
    async def story(proxy: Proxy, engine: KubeProxyEngine) -> None:
        following = asyncio.create_task(follow(proxy))
        for _ in range(3):
            proxy.say('I1122 10:00:00.000000 1 proxier.go:1] "SyncProxyRules complete"')
            await synced(engine, proxy)
        assert proxy.asked == 0
        following.cancel()

    tell(story)


def test_only_a_failure_since_it_is_waited_for_is_one_to_load_these_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxylab.engines.kubeproxy.engine._ASK_SECONDS", 0.001)

    async def story(proxy: Proxy, engine: KubeProxyEngine) -> None:
        proxy.failures = 1
        proxy.say('E1122 10:00:00.000000 1 proxier.go:1] "Failed to execute iptables-restore"')
        waiting = synced(engine, proxy)
        assert await is_waiting(waiting), "that was before"
        proxy.failures = 2
        with pytest.raises(EngineError, match="could not load its rules"):
            await waiting

    tell(story)


@pytest.mark.parametrize("zone", ["", None], ids=["other labels", "no Node"])
def test_of_a_nodes_labels_only_its_zone_matters(zone: str | None) -> None:
    async def story(proxy: Proxy, engine: KubeProxyEngine) -> None:
        following = asyncio.create_task(follow(proxy))
        await synced(engine, proxy)
        await engine.note(flush=False)
        proxy.zone = zone
        await synced(engine, proxy)
        following.cancel()

    tell(story)


def test_a_node_that_is_about_to_go_must_show_in_the_proxys_health() -> None:
    async def story(proxy: Proxy, engine: KubeProxyEngine) -> None:
        following = asyncio.create_task(follow(proxy))
        await synced(engine, proxy)
        await engine.note(flush=False)
        proxy.agrees = False
        waiting = synced(engine, proxy)
        assert await is_waiting(waiting)
        proxy.agrees = True
        await waiting
        proxy.agrees = False  # which is asked after Nodes have changed, and at no other time
        await synced(engine, proxy)
        await engine.note(flush=False)
        with pytest.raises(EngineError, match="gave up waiting: kube-proxy's /healthz to agree with the API"):
            await synced(engine, proxy, 0.02)
        following.cancel()

    tell(story)


@pytest.mark.parametrize(
    ("page", "says"),
    [
        (b'{"lastUpdated": "now","currentTime": "now", "nodeEligible": false}', False),
        (b'{"nodeEligible": true, "healthy": false}', True),
        (b'{"lastUpdated": "now"}', None),
        (b"no JSON", None),
        (b"[1]", None),
    ],
)
def test_health_says_whether_a_node_is_about_to_go_in_versions_that_know(page: bytes, says: bool | None) -> None:
    assert says_of_node(page) is says


def test_a_full_synchronisation_that_does_not_come_is_told() -> None:
    async def story(proxy: Proxy, engine: KubeProxyEngine) -> None:
        await engine.note(flush=True)
        with pytest.raises(EngineError, match="gave up waiting: a full sync of kube-proxy"):
            await synced(engine, proxy, 0.02)

    tell(story)


def test_metrics_are_told_apart_by_family() -> None:
    state = read_metrics(PAGE)
    assert (state.failures, dict(state.full)) == (7, {"IPv4": 2, "IPv6": 1})


@pytest.mark.parametrize(
    ("before", "now", "is_full"),
    [
        ({"IPv4": 1, "IPv6": 1}, {"IPv4": 2, "IPv6": 2}, True),
        ({"IPv4": 1, "IPv6": 1}, {"IPv4": 3, "IPv6": 1}, False),
        ({"": 2}, {"": 3}, False),
        ({"": 2}, {"": 4}, True),
    ],
)
def test_every_family_must_have_been_synchronised(before: dict[str, int], now: dict[str, int], is_full: bool) -> None:
    assert SyncState(full=now).is_full_since(SyncState(full=before), 2) is is_full


@pytest.mark.parametrize(
    ("rules", "number"),
    [
        ([b"\1\2/* proxylab/barrier:b000012 cluster IP */", b"proxylab/barrier:b000011"], 12),
        (
            [b"service-ABC234-proxylab/barrier/tcp/b000003", b"endpoint-XYZ-proxylab/barrier/tcp/b000004__192.0.0.9/1"],
            4,
        ),
        ([b"service-ABC234-default/echo/tcp/http"], 0),
    ],
)
def test_the_highest_number_is_what_rules_have_reached(rules: list[bytes], number: int) -> None:
    assert highest_number_in(rules) == number


def test_no_second_name_is_awaited_where_the_first_shows_the_end_of_a_sync() -> None:
    async def story(proxy: Proxy, engine: KubeProxyEngine) -> None:
        proxy.serves = True
        following = asyncio.create_task(follow(proxy))
        for _ in range(2):
            before = proxy.wanted
            await synced(engine, proxy)
            assert proxy.wanted <= before + 1
        following.cancel()

    tell(story, shows_ends=True)


def test_flushed_rules_are_back_where_a_later_sync_is_over_if_every_sync_is_full() -> None:
    async def story(proxy: Proxy, engine: KubeProxyEngine) -> None:
        proxy.programmed = proxy.wanted
        await engine.note(flush=True)
        waiting = synced(engine, proxy)
        assert await is_waiting(waiting), "the log knows the name from before the flush"
        proxy.programmed = proxy.wanted
        await waiting

    tell(story, shows_ends=True)


BEGINS = 'I1122 10:00:00.000000 1 proxier.go:655] "Syncing {} rules" ipFamily="IPv4"'
ENDS = 'I1122 10:00:00.000000 1 proxier.go:649] "SyncProxyRules complete" ipFamily="IPv4"'


@pytest.mark.parametrize("rules", ["iptables", "nftables", "ipvs proxier"])
def test_it_rests_when_the_sync_under_way_is_over(rules: str) -> None:
    async def story(proxy: Proxy, engine: KubeProxyEngine) -> None:
        proxy.say(BEGINS.format(rules))
        resting = asyncio.create_task(engine.rest())
        assert await is_waiting(resting), "its load clears the counters of rules"
        proxy.say(ENDS.replace("S", "s", 1) if "ipvs" in rules else ENDS)
        await resting

    tell(story)


def test_it_rests_when_the_next_sync_would_have_come() -> None:
    async def story(proxy: Proxy, engine: KubeProxyEngine) -> None:
        for line in (BEGINS.format("iptables"), ENDS):
            proxy.say(line)
        ended = time.monotonic()
        await engine.rest()
        assert proxy.periods.least < time.monotonic() - ended < proxy.periods.full / 2

    tell(story)


def test_it_has_no_rest_shortly_before_its_periodic_sync() -> None:
    async def story(proxy: Proxy, engine: KubeProxyEngine) -> None:
        for line in (BEGINS.format("ipvs proxier"), ENDS):
            proxy.say(line)
        began = time.monotonic()
        await wait_until(lambda: time.monotonic() > began + 0.35, Deadline.after(5), "the last part of the period")
        await engine.rest()
        assert time.monotonic() - began > proxy.periods.full

    tell(story, periods=Periods(least=0.03, full=0.4))


def test_one_that_syncs_on_and_on_holds_no_probe_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxylab.engines.kubeproxy.engine._REST_SECONDS", 0.05)

    async def story(proxy: Proxy, engine: KubeProxyEngine) -> None:
        proxy.say(BEGINS.format("iptables"))
        await asyncio.wait_for(engine.rest(), 5)

    tell(story)
