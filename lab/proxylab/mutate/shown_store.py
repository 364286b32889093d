"""The store that the proxies of a lab follow while it has a mutant of objects: the true one, but for the mutation.

Everything else in a lab follows the true store: name servers, load balancers, Ingress. Revisions of the two stores
differ, so the lab asks for that of this one before it waits for a proxy.
"""

from proxylab.cluster.objects import ObjectKey
from proxylab.cluster.store import Event, EventType, Store
from proxylab.mutate.objects import ObjectMutation, images


class ShownStore:
    """Follows a store, which must be empty. ``store`` is what proxies see; the lab may add objects of its own."""

    def __init__(self, true: Store, mutation: ObjectMutation) -> None:
        self.store = Store()
        self._true = true
        self._mutation = mutation
        self._images: dict[ObjectKey, frozenset[ObjectKey]] = {}
        self._delayed: list[Event] = []
        self._due = 0
        self._has_begun = False
        true.subscribe(self._follow)

    def seen(self, _revision: int) -> int:
        """The revision for which to wait, so that proxies have everything that they are shown.

        Events from now on are later ones; a delayed event comes with the next of them.
        """
        self._has_begun, self._due = True, len(self._delayed)
        return self.store.revision

    def _follow(self, event: Event) -> None:
        due, self._delayed, self._due = self._delayed[: self._due], self._delayed[self._due :], 0
        for each in due:
            if (self._true.get(each.object.key) is None) is (each.type is EventType.DELETED):
                self._show(each)
        if not (self._has_begun and self._mutation.hides(event.type, event.object)):
            self._show(event)
        elif self._mutation.only_delays:
            self._delayed.append(event)

    def _show(self, event: Event) -> None:
        key = event.object.key
        shown = () if event.type is EventType.DELETED else images(event.object, self._mutation)
        for each in shown:
            self.store.apply(each)
        kept = frozenset(each.key for each in shown)
        for gone in sorted(self._images.get(key, frozenset()) - kept):
            self.store.delete(gone)
        self._images[key] = kept
