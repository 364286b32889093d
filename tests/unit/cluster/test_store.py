from ipaddress import ip_address

import pytest
from msgspec.structs import replace

from proxylab.cluster.objects import Node, ObjectKey, Service
from proxylab.cluster.store import CompactedError, Event, EventType, Store

ECHO = Service(name="echo")
CHANGED = replace(ECHO, external_ips=(ip_address("198.51.100.9"),))


def test_every_change_gets_the_next_revision() -> None:
    store = Store()
    assert store.revision == 0
    assert [store.apply(ECHO), store.apply(Node(name="node-a")), store.apply(CHANGED)] == [1, 2, 3]
    assert store.delete(ECHO.key) == store.revision == 4


def test_an_apply_that_changes_nothing_is_no_change() -> None:
    store = Store()
    store.apply(ECHO)
    store.apply(Node(name="node-a"))
    assert store.apply(Service(name="echo")) == 1
    assert store.revision == 2
    assert store.events_since(2) == ()


def test_get_list_and_revision_of() -> None:
    store = Store()
    for name in ("b", "a"):
        store.apply(replace(ECHO, name=name))
    store.apply(Node(name="node-a"))
    assert store.get(ObjectKey("Service", "default", "a")) == replace(ECHO, name="a")
    assert store.get(ECHO.key) is None
    assert [item.name for item in store.list(Service)] == ["a", "b"]
    assert store.revision_of(ObjectKey("Node", "", "node-a")) == 3


def test_deleting_what_is_not_there() -> None:
    with pytest.raises(KeyError):
        Store().delete(ECHO.key)


def test_events_tell_the_story_since_a_revision() -> None:
    store = Store()
    store.apply(ECHO)
    store.apply(CHANGED)
    store.delete(ECHO.key)
    assert store.events_since(0) == (
        Event(EventType.ADDED, ECHO, 1),
        Event(EventType.MODIFIED, CHANGED, 2, ECHO),
        Event(EventType.DELETED, CHANGED, 3),
    )
    assert [event.revision for event in store.events_since(2)] == [3]


def test_history_is_bounded_and_says_when_it_is_too_short() -> None:
    store = Store(history=2)
    for number in range(5):
        store.apply(replace(ECHO, name=f"s{number}"))
    assert [event.revision for event in store.events_since(3)] == [4, 5]
    with pytest.raises(CompactedError, match="the history begins after 3"):
        store.events_since(2)


def test_the_future_has_no_events() -> None:
    with pytest.raises(ValueError, match="in the future"):
        Store().events_since(1)


def test_subscribers_hear_of_changes_until_they_leave() -> None:
    store, heard = Store(), []
    leave = store.subscribe(heard.append)
    store.subscribe(lambda event: heard.append(store.get(event.object.key)))
    store.apply(ECHO)
    store.apply(ECHO)
    assert heard == [Event(EventType.ADDED, ECHO, 1), ECHO]
    leave()
    leave()
    store.delete(ECHO.key)
    assert heard[2:] == [None]
