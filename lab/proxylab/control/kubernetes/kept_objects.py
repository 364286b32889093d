"""The objects of a real API that the lab's store does not mirror, such as workloads: they are asked for when listed.

No proxy reads them, and each change of the store makes all proxies look.
"""

from collections.abc import Collection, Sequence
from http import HTTPStatus
from typing import Final, NamedTuple

from proxylab.cluster.kinds import KEPT_KINDS, KeptKind
from proxylab.cluster.objects import Unstructured
from proxylab.control.kubernetes.api_client import ApiClient, ApiRefusedError
from proxylab.control.kubernetes.documents import kept_of
from proxylab.timing import together

_MIRRORED: Final = ("Ingress", "IngressClass")


class KeptNow(NamedTuple):
    """An object as it is now, and its revision."""

    thing: Unstructured
    revision: int


class KeptObjects:
    """The objects of one API that its lab's store does not mirror, except kinds that are the lab's ``own``."""

    def __init__(self, api: ApiClient, own: Collection[str]) -> None:
        self._api = api
        self._kinds = [each for name, each in KEPT_KINDS.items() if name not in (*_MIRRORED, *own)]

    def has(self, kind: str) -> bool:
        """Whether it knows the objects of a kind."""
        return any(each.kind == kind for each in self._kinds)

    async def now(self) -> Sequence[KeptNow]:
        """All of them. Raises ``OSError`` where the API server does not answer."""
        found = await together(self._of(each) for each in self._kinds)
        return [each for objects in found for each in objects]

    async def _of(self, kind: KeptKind) -> Sequence[KeptNow]:
        root = "apis" if "/" in kind.group_version else "api"
        try:
            listed = await self._api.request("GET", f"/{root}/{kind.group_version}/{kind.plural}")
        except ApiRefusedError as error:
            if error.status == HTTPStatus.NOT_FOUND:  # a group that this version of Kubernetes does not have
                return ()
            raise
        return [
            KeptNow(kept_of(kind.group_version, kind.kind, each), int(each["metadata"]["resourceVersion"]))
            for each in listed["items"] or ()
        ]
