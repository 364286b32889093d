"""Runs nginx in the pods of a lab's Ingress controller, and lets its configuration follow the cluster.

Theory of operation. After a change of the store, the controller writes the configuration anew. If it differs, nginx
reloads it: the master starts a new worker, and the old one stops listening. Both may accept a connection in between, so
a reload is over only when the new worker answers with the number of its configuration and the log says that the old
worker has exited.
"""

import asyncio
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from msgspec import Struct

from proxylab.cluster.http_routes import Routing, routing
from proxylab.cluster.objects import EndpointSlice, Service, Unstructured
from proxylab.cluster.store import Event, Store
from proxylab.control.apiserver import API_ADDRESS
from proxylab.control.http_client import fetch
from proxylab.control.ingress.nginx_conf import CERTIFICATE, CONFIGURATION, STATUS_PORT, NginxListen, nginx_conf
from proxylab.control.pod_program import PodProgram
from proxylab.errors import CapabilityError
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.timing import Deadline, together

_FOLLOWED: Final = (Unstructured, Service, EndpointSlice)
_RELOAD_SECONDS: Final = 30.0
_ASK_SECONDS: Final = 2.0
_CERTIFICATE_SECONDS: Final = 30.0
_OLD_WORKER_GONE: Final = "exited with code"
COUNTED: Final = (_OLD_WORKER_GONE,)
"""The words of the log by which the controller knows that a reload is over."""


class IngressPod(Struct):
    """A pod with nginx: its program, and the ports on which it listens in these versions of IP.

    ``text`` is its configuration without the number, which counts how often it was loaded.
    """

    program: PodProgram
    pod: str
    listens: tuple[NginxListen, ...]
    versions: tuple[int, ...]
    text: str = ""
    number: int = 0


class IngressController:
    """The Ingress controller of one lab. ``certificate`` is what clients trust; empty without a port for TLS."""

    def __init__(self, pods: Sequence[IngressPod], store: Store, launcher: Launcher) -> None:
        self.certificate = ""
        self._pods = tuple(pods)
        self._store = store
        self._launcher = launcher
        self._changed = asyncio.Event()
        self._reloading = asyncio.Lock()
        self._following: asyncio.Task[None] | None = None
        self._unsubscribe = store.subscribe(self._note)

    async def start(self) -> None:
        """Start nginx in every pod, and return when all answer.

        Raises:
            CapabilityError: this machine has no nginx, or no openssl where a port has TLS.
            ProgramError: nginx does not start.
        """
        if self._launcher.path_of("nginx") is None:
            raise CapabilityError("nginx, which serves Ingresses", "install nginx-light, or nginx")
        files = {}
        if any(listen.tls for pod in self._pods for listen in pod.listens):
            files[CERTIFICATE] = await self._make_certificate()
            self.certificate = files[CERTIFICATE]
        routes = self._routing(self._pods[0].versions)
        for pod in self._pods:
            pod.text, pod.number = self._text(pod, routes), 1
            started = {**files, CONFIGURATION: _numbered(pod)}
            await pod.program.start(("nginx", "-e", "stderr", "-c", CONFIGURATION), started)
        await together(self._wait(pod) for pod in self._pods)
        self._following = asyncio.create_task(self._follow())

    async def settle(self) -> None:
        """Return when nginx in every pod serves the cluster as it is now. Raises ``ProgramError``."""
        if self._following is not None and self._following.done():
            self._following.result()
        await self._reload()

    async def raise_if_ended(self) -> None:
        """Raise ``ProgramError`` if one of them has ended."""
        for pod in self._pods:
            await pod.program.raise_if_ended()

    async def stop(self) -> None:
        """End all of them."""
        self._unsubscribe()
        if self._following is not None:
            self._following.cancel()
            with suppress(asyncio.CancelledError):
                await self._following
        await together(pod.program.stop() for pod in self._pods)

    def _note(self, event: Event) -> None:
        if isinstance(event.object, _FOLLOWED):
            self._changed.set()

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._reload()

    async def _reload(self) -> None:
        async with self._reloading:
            await together(self._reload_pod(pod) for pod in self._pods)

    async def _reload_pod(self, pod: IngressPod) -> None:
        text = self._text(pod, self._routing(pod.versions))
        if text == pod.text:
            return
        pod.text, pod.number = text, pod.number + 1
        await pod.program.write(CONFIGURATION, _numbered(pod))
        pod.program.signal(signal.SIGHUP)
        await self._wait(pod)

    async def _wait(self, pod: IngressPod) -> None:
        async def serves() -> bool:
            if pod.program.count(_OLD_WORKER_GONE) < pod.number - 1:
                return False
            deadline = Deadline.after(_ASK_SECONDS)
            try:
                _, body = await fetch(pod.program.netns, API_ADDRESS, STATUS_PORT, "/", deadline)
            except OSError:
                return False
            return body == str(pod.number).encode()

        await pod.program.wait(serves, Deadline.after(_RELOAD_SECONDS), "a worker with its present configuration")

    def _routing(self, versions: Sequence[int]) -> Routing:
        kept = sorted(self._store.list(Unstructured), key=lambda each: self._store.revision_of(each.key))
        return routing(kept, self._store.list(Service), self._store.list(EndpointSlice), versions)

    @staticmethod
    def _text(pod: IngressPod, routes: Routing) -> str:
        return nginx_conf(routes, pod.pod, pod.listens, pod.versions, 0)

    async def _make_certificate(self) -> str:
        """A certificate for all hosts with TLS that signs itself, and its key. Raises ``CapabilityError``."""
        if self._launcher.path_of("openssl") is None:
            raise CapabilityError("openssl, which makes a certificate for Ingresses", "install openssl")
        names = ("proxylab.invalid", *self._routing(self._pods[0].versions).tls_names)
        alternatives = ",".join(f"DNS:{name}" for name in names)
        words = (
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-subj", "/CN=proxylab", "-days", "2", "-addext", f"subjectAltName={alternatives}"),
            *("-keyout", "-", "-out", "-"),
        )
        program = self._pods[0].program
        return await program.output_of(words, Deadline.after(_CERTIFICATE_SECONDS))


def _numbered(pod: IngressPod) -> str:
    return pod.text.replace("return 200 0;", f"return 200 {pod.number};", 1)
