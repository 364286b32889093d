"""Objects as JSON, each state of each written once.

Owns: ``Encoder``.
Must not: choose objects.

One change of one Service goes to every node's proxy, and to each of them in the same words.
"""

import json
from collections import OrderedDict
from typing import Any, Final

from proxylab.cluster.objects import Key, KubeObject
from proxylab.control.kubeapi.manifest import manifest

__all__ = ["Encoder", "dumped"]

_REMEMBERED: Final = 20_000
"""States: enough for 5,000 Services with their slices, twice."""


def dumped(document: Any) -> bytes:
    """JSON without blanks."""
    return json.dumps(document, separators=(",", ":")).encode()


class Encoder:
    """Writes objects.

    Args:
        since: when the cluster came into being, as RFC 3339 writes a time; the age of every object.
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
        """The document of an object that was last seen like this; ``revision`` is that of its going."""
        return dumped(manifest(thing, revision, self._since))
