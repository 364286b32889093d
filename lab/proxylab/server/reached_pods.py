"""The pods of a lab as their kubelets reach them: their namespaces, commands, ports and logs.

A pod of a lab runs no image. Its log has a line for each request that its servers have had, and a command in it has the
pod's network and the programs of this machine.
"""

import asyncio
import socket
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address
from typing import Final

from proxylab.addresses import Protocol
from proxylab.cluster.objects import ObjectKey
from proxylab.cluster.store import Store
from proxylab.control.kubernetes.pod_log import PodLog
from proxylab.evidence.words import endpoint
from proxylab.kernel.sandbox.iptables_links import CHOSEN_FIRST, links_to
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import NetNs, inside
from proxylab.kernel.sandbox.running import Attached
from proxylab.plan.model import Plan
from proxylab.text import printable
from proxylab.traffic.answer import is_http

_DIAL_SECONDS: Final = 10.0
_LONGEST_LINE: Final = 200


class ReachedPod:
    """A pod of the scenario, or one that was added.

    ``name`` is its own in the plan, and the launcher knows its processes as ``known_as``. Of one that ``is_gone`` no
    more than the log is left.
    """

    def __init__(self, name: str, netns: NetNs, known_as: str, launcher: Launcher, iptables: str, log: PodLog) -> None:
        self.name: Final = name
        self.netns: Final = netns
        self.known_as: Final = known_as
        self.log: Final = log
        self.is_gone = False
        self._launcher = launcher
        self._iptables = iptables

    async def start(self, argv: Sequence[str], standard: Sequence[int], /, *, terminal: bool) -> Attached:
        """Start a command on these standard descriptors. Raises ``LabError``."""
        return await self._launcher.start_attached(
            self.netns,
            argv,
            netns_name=self.known_as,
            standard=standard,
            terminal=terminal,
            links=links_to(self._iptables),
            environment={"PATH": CHOSEN_FIRST, "HOSTNAME": self.netns.name},
        )

    async def dial(self, port: int, /) -> socket.socket:
        """Dial a port at its loopback address, of either family. Raises ``OSError``."""
        loop = asyncio.get_running_loop()
        for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            with inside(self.netns):
                dialling = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
            try:
                dialling.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                async with asyncio.timeout(_DIAL_SECONDS):
                    await loop.sock_connect(dialling, (address, port))
            except ConnectionRefusedError:
                dialling.close()
            except BaseException:
                dialling.close()
                raise
            else:
                return dialling
        raise ConnectionRefusedError("nothing listens there")


class RequestLogs:
    """The logs of pods by their names in the plan, with a line for each request of which a responder tells."""

    def __init__(self) -> None:
        self._logs: defaultdict[str, PodLog] = defaultdict(PodLog)

    def of(self, name: str) -> PodLog:
        return self._logs[name]

    def forget(self, name: str) -> None:
        """Keep the log of a pod no longer."""
        self._logs.pop(name, None)

    def note(self, name: str, protocol: Protocol, request: bytes, peer: tuple[str, int], own: tuple[str, int]) -> None:
        """Write a line for a request."""
        what = f"{len(request)} bytes by {protocol}"
        if is_http(request):
            what = printable(request.partition(b"\r\n")[0][:_LONGEST_LINE].decode(errors="replace"))
        source, target = (endpoint(ip_address(address.partition("%")[0]), port) for address, port in (peer, own))
        self._logs[name].add(f"{what} from {source} to {target}")


class ReachedPods:
    """All pods of a lab: those of the scenario that the API still has, and those that were added.

    ``reach`` makes what reaches a pod, by its name in the plan, its namespace, the name by which the launcher knows its
    processes, and its log.
    """

    def __init__(
        self,
        plan: Plan,
        namespaces: Mapping[str, NetNs],
        store: Store,
        logs: RequestLogs,
        reach: Callable[[str, NetNs, str, PodLog], ReachedPod],
    ) -> None:
        self._homes = {pod.name: namespaces[pod.namespace] for pod in plan.pods}
        self._store = store
        self._logs = logs
        self._reach = reach
        self._added: dict[tuple[str, str], ReachedPod] = {}

    def find(self, namespace: str, name: str) -> ReachedPod | None:
        """The pod of that namespace and name."""
        if (added := self._added.get((namespace, name))) is not None:
            return added
        if name not in self._homes or self._store.get(ObjectKey("Pod", namespace, name)) is None:
            return None
        home = self._homes[name]
        return self._reach(name, home, home.name, self._logs.of(name))

    def added(self, name: str) -> ReachedPod | None:
        """The added pod of that name in the plan, or else of that NAME or NAMESPACE/NAME."""
        running = {key: pod for key, pod in self._added.items() if not pod.is_gone}
        for pod in running.values():
            if pod.name == name:
                return pod
        found = (pod for (namespace, own), pod in running.items() if name in (own, f"{namespace}/{own}"))
        return next(found, None)

    def add(self, namespace: str, name: str, in_plan: str, netns: NetNs) -> ReachedPod:
        """Take up a pod that was added, with its name in the plan, in its own network namespace or its node's.

        Its processes are its own in either: commands in it end with it.
        """
        self._added[namespace, name] = added = self._reach(in_plan, netns, in_plan, self._logs.of(in_plan))
        return added

    def finish(self, namespace: str, name: str) -> None:
        """Keep nothing of an added pod but its log; another one may get its name in the plan."""
        finished = self._added[namespace, name]
        finished.is_gone = True
        self._logs.forget(finished.name)

    def remove(self, namespace: str, name: str) -> None:
        """Let an added pod go, with its log."""
        del self._added[namespace, name]
