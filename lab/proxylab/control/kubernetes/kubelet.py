"""The kubelets of a lab: they run the pods that are bound to its nodes, report their status, and end them.

A pod that is being deleted serves until no proxy sends it anything new, or until its grace period is over. Then its
network goes, and the API server hears that it is gone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final, Protocol

from proxylab.addresses import IPAddress
from proxylab.cluster.documents import Document
from proxylab.control.kubernetes.api_client import ApiClient, ApiRefusedError
from proxylab.control.kubernetes.documents import (
    IMAGE,
    PODS,
    STRATEGIC_MERGE,
    debugged_status,
    failed_status,
    running_status,
    seconds_to_ready,
    succeeded_status,
)
from proxylab.control.kubernetes.following import Following
from proxylab.timing import Deadline, pass_by

_GRACE_SECONDS: Final = 30


class RunningPod(Protocol):
    """A pod that has a network and servers."""

    @property
    def addresses(self) -> tuple[IPAddress, ...]:
        """Its addresses, the primary one first."""

    async def finish(self) -> None:
        """Take its network and its servers away: it has done its work. Its log stays."""

    async def end(self) -> None:
        """Take all of it away."""


class CannotRunError(Exception):
    """A node cannot run a pod; the message says why."""


Run = Callable[[Document], Awaitable[RunningPod]]
"""Runs the pod of a document. Raises ``CannotRunError``."""

Drained = Callable[[str, str, Deadline], Awaitable[None]]
"""Returns when no proxy sends anything new to the pod of that namespace and name, or at the deadline."""


class Kubelet:
    """Runs the pods of all nodes.

    Args:
        nodes: the addresses of each node, by name.
        run: makes a pod's network and servers.
        drained: waits until the proxies have taken a pod out.
    """

    def __init__(self, api: ApiClient, nodes: dict[str, tuple[IPAddress, ...]], run: Run, drained: Drained) -> None:
        self._api = api
        self._nodes = nodes
        self._run = run
        self._drained = drained
        self._running: dict[str, RunningPod] = {}
        self._known: set[str] = set()
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._becoming_ready: dict[str, asyncio.Task[None]] = {}
        self._following = Following(api, PODS, self._look_at_all, self._take)

    async def start(self) -> None:
        """Follow the pods until ``stop``. Raises ``OSError`` where the API server does not answer."""
        await self._following.start()

    async def stop(self) -> None:
        """Follow them no longer, and take away all that it has made."""
        await self._following.stop()
        tasks = (*self._ending.values(), *self._becoming_ready.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while self._running:
            _, running = self._running.popitem()
            await running.end()

    def raise_if_ended(self) -> None:
        """Raise ``ProgramError`` if the pods are followed no longer."""
        self._following.raise_if_ended()

    async def _look_at_all(self, pods: Sequence[Document]) -> None:
        for gone in (self._known | self._running.keys()) - {each["metadata"]["uid"] for each in pods}:
            await self._forget(gone)
        for pod in pods:
            await self._look_at(pod)

    async def _take(self, change: str, pod: Document) -> None:
        if change == "DELETED":  # by force, too
            await self._forget(pod["metadata"]["uid"])
        else:
            await self._look_at(pod)

    async def _look_at(self, pod: Document) -> None:
        metadata, spec = pod["metadata"], pod["spec"]
        uid = metadata["uid"]
        if spec.get("nodeName") not in self._nodes:
            return
        if "deletionTimestamp" in metadata:
            if uid not in self._ending:
                self._ending[uid] = asyncio.create_task(self._end(pod))
        elif uid not in self._known:
            if any(each["image"] != IMAGE for each in spec["containers"]):  # else it is the scenario's, and runs
                await self._begin(pod)
            self._known.add(uid)
        reported = pod.get("status", {}).get("ephemeralContainerStatuses", ())
        if len(spec.get("ephemeralContainers", ())) > len(reported):
            await self._ask("PATCH", f"{_path(pod)}/status", debugged_status(pod, _now()), STRATEGIC_MERGE)

    async def _begin(self, pod: Document) -> None:
        uid, now = pod["metadata"]["uid"], _now()
        is_of_job = any(each["kind"] == "Job" for each in pod["metadata"].get("ownerReferences", ()))
        try:
            if (running := self._running.get(uid)) is None:  # else it runs, and the API server has not heard of it yet
                running = self._running[uid] = await self._run(pod)
        except CannotRunError as error:
            status = failed_status(pod, str(error))
        else:
            seconds = 0 if is_of_job else seconds_to_ready(pod)
            status = self._status(pod, running, now, is_ready=not seconds)
            if seconds:
                self._becoming_ready[uid] = asyncio.create_task(self._become_ready(pod, running, now, seconds))
        await self._ask("PATCH", f"{_path(pod)}/status", status, STRATEGIC_MERGE)
        if uid in self._running and is_of_job:
            # Its image, which would do the work, is not run: the work is done at once.
            await self._ask("PATCH", f"{_path(pod)}/status", succeeded_status(pod, now), STRATEGIC_MERGE)
            await self._running[uid].finish()

    def _status(self, pod: Document, running: RunningPod, began: str, *, is_ready: bool) -> Document:
        host = self._nodes[pod["spec"]["nodeName"]]
        return running_status(pod, running.addresses, host, began, is_ready=is_ready)

    async def _become_ready(self, pod: Document, running: RunningPod, began: str, seconds: int) -> None:
        await pass_by(seconds)
        with suppress(OSError):  # who follows the pods says that the API server does not answer
            status = self._status(pod, running, began, is_ready=True)
            await self._ask("PATCH", f"{_path(pod)}/status", status, STRATEGIC_MERGE)

    async def _end(self, pod: Document) -> None:
        metadata = pod["metadata"]
        deadline = Deadline.after(metadata.get("deletionGracePeriodSeconds", _GRACE_SECONDS))
        await self._drained(metadata["namespace"], metadata["name"], deadline)
        over = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
        try:
            await self._ask("DELETE", _path(pod), over)
        except OSError:  # all pods are looked at again once the API server answers
            self._ending.pop(metadata["uid"], None)

    async def _forget(self, uid: str) -> None:
        self._known.discard(uid)
        if (becoming_ready := self._becoming_ready.pop(uid, None)) is not None:
            becoming_ready.cancel()
            await asyncio.gather(becoming_ready, return_exceptions=True)
        if (ending := self._ending.pop(uid, None)) is not None:
            await asyncio.gather(ending, return_exceptions=True)
        if (running := self._running.pop(uid, None)) is not None:
            await running.end()

    async def _ask(self, method: str, path: str, body: Document, kind: str = "application/json") -> None:
        try:
            await self._api.request(method, path, body, kind)
        except ApiRefusedError as error:
            # The pod may be gone by force, or another one of its name may be in its place.
            if error.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                raise


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _path(pod: Document) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
