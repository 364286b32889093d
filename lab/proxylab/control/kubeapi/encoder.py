"""Encodes the objects of the store as JSON for the API server, once each."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from msgspec.json import encode

from proxylab.cluster.documents import Document, document_of
from proxylab.cluster.objects import KubeObject
from proxylab.control.kubeapi.resources import Resource

_REMEMBERED: Final = 20_000
"""Documents and lines: enough for 5,000 Services with their slices, twice."""


class Encoder:
    """Encodes objects, and remembers what it has made.

    Args:
        since: the creation time of all objects, in the format of RFC 3339.
    """

    def __init__(self, since: str) -> None:
        self._since = since
        self._made: OrderedDict[tuple[object, ...], bytes] = OrderedDict()

    def read(self, resource: Resource, thing: KubeObject, revision: int) -> Document:
        """The document of an object whose last change, which may be its deletion, was at ``revision``."""
        document = document_of(thing, revision, self._since)
        return document if resource.written is None else resource.written(document)

    def document(self, resource: Resource, thing: KubeObject, revision: int) -> bytes:
        """The same, encoded."""
        return encode(self.read(resource, thing, revision))

    def known(self, resource: Resource, thing: KubeObject, revision: int) -> bytes:
        """The same for an object of the store, made once."""
        return self.once(
            (resource.group_version, thing.key, revision), lambda: self.document(resource, thing, revision)
        )

    def once(self, key: tuple[object, ...], make: Callable[[], bytes]) -> bytes:
        """What ``make`` returns, which it does once for each key."""
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = make()
            if len(self._made) > _REMEMBERED:
                self._made.popitem(last=False)
        return made
