"""Follows one collection of the API: all of its objects first, and then each change."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from proxylab.cluster.documents import Document
from proxylab.control.kubernetes.api_client import ApiClient, ApiRefusedError
from proxylab.errors import ProgramError
from proxylab.timing import Deadline, pass_by

_PATIENCE_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 0.1

TakeAll = Callable[[Sequence[Document]], Awaitable[None]]
Take = Callable[[str, Document], Awaitable[None]]
"""Called with ADDED, MODIFIED or DELETED, and the object."""


class Following:
    """Follows the collection at ``path`` from ``start`` until ``stop``.

    A watch that ends, for its time, for a broken connection, or because the server no longer has that much history,
    begins anew with all objects.
    """

    def __init__(self, api: ApiClient, path: str, take_all: TakeAll, take: Take) -> None:
        self._api = api
        self._path = path
        self._take_all = take_all
        self._take = take
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take all objects that there are, and go on. Raises ``OSError`` where the API server does not answer."""
        version = await self._list()
        self._task = asyncio.create_task(self._follow(version))

    async def stop(self) -> None:
        """Follow it no longer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def raise_if_ended(self) -> None:
        """Raise ``ProgramError`` if the API server has answered no more, or the lab has failed to follow it."""
        if self._task is not None and self._task.done() and not self._task.cancelled():
            why = self._task.exception()
            raise ProgramError(
                "the control plane", f"is followed no longer at {self._path}: {why or 'the lab has stopped'}"
            ) from why

    async def _follow(self, version: str) -> None:
        while True:
            with suppress(ApiRefusedError, OSError):
                async for event in self._api.watch(self._path, version):
                    if event["type"] != "BOOKMARK":
                        await self._take(event["type"], event["object"])
            deadline = Deadline.after(_PATIENCE_SECONDS)
            while True:
                try:
                    version = await self._list()
                    break
                except OSError:
                    if deadline.passed:
                        raise
                    await pass_by(_RETRY_SECONDS)

    async def _list(self) -> str:
        listed = await self._api.request("GET", self._path)
        await self._take_all(listed["items"] or ())
        version: str = listed["metadata"]["resourceVersion"]
        return version
