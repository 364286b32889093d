"""One watch: what a client has been told, and what it must be told next.

Owns: ``Following``.
Must not: wait, or send; its owner asks it for lines whenever the store has changed.

Theory of operation. A watch keeps nothing but the revision up to which it has told: what is new it reads from the
store's history when its client is ready to take it. So a client that reads slowly costs no memory, and one that falls
behind by more than the history is told so (410, Expired) and lists again, as with an API server.

An object that comes to be selected is ADDED for this client, and one that is no longer selected is DELETED, whatever
happened to it in the store (apiserver's storage/cacher/cache_watcher.go).
"""

from collections.abc import Iterator

from proxylab.cluster.objects import KubeObject
from proxylab.cluster.store import CompactedError, Event, EventType, Store
from proxylab.control.kubeapi.encoder import Encoder, dumped
from proxylab.control.kubeapi.manifest import Document
from proxylab.control.kubeapi.refusal import Refusal
from proxylab.control.kubeapi.request import Watch

__all__ = ["Following"]

_INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Following:
    """A watch under way.

    Args:
        watch: what the client asked for.
        store: the cluster.
        encoder: writes objects.

    Attributes:
        ended: nothing more will come: the client must list again.

    Raises:
        Refusal: the revision to begin with is gone, or has not been reached.
    """

    def __init__(self, watch: Watch, store: Store, encoder: Encoder) -> None:
        self._watch = watch
        self._store = store
        self._encoder = encoder
        self.ended = False
        wanted = watch.revision or 0
        if wanted > store.revision:
            raise Refusal.too_new(wanted, store.revision)
        self._begun = not watch.initial
        self._told = store.revision
        if not watch.initial and watch.revision is not None:
            self._told = watch.revision
            self._check_history()

    def news(self) -> Iterator[bytes]:
        """A line for each thing that the client does not know yet."""
        if self.ended:
            return
        if not self._begun:
            self._begun = True
            yield from self._beginning()
        try:
            events = self._store.events_since(self._told)
        except CompactedError:
            self.ended = True
            yield _line("ERROR", dumped(Refusal.expired(self._told).status))
            return
        for event in events:
            self._told = event.revision
            line = self._tell(event)
            if line is not None:
                yield line

    def bookmark(self, *, initial_end: bool = False) -> bytes:
        """How far the watch has come."""
        resource = self._watch.collection.resource
        metadata: Document = {"resourceVersion": str(self._told), "creationTimestamp": None}
        if initial_end:
            metadata["annotations"] = {_INITIAL_EVENTS_END: "true"}
        document = {"kind": resource.kind, "apiVersion": resource.group_version, "metadata": metadata}
        return _line("BOOKMARK", dumped(document))

    def _beginning(self) -> Iterator[bytes]:
        collection = self._watch.collection
        self._told = self._store.revision
        listed = self._store.list(collection.resource.cls)
        # Revisions are read now: before the last line is taken, objects may have changed.
        held = [(thing, self._store.revision_of(thing.key)) for thing in listed if collection.holds(thing)]
        for thing, revision in held:
            yield _line("ADDED", self._encoder.object(thing, revision))
        if self._watch.announce:
            yield self.bookmark(initial_end=True)

    def _tell(self, event: Event) -> bytes | None:
        holds = self._watch.collection.holds
        is_held = event.type is not EventType.DELETED and holds(event.object)
        before: KubeObject | None = event.object if event.type is EventType.DELETED else event.previous
        was_held = before is not None and holds(before)
        if is_held:
            return _line("MODIFIED" if was_held else "ADDED", self._encoder.object(event.object, event.revision))
        if was_held and before is not None:
            return _line("DELETED", self._encoder.last(before, event.revision))
        return None

    def _check_history(self) -> None:
        try:
            self._store.events_since(self._told)
        except CompactedError:
            raise Refusal.expired(self._told) from None


def _line(kind: str, document: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), document)
