"""One watch: how far a client has come, and the lines that it gets next.

Theory of operation. A watch keeps only the revision of the last event sent, and reads newer events from the store's
history when its client is ready. So a slow client costs no memory. A client that falls behind the history gets 410
(Expired) and lists again, as with an API server.

An object that begins to match the selectors is ADDED for this client, and one that stops matching is DELETED, whatever
happened to it in the store (apiserver's storage/cacher/cache_watcher.go).
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from msgspec.json import encode

from proxylab.cluster.documents import Document
from proxylab.cluster.objects import KubeObject
from proxylab.cluster.store import CompactedError, Event, EventType, Store
from proxylab.control.kubeapi.encoder import Encoder
from proxylab.control.kubeapi.refusal import Refusal
from proxylab.control.kubeapi.request import CollectionWatch
from proxylab.control.kubeapi.resources import Resource

_INITIAL_EVENTS_END = "k8s.io/initial-events-end"

AsTable = Callable[[KubeObject, int], bytes]
"""The table of an object at a revision."""


class OpenWatch:
    """A watch under way.

    Attributes:
        ended: the watch is over, and the client must list again.

    Raises:
        Refusal: the first revision is too old for the history, or newer than the store.
    """

    def __init__(self, watch: CollectionWatch, store: Store, encoder: Encoder, as_table: AsTable | None = None) -> None:
        self._watch = watch
        self._as_table = as_table
        self._store = store
        self._encoder = encoder
        self.ended = self._is_last = self._is_expired = False
        wanted = watch.revision or 0
        if wanted > store.revision:
            raise Refusal.too_new(wanted, store.revision)
        self._sent = store.revision
        self._initial: deque[tuple[KubeObject, int]] = deque()
        self._announce = watch.announce
        if watch.initial:
            # Reads all revisions now: objects may change before the client takes the last line.
            things = filter(watch.collection.holds, store.list(watch.collection.resource.cls))
            self._initial.extend((thing, store.revision_of(thing.key)) for thing in things)
        elif watch.revision is not None:
            self._sent = watch.revision
            try:
                store.events_since(self._sent)
            except CompactedError:
                raise Refusal.expired(self._sent) from None

    def finish(self) -> None:
        """Let the next lines be the last, with a bookmark for the client's next watch, if it wants any."""
        self._is_last = True

    def expire(self) -> None:
        """Let the next line be the last: 410, as if the history no longer reached back to what the client knows."""
        self._is_expired = True

    def new_lines(self, size: int) -> bytes:
        """The next lines, of ``size`` bytes or little more; empty where the client knows everything."""
        piece = bytearray()
        for line in self._new_lines():
            piece += line
            if len(piece) >= size:
                break
        return bytes(piece)

    def _new_lines(self) -> Iterator[bytes]:
        """A line for each event that the client does not know; it knows those of the lines that are taken."""
        if self.ended:
            return
        while self._initial:
            thing, revision = self._initial.popleft()
            yield _line("ADDED", self._object(thing, revision, self._encoder.known))
        if self._announce:
            self._announce = False
            yield self._bookmark(initial_end=True)
        events = self._events()
        if events is None:
            self.ended = True
            yield _line("ERROR", encode(Refusal.expired(self._sent).status))
            return
        for event in events:
            self._sent = event.revision
            make = partial(self._line_of, event)
            # All watches of one form get the same line, but for ages in tables.
            form = (*self._watch.collection.form, event.revision)
            if line := make() if self._as_table is not None else self._encoder.once(form, make):
                yield line
        if self._is_last:
            self.ended = True
            if self._watch.bookmarks:
                yield self._bookmark()

    def _events(self) -> tuple[Event, ...] | None:
        """The events that the client does not know; ``None`` where the history does not have them all."""
        if self._is_expired:
            return None
        try:
            return self._store.events_since(self._sent)
        except CompactedError:
            return None

    def _bookmark(self, *, initial_end: bool = False) -> bytes:
        """The revision of the last event sent, without an object."""
        resource = self._watch.collection.resource
        metadata: Document = {"resourceVersion": str(self._sent), "creationTimestamp": None}
        if initial_end:
            metadata["annotations"] = {_INITIAL_EVENTS_END: "true"}
        document = {"kind": resource.kind, "apiVersion": resource.group_version, "metadata": metadata}
        return _line("BOOKMARK", encode(document))

    def _line_of(self, event: Event) -> bytes:
        """The line of an event; empty where it does not concern the client."""
        holds = self._watch.collection.holds
        after = None if event.type is EventType.DELETED else event.object
        before = event.object if after is None else event.previous
        was_held = before is not None and holds(before)
        if after is not None and holds(after):
            kind = "MODIFIED" if was_held else "ADDED"
            return _line(kind, self._object(after, event.revision, self._encoder.document))
        if before is not None and was_held:
            return _line("DELETED", self._object(before, event.revision, self._encoder.document))
        return b""

    def _object(self, thing: KubeObject, revision: int, written: Callable[[Resource, KubeObject, int], bytes]) -> bytes:
        if self._as_table is not None:
            return self._as_table(thing, revision)
        return written(self._watch.collection.resource, thing, revision)


def _line(kind: str, document: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), document)
