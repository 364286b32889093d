"""``Store``: the objects of the API server, their events, and a bounded history under one revision counter.

As in etcd, one counter numbers every change of any object, an object has the revision of its last change, and an
``apply`` that changes nothing makes no revision (as ``GuaranteedUpdate`` in apiserver's storage/etcd3). Subscribers are
plain callbacks; ``sync`` loops and the API server add their own waiting.
"""

from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import TypeVar

from msgspec import Struct

from proxylab.cluster.objects import KubeObject, ObjectKey

ObjectT = TypeVar("ObjectT", bound=KubeObject)


class EventType(StrEnum):
    """The kinds of change, spelled as the watch API spells them."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Event(Struct, frozen=True):
    """One change. ``object`` is the new state, or the last one before a deletion.

    ``previous`` is the state that a modification replaced: a watch with a selector must know whether it matched.
    """

    type: EventType
    object: KubeObject
    revision: int
    previous: KubeObject | None = None


class CompactedError(LookupError):
    """The history no longer reaches back to that revision: list again and watch from there (HTTP 410, Gone)."""


class Store:
    """Objects by key, the history of their changes, and the callbacks of subscribers.

    Args:
        history: how many events the store keeps; it compacts older ones.
    """

    def __init__(self, history: int = 1000) -> None:
        self._objects: dict[ObjectKey, tuple[KubeObject, int]] = {}
        self._events: deque[Event] = deque(maxlen=history)
        self._subscribers: list[Callable[[Event], None]] = []
        self._revision = 0

    @property
    def revision(self) -> int:
        """The revision of the latest change; 0 before the first."""
        return self._revision

    def apply(self, obj: KubeObject) -> int:
        """Store ``obj`` under its key.

        Returns:
            The revision of this state: a new one, or the old one if nothing changed.
        """
        stored = self._objects.get(obj.key)
        if stored is not None and stored[0] == obj:
            return stored[1]
        return self._commit(EventType.ADDED if stored is None else EventType.MODIFIED, obj)

    def delete(self, key: ObjectKey) -> int:
        """Remove the object under ``key`` and return the revision of its removal. Raises ``KeyError``."""
        last, _ = self._objects[key]
        return self._commit(EventType.DELETED, last)

    def get(self, key: ObjectKey) -> KubeObject | None:
        """The object under ``key``, or ``None``."""
        stored = self._objects.get(key)
        return None if stored is None else stored[0]

    def revision_of(self, key: ObjectKey) -> int:
        """The revision of the object's last change (its ``resourceVersion``). Raises ``KeyError``."""
        return self._objects[key][1]

    def list(self, kind: type[ObjectT]) -> tuple[ObjectT, ...]:
        """Every object of a kind, in the order of their keys."""
        found = [obj for obj, _ in self._objects.values() if isinstance(obj, kind)]
        return tuple(sorted(found, key=lambda obj: obj.key))

    def events_since(self, revision: int) -> tuple[Event, ...]:
        """Every change after ``revision``, oldest first.

        Raises:
            CompactedError: the history no longer has every change after ``revision``.
            ValueError: ``revision`` is in the future.
        """
        if revision > self._revision:
            raise ValueError(f"revision {revision} is in the future: the store is at {self._revision}")
        missed = self._revision - revision
        if missed > len(self._events):
            oldest = self._revision - len(self._events)
            raise CompactedError(f"revision {revision} is compacted away: the history begins after {oldest}")
        return tuple(self._events[at] for at in range(-missed, 0))

    def subscribe(self, callback: Callable[[Event], None]) -> Callable[[], None]:
        """Call ``callback`` with every later change, after the store has it, in the order of subscription.

        A callback must neither raise nor change the store.

        Returns:
            A function that ends the subscription; calling it again does nothing.
        """
        self._subscribers.append(callback)

        def unsubscribe() -> None:
            if callback in self._subscribers:
                self._subscribers.remove(callback)

        return unsubscribe

    def _commit(self, kind: EventType, obj: KubeObject) -> int:
        self._revision += 1
        previous = self._objects[obj.key][0] if kind is EventType.MODIFIED else None
        if kind is EventType.DELETED:
            del self._objects[obj.key]
        else:
            self._objects[obj.key] = (obj, self._revision)
        event = Event(kind, obj, self._revision, previous)
        self._events.append(event)
        for callback in tuple(self._subscribers):
            callback(event)
        return self._revision
