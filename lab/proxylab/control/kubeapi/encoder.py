"""Encodes objects as JSON, each revision once: the same document of a changed Service goes to every node's proxy."""

import json
from collections import OrderedDict
from typing import Any, Final

from proxylab.cluster.objects import Key, KubeObject
from proxylab.control.kubeapi.manifest import manifest

__all__ = ["Encoder", "dumped"]

_REMEMBERED: Final = 20_000
"""Documents: enough for 5,000 Services with their slices, twice."""


def dumped(document: Any) -> bytes:
    """JSON without blanks."""
    return json.dumps(document, separators=(",", ":")).encode()


class Encoder:
    """Encodes objects.

    Args:
        since: the creation time of all objects, in the format of RFC 3339.
    """

    def __init__(self, since: str) -> None:
        self._since = since
        self._written: OrderedDict[tuple[Key, int], bytes] = OrderedDict()

    def object(self, thing: KubeObject, revision: int) -> bytes:
        """The document of an object whose last change was at ``revision``."""
        known = self._written.get((thing.key, revision))
        if known is None:
            known = self._written[thing.key, revision] = dumped(manifest(thing, revision, self._since))
            if len(self._written) > _REMEMBERED:
                self._written.popitem(last=False)
        return known

    def last(self, thing: KubeObject, revision: int) -> bytes:
        """The document of a deleted object in its last state; ``revision`` is that of its deletion."""
        return dumped(manifest(thing, revision, self._since))
