"""Instructs the proxy process of mode userspace in one family, and loads the rules that lead to it.

Owns ``UserspaceWriter`` and its memory of what the process serves. The process listens before rules lead to it, and
the rules are gone before it stops listening, so that no client is refused by a closed port in between.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress
from proxylab.addresses import Protocol as Transport
from proxylab.encoding import Record
from proxylab.engines.embedded.iptables.loader import RuleLoader
from proxylab.engines.embedded.iptables.writer import IptablesWriter
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ClusterView, PortTracker, ServicePortInfo
from proxylab.engines.embedded.proxier import ModeProxier, SyncFailedError, Written
from proxylab.engines.embedded.settings import ProxySettings
from proxylab.engines.embedded.userspace.rules import PORTALS_CONTAINER, generation, key_of


class ProcessPort(Record, frozen=True):
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

    async def order(self, serve: Mapping[str, ProcessPort], close: Collection[str]) -> Answered:
        """Serve these service ports from now on, and those no more. Raises ``ProcessEndedError``."""

    @property
    def runs(self) -> bool:
        """Whether it runs; false before the first order."""


def tracked_ports(tracker: PortTracker, cluster: ClusterView) -> tuple[ServicePortInfo, ...]:
    """The service ports, each with its ready endpoints, wherever they are.

    In this mode kube-proxy watches Endpoints, which say nothing but where ready endpoints are. So an address of two
    slices counts where one of them says that it is ready, whatever the other says. Of a Service it reads ``clusterIP``,
    the first of its addresses: one whose first address is of the other family has no rules.
    """
    ready = (
        each
        if all(endpoint.ready for endpoint in each.endpoints)
        else replace(each, endpoints=tuple(endpoint for endpoint in each.endpoints if endpoint.ready))
        for each in cluster.slices
    )
    services = (
        each if len(each.cluster_ips) < 2 else replace(each, cluster_ips=each.cluster_ips[:1])
        for each in cluster.services
    )
    return tracker.update(replace(cluster, services=tuple(services), slices=tuple(ready)))


def served_ports(ports: Sequence[ServicePortInfo]) -> dict[str, ProcessPort]:
    """What the process must serve, by ``key_of``."""
    return {
        key_of(port): ProcessPort(
            port.protocol,
            tuple((each.ip, each.port) for each in port.endpoints),
            port.affinity_timeout,
            port.node_port,
        )
        for port in ports
        if port.protocol is not Transport.SCTP
    }


class UserspaceRules(Struct, frozen=True):
    """What the process must serve, by ``key_of``, and the view from which the rules that lead to it are rendered."""

    served: Mapping[str, ProcessPort]
    cluster: ClusterView
    node: NodeFacts


class UserspaceWriter:
    """The ``RuleWriter`` of mode userspace.

    Args:
        listen: the address on which the process listens; ``None`` for all.
        host: the node's own address; ``None`` for that of the Node object.
    """

    def __init__(
        self,
        family: Family,
        loader: RuleLoader,
        process: ProxyProcess,
        settings: ProxySettings,
        listen: IPAddress | None = None,
        host: IPAddress | None = None,
    ) -> None:
        self.family = family
        self._loader = loader
        self._process = process
        self._tracker: PortTracker | None = None
        self._tracked: Sequence[ServicePortInfo] = ()
        self._served: dict[str, ProcessPort] = {}
        self._ports: dict[str, int] = {}
        self._generation = generation(self._ports, listen, host)
        self._settings = settings
        self._rules = ModeProxier(IptablesWriter(family, loader, settings, self._generation))

    @property
    def ports(self) -> tuple[ServicePortInfo, ...]:
        """The service ports of the last sync; the mode serves no health-check node ports."""
        return tuple(port._replace(health_check_node_port=0) for port in self._rules.ports)

    def render(self, cluster: ClusterView, node: NodeFacts) -> UserspaceRules:
        """What the process must serve, and what its rules must lead to it."""
        if self._tracker is None:
            self._tracker = PortTracker(self.family, node.name)
        self._tracked = tracked_ports(self._tracker, cluster)
        return UserspaceRules(served_ports(self._tracked), cluster, node)

    def is_base(self, _loaded: UserspaceRules, _wanted: UserspaceRules) -> bool:
        """Whether the process runs: the next one gets other ports, so all rules change."""
        return self._process.runs

    async def write(self, wanted: UserspaceRules, loaded: UserspaceRules | None) -> Written:
        """Instruct the process and load its rules. Raises ``SyncFailedError``."""
        if self._served and not self._process.runs:
            self._served = {}
            self._ports.clear()
            self._rules = ModeProxier(IptablesWriter(self.family, self._loader, self._settings, self._generation))
        changed = {key: each for key, each in wanted.served.items() if self._served.get(key) != each}
        failed: Mapping[str, str] = {}
        if changed or not self._process.runs:
            failed = await self._order(changed, ())
        gone = [key for key in self._served if key not in wanted.served]
        for key in gone:
            self._ports.pop(key, None)
        done = await self._rules.sync(wanted.cluster, wanted.node, full=loaded is None)
        if gone:
            await self._order({}, gone)
        self._served = {key: each for key, each in wanted.served.items() if key not in failed}
        lines = (*(f"{key}: {why}" for key, why in failed.items()), *_lacking(self._tracked))
        return Written(f"{len(changed) + len(gone)} service ports of the process", done.rules, lines)

    async def is_intact(self, _loaded: UserspaceRules | None) -> bool:
        """Whether the process runs and its rules are there."""
        table, chain = PORTALS_CONTAINER
        return self._process.runs and await self._loader.has_chain(self.family, table, chain)

    async def dump(self) -> str:
        """The rules as iptables-save prints them."""
        return await self._rules.dump()

    async def _order(self, serve: Mapping[str, ProcessPort], close: Collection[str]) -> Mapping[str, str]:
        try:
            answered = await self._process.order(serve, close)
        except ProcessEndedError as ended:
            raise SyncFailedError(f"{self.family}: the proxy process ended", str(ended)) from ended
        self._ports.clear()
        self._ports.update(answered.ports)
        return answered.failed


def _lacking(ports: Sequence[ServicePortInfo]) -> list[str]:
    """A line for each service port of which the mode lacks something."""
    lines = []
    for port in ports:
        if port.protocol is Transport.SCTP:
            lines.append(f"{port.name} is left out: mode userspace has no SCTP")
        elif port.internal_policy_local or port.external_policy_local:
            lines.append(f"{port.name} goes to endpoints on all nodes: mode userspace has no traffic policy Local")
    return lines
