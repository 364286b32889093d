"""The embedded engine's work on its node besides rules, the same in every mode.

Owns ``NodeWork``: sysctls, stale UDP flows, health-check node ports, the proxy's own health and metrics servers, and
the answers of these servers, which are kube-proxy's (service_health.go and proxy_health.go in pkg/proxy/healthcheck).
Its callers hand in what opens sockets and writes files.
"""

import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv6Address
from typing import Protocol

from msgspec import Struct

from proxylab.addresses import Family, IPAddress
from proxylab.cluster.configuration import ConntrackTimeouts, SocketAddress
from proxylab.cluster.objects import ObjectKey
from proxylab.control.http_server import HttpResponse, PathHandler
from proxylab.engines.embedded.health import Health
from proxylab.engines.embedded.metrics import SyncMetrics
from proxylab.engines.embedded.node import NodeFacts, node_port_addresses
from proxylab.engines.embedded.ports import ServicePortInfo
from proxylab.engines.embedded.settings import ProxySettings
from proxylab.engines.embedded.sync import Served
from proxylab.engines.embedded.udp import FlowTable, UdpReconciler

_JSON = {"Content-Type": "application/json", "X-Content-Type-Options": "nosniff"}
_TEXT = {"Content-Type": "text/plain; charset=utf-8"}

ANYWHERE: Mapping[Family, IPAddress] = {Family.IPV4: IPv4Address(0), Family.IPV6: IPv6Address(0)}


class Servers(Protocol):
    """HTTP servers in the node."""

    async def serve(self, wanted: Mapping[tuple[IPAddress, int], PathHandler]) -> tuple[str, ...]:
        """Listen at these addresses and no others; returns a line for each that fails."""

    def hold(self, *, answers: bool) -> None:
        """Keep the answers back from now on, or give them again: clients are connected and wait."""

    async def close(self) -> None:
        """Close all servers."""


class EngineNode(Struct, frozen=True, kw_only=True):
    """The node as the engine may act on it."""

    flows: FlowTable
    servers: Servers
    write_sysctls: Callable[[Mapping[str, str]], None]
    close: Callable[[], Awaitable[None]]
    counted_packets: Callable[[], Mapping[str, float]] = dict


def proxy_sysctls(settings: ProxySettings, timeouts: ConntrackTimeouts, families: Sequence[Family]) -> dict[str, str]:
    """The sysctls that kube-proxy writes at its start (cmd/kube-proxy/app/server_linux.go).

    A timeout of 0 is not written. ``nf_conntrack_max`` is missing: it is read-only in a network namespace.
    """
    wanted = {
        "net.netfilter.nf_conntrack_tcp_timeout_established": timeouts.tcp_established,
        "net.netfilter.nf_conntrack_tcp_timeout_close_wait": timeouts.tcp_close_wait,
        "net.netfilter.nf_conntrack_udp_timeout": timeouts.udp,
        "net.netfilter.nf_conntrack_udp_timeout_stream": timeouts.udp_stream,
    }
    written = {name: str(int(seconds)) for name, seconds in wanted.items() if seconds}
    if timeouts.tcp_be_liberal:
        written["net.netfilter.nf_conntrack_tcp_be_liberal"] = "1"
    if Family.IPV4 in families and settings.serves_loopback:
        # Without it the kernel drops packets translated from 127.0.0.1 to an endpoint, as martians.
        written["net.ipv4.conf.all.route_localnet"] = "1"
    return written


def _addresses(address: SocketAddress) -> tuple[tuple[IPAddress, int], ...]:
    """The sockets that a server of that address opens.

    ``0.0.0.0`` and ``[::]`` both mean every address of both families, as for kube-proxy: Go's net.Listen listens on
    both families for either of the two.
    """
    if address.address.is_unspecified:
        return tuple((anywhere, address.port) for anywhere in ANYWHERE.values())
    return ((address.address, address.port),)


class NodeWork:
    """``Surroundings`` of a proxy on one node.

    Args:
        sysctls: written at the start.
        clock: seconds of the engine's clock.
    """

    def __init__(
        self,
        node: EngineNode,
        settings: ProxySettings,
        *,
        sysctls: Mapping[str, str],
        healthz: SocketAddress,
        metrics: SocketAddress,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node = node
        self._sysctls = sysctls
        self._healthz, self._metrics = healthz, metrics
        self._clock = clock
        self._reconcilers: dict[Family, UdpReconciler] = {}
        self._settings = settings
        self._served: Served | None = None
        self._listening: dict[Family, tuple[IPAddress, ...]] = {}
        self._own: dict[tuple[IPAddress, int], PathHandler] = {}
        self._health: Health | None = None
        self._counted: SyncMetrics | None = None

    async def open(self, health: Health, metrics: SyncMetrics) -> tuple[str, ...]:
        """Write the sysctls and serve the proxy's own health and metrics. Raises ``CapabilityError``."""
        self._health, self._counted = health, metrics
        self._node.write_sysctls(self._sysctls)
        self._own = {
            **dict.fromkeys(_addresses(self._healthz), self._answer_health),
            **dict.fromkeys(_addresses(self._metrics), self._answer_metrics),
        }
        return await self._node.servers.serve(self._own)

    async def follow(self, served: Served) -> tuple[str, ...]:
        """Forget stale UDP flows, and open and close health-check node ports."""
        self._served = served
        lines = []
        for family, ports in served.ports.items():
            reconciler = self._reconcilers.setdefault(family, UdpReconciler(self._settings.forget_stale_udp))
            if reconciler.update(ports) and (forgotten := self._node.flows.forget_udp(family, reconciler)):
                lines.append(f"{family}: deleted {forgotten} UDP flows to endpoints that are gone")
                if self._counted is not None:
                    self._counted.forgot(family, forgotten)
        wanted = dict(self._own)
        for family, ports in served.ports.items():
            for port in (each for each in ports if each.health_check_node_port):
                handler = self._service_handler(family, port.service)
                addresses = self._listening_on(family, served.node)
                wanted |= {(address, port.health_check_node_port): handler for address in addresses}
        return (*lines, *await self._node.servers.serve(wanted))

    def hold(self, *, answers: bool) -> None:
        """Keep the answers to health checks and scrapes back from now on, or give them again."""
        self._node.servers.hold(answers=answers)

    async def close(self) -> None:
        """Close the servers. Sysctls stay as they are."""
        await self._node.servers.close()
        await self._node.close()

    def _listening_on(self, family: Family, node: NodeFacts) -> tuple[IPAddress, ...]:
        """The addresses of health-check node ports: as in kube-proxy, those of node ports at the proxy's start."""
        if family not in self._listening:
            chosen = node_port_addresses(family, self._settings, node)
            taken = self._settings.health_checks_collide and Family.IPV4 in self._listening
            listening = (ANYWHERE[family],) if chosen is None else chosen
            if taken and chosen is None and self._listening[Family.IPV4] != (ANYWHERE[Family.IPV4],):
                listening = ()
            self._listening[family] = listening
        return self._listening[family]

    def _ports(self, family: Family) -> Sequence[ServicePortInfo]:
        return () if self._served is None else self._served.ports.get(family, ())

    def _service_handler(self, family: Family, service: ObjectKey) -> PathHandler:
        def answer(_path: str) -> HttpResponse:
            healthy = self._health is not None and self._health.all_healthy(self._clock())
            return service_health(service, local_endpoints(self._ports(family), service), healthy=healthy)

        return answer

    def _answer_health(self, path: str) -> HttpResponse:
        if self._health is None:
            return HttpResponse(503)
        of_node = self._settings.healthz_of_node
        return healthz(path, self._health, self._clock(), datetime.now(UTC), of_node=of_node)

    def _answer_metrics(self, path: str) -> HttpResponse:
        if self._counted is None:
            return HttpResponse(503)
        return _metrics_page(path, self._counted, self._node.counted_packets)


def local_endpoints(ports: Iterable[ServicePortInfo], service: ObjectKey) -> int:
    """How many addresses of ready endpoints the Service has on this node, over all its ports.

    A terminating endpoint does not count, though it may still get traffic: balancers should use other nodes.
    """
    own = (port for port in ports if port.service == service)
    return len({each.address for port in own for each in port.endpoints if each.is_local and each.ready})


def service_health(service: ObjectKey, count: int, *, healthy: bool) -> HttpResponse:
    """The answer of a health-check node port, for any path."""
    body = {
        "service": {"namespace": service.namespace, "name": service.name},
        "localEndpoints": count,
        "serviceProxyHealthy": healthy,
    }
    headers = {**_JSON, "X-Load-Balancing-Endpoint-Weight": str(count)}
    return HttpResponse(200 if count and healthy else 503, json.dumps(body).encode(), headers)


def healthz(path: str, health: Health, now: float, clock: datetime, *, of_node: bool = True) -> HttpResponse:
    """/healthz, which includes the node's eligibility, and /livez, which does not.

    Without ``of_node``, as before 1.28, there is no /livez, and /healthz does not ask for the node.
    """
    if path not in (("/healthz", "/livez") if of_node else ("/healthz",)):
        return _not_found()
    by_family = {str(family): health.is_healthy(family, now) for family in health.last_synced}
    asks_for_node = of_node and path == "/healthz"
    eligible = health.node_eligible or not asks_for_node
    healthy = all(by_family.values())
    synced = [at for at in health.last_synced.values() if at is not None]
    age = 0.0 if healthy or not synced else now - min(synced)
    body = {
        # A healthy proxy is up to date now, however long ago its last sync was.
        "lastUpdated": str(datetime.fromtimestamp(clock.timestamp() - age, UTC)),
        "currentTime": str(clock),
        **({"nodeEligible": health.node_eligible} if asks_for_node else {}),
        "healthy": healthy and eligible,
        "status": {family: {"healthy": fine} for family, fine in by_family.items()},
    }
    return HttpResponse(200 if healthy and eligible else 503, json.dumps(body).encode(), _JSON)


def _metrics_page(path: str, counted: SyncMetrics, packets: Callable[[], Mapping[str, float]]) -> HttpResponse:
    """/metrics and /proxyMode."""
    answers: Mapping[str, bytes] = {"/proxyMode": counted.mode.encode()}
    if path == "/metrics":
        return HttpResponse(200, counted.text(packets()), {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})
    return HttpResponse(200, answers[path], _TEXT) if path in answers else _not_found()


def _not_found() -> HttpResponse:
    return HttpResponse(404, b"404 page not found\n", _TEXT)
