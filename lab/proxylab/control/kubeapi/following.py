"""One watch: how far a client has come, and the lines that it gets next.

Owns ``Following``; its owner takes lines from it whenever the store has changed, and sends them.

Theory of operation. A watch keeps only the revision of the last event sent, and reads newer events from the store's
history when its client is ready. So a slow client costs no memory. A client that falls behind the history gets 410
(Expired) and lists again, as with an API server.

An object that begins to match the selectors is ADDED for this client, and one that stops matching is DELETED, whatever
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
        ended: the watch is over, and the client must list again.

    Raises:
        Refusal: the first revision is too old for the history, or newer than the store.
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
        """A line for each event that the client does not know yet."""
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
            line = self._line_of(event)
            if line is not None:
                yield line

    def bookmark(self, *, initial_end: bool = False) -> bytes:
        """A bookmark with the revision of the last event sent."""
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
        # Reads all revisions now: objects may change before the caller takes the last line.
        held = [(thing, self._store.revision_of(thing.key)) for thing in listed if collection.holds(thing)]
        for thing, revision in held:
            yield _line("ADDED", self._encoder.object(thing, revision))
        if self._watch.announce:
            yield self.bookmark(initial_end=True)

    def _line_of(self, event: Event) -> bytes | None:
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
