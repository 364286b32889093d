"""The lab's store while the controllers of a real API make their slices; the API does what a test says."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from ipaddress import ip_address, ip_network

import pytest
from msgspec.structs import replace

from proxylab.addresses import Family
from proxylab.cluster.documents import Document, document_of
from proxylab.cluster.objects import (
    Endpoint,
    EndpointPort,
    EndpointSlice,
    KubeObject,
    Node,
    ObjectKey,
    Service,
    ServicePort,
)
from proxylab.cluster.store import Store
from proxylab.control.kubernetes.documents import SERVICES, SLICES
from proxylab.control.kubernetes.mirror import Mirror
from proxylab.timing import Deadline, wait_until

SINCE = "2026-01-01T00:00:00Z"
FAMILIES = (Family.IPV4, Family.IPV6)
POD = {Family.IPV4: ip_address("10.244.0.10"), Family.IPV6: ip_address("fd00:10:244::a")}
ECHO = Service(
    namespace="default",
    name="echo",
    selector={"app": "echo"},
    ports=(ServicePort(name="", port=80, target_port=8080),),
    cluster_ips=(ip_address("10.96.0.10"), ip_address("fd00:10:96::a")),
    ip_families=FAMILIES,
    ip_family_policy="RequireDualStack",
)


def slice_named(name: str, family: Family) -> EndpointSlice:
    return EndpointSlice(
        namespace="default",
        name=name,
        service="echo",
        address_type=family,
        ports=(EndpointPort(name="", port=8080),),
        endpoints=(Endpoint(addresses=(POD[family],)),),
    )


class Api:
    """An API that lists the Service, and shows changes of slices as ``say`` gives them."""

    def __init__(self) -> None:
        self._changes: defaultdict[str, asyncio.Queue[Document]] = defaultdict(asyncio.Queue)

    async def request(self, method: str, path: str) -> Document:
        assert method == "GET"
        return {
            "metadata": {"resourceVersion": "1"},
            "items": [document_of(ECHO, 1, SINCE)] if path == SERVICES else [],
        }

    async def watch(self, path: str, version: str) -> AsyncIterator[Document]:
        del version
        while True:
            yield await self._changes[path].get()

    def say(self, path: str, change: str, thing: KubeObject) -> None:
        self._changes[path].put_nowait({"type": change, "object": document_of(thing, 1, SINCE)})


def store_of_the_lab() -> Store:
    store = Store()
    for thing in (ECHO, *(slice_named(f"echo-{family.lower()}", family) for family in FAMILIES)):
        store.apply(thing)
    return store


class Proxies:
    """What becomes of the proxies of nodes, and whether the store has the node then."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.told: list[tuple[str, str, bool]] = []

    async def start(self, node: str, /) -> None:
        self._tell("start", node)

    async def stop(self, node: str, /) -> None:
        self._tell("stop", node)

    def _tell(self, what: str, node: str) -> None:
        self.told.append((what, node, self._store.get(ObjectKey("Node", "", node)) is not None))


def mirror_of(api: Api, store: Store, machines: Sequence[Node] = (), proxies: Proxies | None = None) -> Mirror:
    by_name = {each.name: each for each in machines}
    return Mirror(api, store, lambda _thing: False, by_name, proxies or Proxies(store))  # type: ignore[arg-type]  # all that is asked of a client


def names(store: Store) -> list[str]:
    return sorted(each.name for each in store.list(EndpointSlice))


async def shown(store: Store, key: ObjectKey) -> None:
    await wait_until(lambda: store.get(key) is not None, Deadline.after(5), f"{key} in the store")


@pytest.mark.parametrize("order", [FAMILIES, FAMILIES[::-1]], ids=["IPv4 first", "IPv6 first"])
def test_a_service_serves_both_families_while_the_controllers_make_one_after_the_other(order: Sequence[Family]) -> None:
    first, second = order

    async def story() -> None:
        api, store = Api(), store_of_the_lab()
        mirror = mirror_of(api, store)
        await mirror.start()
        settling = asyncio.create_task(mirror.settle())
        assert names(store) == ["echo-ipv4", "echo-ipv6"]
        api.say(SLICES, "ADDED", made := slice_named("echo-4hx2p", first))
        await shown(store, made.key)
        assert names(store) == ["echo-4hx2p", f"echo-{second.lower()}"]
        assert not settling.done()
        api.say(SLICES, "ADDED", made := slice_named("echo-zz9qk", second))
        await shown(store, made.key)
        await settling
        assert names(store) == ["echo-4hx2p", "echo-zz9qk"]
        await mirror.stop()

    asyncio.run(story())


def test_a_service_that_goes_takes_along_what_the_lab_worked_out_for_it() -> None:
    async def story() -> None:
        api, store = Api(), store_of_the_lab()
        mirror = mirror_of(api, store)
        await mirror.start()
        api.say(SERVICES, "DELETED", ECHO)
        await mirror.settle()
        assert not names(store)
        await mirror.stop()

    asyncio.run(story())


def test_the_proxy_of_a_node_runs_as_long_as_the_api_has_the_node() -> None:
    """It starts once the store has its node, and has stopped before the store has it no more."""
    path = "/api/v1/nodes"
    spare = Node(name="node-c", addresses=(ip_address("172.18.0.4"),), pod_cidrs=(ip_network("10.244.2.0/24"),))
    seen = replace(spare, addresses=(), pod_cidrs=(), labels={"zone": "c"})  # as kubectl makes it

    async def story() -> None:
        api, store = Api(), store_of_the_lab()
        proxies = Proxies(store)
        mirror = mirror_of(api, store, [spare], proxies)
        await mirror.start()
        api.say(path, "ADDED", Node(name="stranger"))
        api.say(path, "ADDED", seen)
        await shown(store, spare.key)
        assert store.get(spare.key) == replace(spare, labels={"zone": "c"})
        api.say(path, "MODIFIED", replace(seen, labels={"zone": "d"}))
        api.say(path, "DELETED", seen)
        await wait_until(lambda: store.get(spare.key) is None, Deadline.after(5), "the node to go")
        assert proxies.told == [("start", "node-c", True), ("stop", "node-c", True)]
        assert store.get(ObjectKey("Node", "", "stranger")) is None, "it has no machine here"
        await mirror.stop()

    asyncio.run(story())
