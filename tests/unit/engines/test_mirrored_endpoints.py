"""Endpoints for kube-proxy in mode userspace, and how its log shows that it has them."""

from msgspec.structs import replace
from rule_cases import Addresses, echo, endpoint, slice_of

from proxylab.addresses import Family
from proxylab.cluster.objects import HEADLESS_LABEL, Endpoints, ObjectKey
from proxylab.cluster.store import Event, Store
from proxylab.engines.barrier import Barrier, is_barrier

A = Addresses(Family.IPV4)
SERVICE = echo(A)
KEY = ObjectKey("Endpoints", "default", "echo")


def subsets(store: Store) -> list[tuple[list[str], list[int]]]:
    found = store.get(KEY)
    assert isinstance(found, Endpoints)
    return [([str(each) for each in addresses], [port.port for port in ports]) for addresses, ports in found.subsets]


def test_they_have_the_ready_endpoints_of_all_slices_of_the_first_family() -> None:
    store = Store()
    barrier = Barrier(store, (Family.IPV4, Family.IPV6), mirror=True)
    first = slice_of(SERVICE, A, endpoint(A, 10), endpoint(A, 11, ready=False))
    store.apply(first)
    six = Addresses(Family.IPV6)
    store.apply(slice_of(echo(six, name="other"), six, endpoint(six, 9)))
    barrier.advance_anyway()
    assert subsets(store) == [(["10.42.0.10"], [8080])]
    assert store.get(ObjectKey("Endpoints", "default", "other")) is None
    store.delete(first.key)
    barrier.advance_anyway()
    assert store.get(KEY) is None


def test_they_have_no_endpoint_of_a_headless_slice() -> None:
    store = Store()
    barrier = Barrier(store, (Family.IPV4,), mirror=True)
    store.apply(replace(slice_of(SERVICE, A, endpoint(A, 10)), labels={HEADLESS_LABEL: ""}))
    barrier.advance_anyway()
    assert store.get(KEY) is None


def test_those_of_the_barrier_change_last() -> None:
    store, seen = Store(), list[Event]()
    barrier = Barrier(store, (Family.IPV4,), mirror=True)
    store.subscribe(seen.append)
    for name in ("aaa", "zzz"):
        store.apply(slice_of(echo(A, name=name), A, endpoint(A, 10)))
    barrier.advance_anyway()
    assert [is_barrier(each.object) for each in seen if isinstance(each.object, Endpoints)] == [False, False, True]


def test_other_proxies_get_none() -> None:
    store = Store()
    Barrier(store, (Family.IPV4,)).advance_anyway()
    assert store.list(Endpoints) == ()


def test_an_address_of_two_slices_stands_once_for_each_port() -> None:
    store = Store()
    barrier = Barrier(store, (Family.IPV4,), mirror=True)
    first = slice_of(SERVICE, A, endpoint(A, 11), endpoint(A, 10))
    other_port = replace(first.ports[0], name="other", port=9090)
    store.apply(first)
    store.apply(replace(first, name="second", endpoints=(endpoint(A, 10), endpoint(A, 12))))
    store.apply(replace(first, name="third", ports=(other_port,)))
    barrier.advance_anyway()
    assert subsets(store) == [
        (["10.42.0.10", "10.42.0.11", "10.42.0.12"], [8080]),
        (["10.42.0.10", "10.42.0.11"], [9090]),
    ]
    store.apply(
        replace(first, name="third", ports=(other_port,), endpoints=(endpoint(A, 10), endpoint(A, 11), endpoint(A, 12)))
    )
    barrier.advance_anyway()
    assert subsets(store) == [(["10.42.0.10", "10.42.0.11", "10.42.0.12"], [8080, 9090])]
