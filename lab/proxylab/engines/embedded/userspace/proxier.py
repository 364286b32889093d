"""The proxier of one family in mode userspace: it instructs the proxy process, and loads the rules that lead to it.

Owns ``UserspaceProxier`` and its memory of what the process serves. The process listens before rules lead to it, and
the rules are gone before it stops listening, so that no client is refused by a closed port in between.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from msgspec import field

from proxylab.addresses import Family, IPAddress
from proxylab.addresses import Protocol as Transport
from proxylab.encoding import Record
from proxylab.engines.embedded.iptables.loader import RuleLoader
from proxylab.engines.embedded.iptables.proxier import IptablesProxier
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ClusterView, ServicePortInfo
from proxylab.engines.embedded.proxier import Synced, SyncFailedError
from proxylab.engines.embedded.settings import ProxySettings
from proxylab.engines.embedded.tracker import PortTracker
from proxylab.engines.embedded.userspace.rules import PORTALS_CONTAINER, generation, key_of


class Served(Record, frozen=True):
    """One service port as the proxy process must serve it. ``affinity`` is in seconds, ``None`` without."""

    protocol: Transport
    endpoints: tuple[tuple[str, int], ...]
    affinity: int | None
    node_port: int


class Answered(Record, frozen=True):
    """The answer of the process, which has by then passed on every datagram that it had.

    Attributes:
        ports: the port on which it serves each key.
        failed: why it could not do all for some.
        discarded: how many datagrams it has discarded for each key of UDP since it began.
    """

    number: int
    ports: Mapping[str, int]
    failed: Mapping[str, str]
    discarded: Mapping[str, int] = field(default_factory=dict)


class ProcessEndedError(Exception):
    """The proxy process has ended; the message has the last lines that it wrote."""


class ProxyProcess(Protocol):
    """The proxy process of one family on one node. It starts with the first order."""

    async def order(self, serve: Mapping[str, Served], close: Collection[str]) -> Answered:
        """Serve these service ports from now on, and those no more. Raises ``ProcessEndedError``."""

    async def drain(self, *, connections: bool) -> Mapping[str, int] | None:
        """What ``UserspaceProxier.drain`` returns, of a process that runs."""

    @property
    def runs(self) -> bool:
        """Whether it runs; false before the first order."""


def served_ports(ports: Sequence[ServicePortInfo]) -> dict[str, Served]:
    """What the process must serve, by ``key_of``. As in kube-proxy, only ready endpoints count, wherever they are."""
    return {
        key_of(port): Served(
            port.protocol,
            tuple((each.ip, each.port) for each in port.endpoints if each.ready),
            port.affinity_timeout,
            port.node_port,
        )
        for port in ports
        if port.protocol is not Transport.SCTP
    }


class UserspaceProxier:
    """kube-proxy's mode userspace in one family on one node.

    Args:
        listen: the address on which the process listens; ``None`` for all.
    """

    is_large = False
    """kube-proxy writes the same rules however large the cluster is."""

    def __init__(
        self,
        family: Family,
        loader: RuleLoader,
        process: ProxyProcess,
        settings: ProxySettings,
        listen: IPAddress | None = None,
    ) -> None:
        self._family = family
        self._loader = loader
        self._process = process
        self._tracker: PortTracker | None = None
        self._served: dict[str, Served] = {}
        self._ports: dict[str, int] = {}
        self._generation = generation(self._ports, listen)
        self._settings = settings
        self._rules = IptablesProxier(family, loader, settings, self._generation)

    @property
    def ports(self) -> tuple[ServicePortInfo, ...]:
        """The service ports of the last sync; the mode serves no health-check node ports."""
        return tuple(port._replace(health_check_node_port=0) for port in self._rules.ports)

    async def sync(self, cluster: ClusterView, node: NodeFacts, *, full: bool = False) -> Synced:
        """Make process and rules those of ``cluster``. Raises ``SyncFailedError``."""
        if self._tracker is None:
            self._tracker = PortTracker(self._family, node.name)
        if self._served and not self._process.runs:
            self._restart()
        ports = self._tracker.update(cluster)
        wanted = served_ports(ports)
        changed = {key: each for key, each in wanted.items() if self._served.get(key) != each}
        failed: Mapping[str, str] = {}
        if changed or not self._process.runs:
            failed = await self._order(changed, ())
        gone = [key for key in self._served if key not in wanted]
        for key in gone:
            self._ports.pop(key, None)
        done = await self._rules.sync(cluster, node, full=full)
        if gone:
            await self._order({}, gone)
        self._served = {key: each for key, each in wanted.items() if key not in failed}
        lines = (*(f"{key}: {why}" for key, why in failed.items()), *_lacking(ports))
        return Synced(done.what, done.full, done.rules, lines)

    async def is_intact(self) -> bool:
        """Whether the process runs and its rules are there."""
        table, chain = PORTALS_CONTAINER
        return self._process.runs and await self._loader.has_chain(self._family, table, chain)

    async def dump(self) -> str:
        """The rules as iptables-save prints them."""
        return await self._rules.dump()

    async def drain(self, *, connections: bool) -> Mapping[str, int] | None:
        """Let the process pass on what it has; see ``Draining``.

        Returns:
            How many datagrams it has discarded so far, by ``key_of``; ``None`` if it is not done in time.
        """
        return await self._process.drain(connections=connections) if self._process.runs else {}

    async def _order(self, serve: Mapping[str, Served], close: Collection[str]) -> Mapping[str, str]:
        try:
            answered = await self._process.order(serve, close)
        except ProcessEndedError as ended:
            raise SyncFailedError(f"{self._family}: the proxy process ended", str(ended)) from ended
        self._ports.clear()
        self._ports.update(answered.ports)
        return answered.failed

    def _restart(self) -> None:
        """Forget an ended process: the next one gets other ports, so all rules change."""
        self._served = {}
        self._ports.clear()
        self._rules = IptablesProxier(self._family, self._loader, self._settings, self._generation)


def _lacking(ports: Sequence[ServicePortInfo]) -> list[str]:
    """A line for each service port of which the mode lacks something."""
    lines = []
    for port in ports:
        if port.protocol is Transport.SCTP:
            lines.append(f"{port.name} is left out: mode userspace has no SCTP")
        elif port.internal_policy_local or port.external_policy_local:
            lines.append(f"{port.name} goes to endpoints on all nodes: mode userspace has no traffic policy Local")
    return lines
