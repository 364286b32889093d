"""The store that proxies follow while a lab has a mutant of objects."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxylab.cluster.objects import KubeObject, Namespace, Node, Service, ServicePort
from proxylab.cluster.store import Event, Store
from proxylab.mutate.objects import ObjectMutation
from proxylab.mutate.shown_store import ShownStore

NODE = Node(name="a", labels={"topology.kubernetes.io/zone": "east"})
SERVICE = Service(
    name="web",
    ports=(ServicePort(name="a", port=80, target_port=80), ServicePort(name="b", port=81, target_port=81)),
    cluster_ips=(ip_address("172.30.0.1"),),
    affinity_timeout=60,
)
NOWHERE = ObjectMutation("Service.ports[last].protocol", "as SCTP or so")
MODIFIED = "later events of Service"


def begun(mutation: ObjectMutation, *things: KubeObject) -> tuple[Store, ShownStore]:
    true = Store()
    shown = ShownStore(true, mutation)
    for each in things:
        true.apply(each)
    shown.seen(true.revision)
    return true, shown


def timeouts(shown: ShownStore) -> list[int | None]:
    return [each.affinity_timeout for each in shown.store.list(Service)]


def test_objects_are_shown_mutated_and_the_true_store_keeps_them() -> None:
    true, shown = begun(
        ObjectMutation("Service.affinityTimeout", "ten times as long"), SERVICE, NODE, Namespace(name="shop")
    )
    assert timeouts(shown) == [600]
    assert shown.store.list(Node) == (NODE,)
    assert shown.store.list(Namespace) == true.list(Namespace)
    assert true.list(Service) == (SERVICE,)


def test_an_object_in_parts_goes_as_a_whole() -> None:
    true, shown = begun(ObjectMutation("Service.affinityTimeout of the last port", "left out"), SERVICE)
    assert timeouts(shown) == [60, None]
    true.apply(replace(SERVICE, ports=SERVICE.ports[:1]))
    assert timeouts(shown) == [60]
    true.delete(SERVICE.key)
    assert shown.store.list(Service) == ()


def test_an_absent_object_is_never_shown() -> None:
    true, shown = begun(ObjectMutation("Service", "absent"), SERVICE, NODE)
    true.apply(replace(SERVICE, affinity_timeout=1))
    true.delete(SERVICE.key)
    assert [each.object for each in shown.store.events_since(0)] == [NODE]


def test_a_withheld_event_never_comes_and_others_do() -> None:
    true, shown = begun(ObjectMutation(MODIFIED, "MODIFIED withheld"), SERVICE, NODE)
    true.apply(replace(SERVICE, affinity_timeout=1))
    true.apply(replace(NODE, deleting=True))
    shown.seen(true.revision)
    true.apply(replace(SERVICE, name="other", affinity_timeout=2))
    assert timeouts(shown) == [2, 60]
    assert shown.store.list(Node)[0].deleting
    true.delete(SERVICE.key)
    assert timeouts(shown) == [2]


def test_a_late_event_comes_with_the_change_after_the_lab_has_waited() -> None:
    true, shown = begun(ObjectMutation(MODIFIED, "MODIFIED late"), SERVICE, NODE)
    true.apply(replace(SERVICE, affinity_timeout=1))
    true.apply(replace(NODE, deleting=True))  # of the same step
    assert timeouts(shown) == [60]
    shown.seen(true.revision)
    assert timeouts(shown) == [60]
    true.apply(replace(SERVICE, affinity_timeout=2))
    assert timeouts(shown) == [1]


@pytest.mark.parametrize(("change", "left"), [("DELETED late", [60]), ("DELETED withheld", [60])])
def test_a_deletion_can_be_hidden(change: str, left: list[int]) -> None:
    true, shown = begun(ObjectMutation(MODIFIED, change), SERVICE)
    true.delete(SERVICE.key)
    shown.seen(true.revision)
    assert timeouts(shown) == left
    true.apply(NODE)
    assert timeouts(shown) == ([] if change.endswith("late") else left)


def test_a_late_event_of_an_object_that_is_gone_does_not_bring_it_back() -> None:
    true, shown = begun(ObjectMutation(MODIFIED, "MODIFIED late"), SERVICE)
    true.apply(replace(SERVICE, affinity_timeout=1))
    true.delete(SERVICE.key)
    shown.seen(true.revision)
    true.apply(NODE)
    assert timeouts(shown) == []


def test_the_lab_waits_for_a_revision_of_the_shown_store() -> None:
    true, shown = begun(ObjectMutation("Service", "absent"), SERVICE, NODE)
    assert true.revision == 2
    assert shown.seen(2) == shown.store.revision == 1


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(1, 3)), max_size=12))
def test_without_a_mutated_field_both_stores_have_the_same_changes(made: list[tuple[bool, int, int]]) -> None:
    true, events = Store(), list[Event]()
    shown = ShownStore(true, NOWHERE)
    shown.store.subscribe(events.append)
    for applied, number, timeout in made:
        thing = replace(SERVICE, name=f"web-{number}", affinity_timeout=timeout)
        if applied:
            true.apply(thing)
        elif true.get(thing.key) is not None:
            true.delete(thing.key)
        shown.seen(true.revision)
    assert tuple(events) == true.events_since(0)
