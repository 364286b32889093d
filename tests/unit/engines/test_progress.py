"""How engines tell how far they have come, for those who look for what is broken."""

import asyncio
from collections.abc import Callable

from memory_loader import MemoryLoader, engine_with
from rule_cases import HERE, Addresses, echo, endpoint, slice_of

from proxylab.addresses import Family
from proxylab.cluster.objects import Node
from proxylab.cluster.store import Store
from proxylab.engines.barrier import Barrier
from proxylab.engines.embedded.settings import Periods
from proxylab.engines.kubeproxy.engine import KubeProxyEngine, KubeProxyNode
from proxylab.engines.kubeproxy.metrics import SyncState
from proxylab.evidence.engine_progress import Progress
from proxylab.kernel.sandbox.running import Running
from proxylab.timing import Deadline

A = Addresses(Family.IPV4)


def soon() -> Deadline:
    return Deadline.after(0.2)


def seeded() -> Store:
    store = Store()
    for thing in (Node(name=HERE, addresses=(A.of("node", 2),)), echo(A), slice_of(echo(A), A, endpoint(A, 10))):
        store.apply(thing)
    return store


def test_the_embedded_engine_tells_what_its_rules_reflect() -> None:
    async def story() -> None:
        store, loader = seeded(), MemoryLoader()
        engine = engine_with(store, loader, Periods(least=0))
        await engine.start()
        assert await engine.progress(soon()) == Progress(runs=True, reflects=3, due=3)
        loader.refuse = "KUBE-SVC"
        store.apply(slice_of(echo(A), A, endpoint(A, 10), endpoint(A, 11)))
        behind = await engine.progress(soon())
        assert (behind.runs, behind.reflects, behind.due) == (True, 3, 4)
        assert "iptables-restore: line" in behind.trouble
        await engine.stop()
        assert not (await engine.progress(soon())).runs

    asyncio.run(story())


class Process:
    """A kube-proxy that has said what it said, and goes on until it is ended."""

    has_ended = False

    @property
    async def status(self) -> int:
        return -9


def kube_proxy(store: Store, process: Process, reached: Callable[[], int]) -> KubeProxyEngine:
    async def nothing() -> None:
        return None

    async def launch(heard: Callable[[str], None]) -> Running:
        for line in ("I1122 06:00:00 fine", "E1122 06:00:01 could not load", "I1122 06:00:02 again"):
            heard(line)
        return process  # type: ignore[return-value]  # all that is asked of it

    async def state() -> SyncState:
        return SyncState()

    async def agrees() -> bool:
        return True

    async def dump() -> str:
        return ""

    node_of_proxy = KubeProxyNode(
        prepare=nothing,
        launch=launch,
        reached=lambda _family: reached(),
        state=state,
        zone=lambda: "",
        move=lambda _zone: None,
        serves=lambda: False,
        agrees=agrees,
        dump=dump,
    )
    return KubeProxyEngine(HERE, Barrier(store, (Family.IPV4,)), (Family.IPV4,), node_of_proxy)


def test_a_kube_proxy_tells_by_the_barrier_in_its_rules() -> None:
    async def story() -> None:
        store, process, programmed = seeded(), Process(), [1]
        engine = kube_proxy(store, process, lambda: programmed[0])
        await engine.start()
        assert await engine.progress(soon()) == Progress(runs=True, reflects=3, due=3), "and it need not be asked again"
        due = store.apply(slice_of(echo(A), A, endpoint(A, 10), endpoint(A, 11)))
        behind = await engine.progress(soon())
        assert behind == Progress(runs=True, reflects=3, due=due, trouble="E1122 06:00:01 could not load")
        programmed[0] = 2
        assert await engine.progress(soon()) == Progress(runs=True, reflects=due, due=due)
        programmed[0] = 0
        assert (await engine.progress(soon())).reflects is None, "its rules are gone"
        process.has_ended = True
        dead = await engine.progress(soon())
        assert (dead.runs, dead.trouble) == (False, "kube-proxy was killed by signal 9")

    asyncio.run(story())
