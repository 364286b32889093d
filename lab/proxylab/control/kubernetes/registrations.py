"""The kubelets' part in the nodes of a real API: what they report of a node that has been made anew, and its Lease.

The node controller takes a node whose Lease nothing renews for one that is gone: it taints the node, and its pods are
ready no more.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

from proxylab.cluster.documents import Document, document_of
from proxylab.cluster.objects import Node
from proxylab.control.kubernetes.api_client import ApiClient, ApiRefusedError
from proxylab.control.kubernetes.documents import MERGE, created, node_status
from proxylab.control.kubernetes.following import Following
from proxylab.timing import together

_NODES: Final = "/api/v1/nodes"
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"

_LEASE_SECONDS: Final = 40
_RENEW_SECONDS: Final = 10.0
"""Both as kubelets have them (pkg/kubelet/kubelet.go, nodeLeaseRenewIntervalFraction)."""

_RETRY_SECONDS: Final = 0.2
"""The API server makes the namespace of the Leases by itself, soon after its start."""


class Registrations:
    """Keeps the nodes of one lab registered in one API. ``machines`` are the nodes that it plays, as they first are."""

    def __init__(self, api: ApiClient, machines: Mapping[str, Node]) -> None:
        self._api = api
        self._machines = machines
        self._version = ""  # of the API server, which the lab's kubelets say they have
        self._there: dict[str, str] = {}  # the uid of each node that the API has
        self._changed = asyncio.Event()
        self._following = Following(api, _NODES, self._take_all, self._take)
        self._renewing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Report the nodes and renew their Leases until ``stop``. Raises ``OSError`` where the API does not answer."""
        self._version = (await self._api.request("GET", "/version"))["gitVersion"]
        await self._following.start()
        self._renewing = asyncio.create_task(self._renew_all())

    async def stop(self) -> None:
        """Report nothing more."""
        await self._following.stop()
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)

    def raise_if_ended(self) -> None:
        """Raise ``ProgramError`` if the nodes are followed no longer."""
        self._following.raise_if_ended()

    async def _take_all(self, documents: Sequence[Document]) -> None:
        self._there.clear()
        for each in documents:
            await self._take("ADDED", each)

    async def _take(self, change: str, document: Document) -> None:
        metadata = document["metadata"]
        if (machine := self._machines.get(metadata["name"])) is None:
            return
        if change == "DELETED":
            self._there.pop(machine.name, None)
            return
        is_new = self._there.get(machine.name) != metadata["uid"]
        self._there[machine.name] = metadata["uid"]
        if not document.get("status", {}).get("addresses"):
            await self._report(machine, document)
        if is_new:
            self._changed.set()

    async def _report(self, machine: Node, document: Document) -> None:
        """Report a node of which the API has no more than a name: its labels, its networks, its addresses."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        networks = {key: text for key, text in created(machine)["spec"].items() if key in ("podCIDR", "podCIDRs")}
        missing = {} if document.get("spec", {}).get("podCIDR") else {"spec": networks}
        # Its own labels of the kubelet alone: the author's are those of the node that was there before.
        own = document_of(Node(name=machine.name), 0, "")["metadata"]["labels"]
        labels = {**own, **(document["metadata"].get("labels") or {})}
        path = f"{_NODES}/{machine.name}"
        try:
            await self._api.request("PATCH", path, {"metadata": {"labels": labels}, **missing}, MERGE)
            await self._api.request("PATCH", f"{path}/status", node_status(machine, self._version, now), MERGE)
        except ApiRefusedError as error:
            if error.status != HTTPStatus.NOT_FOUND:  # it is gone again
                raise

    async def _renew_all(self) -> None:
        while True:
            self._changed.clear()
            renewed = await together(self._renew(each) for each in tuple(self._there))
            with suppress(TimeoutError):
                async with asyncio.timeout(_RENEW_SECONDS if all(renewed) else _RETRY_SECONDS):
                    await self._changed.wait()

    async def _renew(self, name: str) -> bool:
        """Renew the Lease of a node, or make it; whether that went well."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        with suppress(ApiRefusedError, OSError):
            try:
                await self._api.request("PATCH", f"{_LEASES}/{name}", {"spec": {"renewTime": now}}, MERGE)
            except ApiRefusedError as error:
                if error.status != HTTPStatus.NOT_FOUND or (uid := self._there.get(name)) is None:
                    raise
                owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}  # with which it goes
                lease = {
                    "metadata": {"name": name, "ownerReferences": [owner]},
                    "spec": {"holderIdentity": name, "leaseDurationSeconds": _LEASE_SECONDS, "renewTime": now},
                }
                await self._api.request("POST", _LEASES, lease)
            return True
        return False
