"""The way to the real API for commands in nodes, pods and hosts: a socket at the loopback address of their namespace.

The API server's own namespace has no link. A command of the user finds a kubeconfig by ``KUBECONFIG``; a program that
does not read it, and so has no token, gets no further than any stranger.
"""

import json
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any, Final

from proxylab.control.http_server import listen_inside
from proxylab.control.kubernetes.api_client import ApiClient
from proxylab.control.kubernetes.relay import Relay
from proxylab.errors import ProgramError
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.timing import Deadline

_LOOPBACK: Final = ip_address("127.0.0.1")
_FILE: Final = "/run/kubeconfig"
_WRITE_SECONDS: Final = 10.0


class ApiInPods:
    """Opens that way in the namespaces of one lab. ``kubeconfig`` makes one for the URL of a server."""

    def __init__(self, api: ApiClient, launcher: Launcher, kubeconfig: Callable[[str], dict[str, Any]]) -> None:
        self._api = api
        self._launcher = launcher
        self._kubeconfig = kubeconfig
        self._relays: dict[NetNs, Relay] = {}

    async def environment(self, netns: NetNs, known_as: str) -> dict[str, str]:
        """The variables of a command in a namespace, which the launcher knows as ``known_as``."""
        if netns not in self._relays:
            relay = self._relays[netns] = Relay(listen_inside(netns, _LOOPBACK, 0), self._api.dial)
            text = json.dumps(self._kubeconfig(f"https://{_LOOPBACK}:{relay.port}"))
            deadline = Deadline.after(_WRITE_SECONDS)
            written = await self._launcher.run(
                netns, ("tee", _FILE), netns_name=known_as, stdin=text.encode(), deadline=deadline
            )
            if written.status != 0:
                raise ProgramError("kubeconfig", f"cannot be written in {netns.name}", written.stderr.decode())
        return {"KUBECONFIG": _FILE}

    async def leave(self, netns: NetNs) -> None:
        """Close the way of a namespace that is about to go."""
        if (relay := self._relays.pop(netns, None)) is not None:
            await relay.close()

    async def close(self) -> None:
        """Close all of them."""
        for netns in tuple(self._relays):
            await self.leave(netns)
