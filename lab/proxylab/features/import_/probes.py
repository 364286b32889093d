"""Writes a probe for every frontend that a pod in the cluster, or a machine outside, can dial; and their senders.

A probe says who dials what. It has no ``expect``: the oracle knows what must become of it under the proxy that runs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from proxylab.addresses import Family, IPAddress, Protocol
from proxylab.cluster.objects import (
    SERVICE_PROXY_NAME_LABEL,
    EndpointSlice,
    Service,
    ServicePort,
    ServiceType,
    TrafficPolicy,
)
from proxylab.features.import_.conversion import CLIENT, OUTSIDE_CLIENT, Converted
from proxylab.features.import_.manifests import Data
from proxylab.features.import_.omissions import Omissions
from proxylab.oracle.choice import Candidate, candidates_of
from proxylab.statistics import flows_to_hit_all, flows_to_stick

_DIALLED_BY_NODE: Final = "nodePort"


class ProbedFrontend(Struct, frozen=True):
    """A frontend in a probe: ``which`` distinguishes it from others of its kind, and ``target`` selects it."""

    via: str
    which: str = ""
    target: Mapping[str, str] = field(default_factory=dict)


class Probes:
    """Writes probes, and collects the client pods that they need.

    Attributes:
        clients: the client pods by name, for ``spec.pods``.
        hosts: the machine outside that sends probes, for ``spec.hosts``; empty if no Service is open to it.
    """

    def __init__(self, converted: Converted, slices: Sequence[EndpointSlice], omissions: Omissions) -> None:
        self.clients: dict[str, Data] = {}
        self.hosts: dict[str, Data] = {}
        self._converted = converted
        self._omissions = omissions
        self._slices: dict[tuple[str, str], list[EndpointSlice]] = {}
        for each in slices:
            self._slices.setdefault((each.namespace, each.service), []).append(each)
        self._families = [Family(each) for each in converted.network["families"]]
        self._first = (converted.workers or tuple(converted.nodes))[0]
        self._nodes = (self._first, *(each for each in converted.nodes if each != self._first))

    def of(self, service: Service) -> Iterator[Data]:
        name = f"{service.namespace}/{service.name}"
        if service.type is ServiceType.EXTERNAL_NAME:
            self._omissions.add("Services that are only a name for another: nothing to dial", name)
        elif SERVICE_PROXY_NAME_LABEL in service.labels:
            self._omissions.add("Services that are another proxy's: nothing to dial", name)
        elif service.headless:
            yield from self._headless(service)
        elif not service.cluster_ips:
            self._omissions.add("Services to which the API server gave no cluster IP: nothing to dial", name)
        else:
            for port in service.ports:
                yield from self._cluster_ip(service, port)
                yield from self._node_port(service, port)
                yield from self._further(service, port, "externalIP", service.external_ips)
                yield from self._further(service, port, "loadBalancerIP", self._balancers(service))
                yield from self._from_outside(service, port)

    def _headless(self, service: Service) -> Iterator[Data]:
        """A probe of the first ready pod by its own address, since no proxy translates for a headless Service."""
        for each in self._slices.get((service.namespace, service.name), ()):
            for endpoint in each.endpoints:
                for port in each.ports if endpoint.addresses else ():
                    name = self._converted.listeners.get((endpoint.addresses[0], (port.protocol, port.port)))
                    if name is not None and name in self._converted.pods and endpoint.ready:
                        what = f"{service.namespace} {service.name}, headless, at {name}"
                        yield _probe(what, self._client(), {"pod": name, "port": port.port}, port.protocol)
                        return
        self._omissions.add(
            "headless Services without a ready pod: nothing to dial", f"{service.namespace}/{service.name}"
        )

    def _cluster_ip(self, service: Service, port: ServicePort) -> Iterator[Data]:
        several = len(service.cluster_ips) > 1
        for family, address in self._by_family(service.cluster_ips):
            frontend = (
                ProbedFrontend("clusterIP", family, {"address": str(address)})
                if several
                else ProbedFrontend("clusterIP")
            )
            yield self._written(service, port, family, frontend)

    def _node_port(self, service: Service, port: ServicePort) -> Iterator[Data]:
        families = [family for family, _ in self._by_family(service.cluster_ips)]
        for family in families if port.node_port else []:
            own = [each for each in self._converted.node_addresses[self._first] if Family.of(each) is family]
            target = {"node": self._first}
            if len(families) == 1:
                yield self._written(service, port, family, ProbedFrontend(_DIALLED_BY_NODE, "", target))
            elif own:
                target["address"] = str(own[0])
                yield self._written(service, port, family, ProbedFrontend(_DIALLED_BY_NODE, family, target))

    def _further(self, service: Service, port: ServicePort, via: str, addresses: Sequence[IPAddress]) -> Iterator[Data]:
        for number, (family, address) in enumerate(self._by_family(addresses), 1):
            several = len(addresses) > 1
            frontend = ProbedFrontend(via, str(number), {"address": str(address)}) if several else ProbedFrontend(via)
            yield self._written(service, port, family, frontend)

    def _from_outside(self, service: Service, port: ServicePort) -> Iterator[Data]:
        """A probe of the node port, or of the first balancer's address, in the first family of the Service.

        Under policy Local the first goes to a node with an endpoint, and a second one to a node without.
        """
        family = Family.of(service.cluster_ips[0])
        balancers = [each for each in self._balancers(service) if Family.of(each) is family]
        via = _DIALLED_BY_NODE if port.node_port else "loadBalancerIP" if balancers else ""
        if not via or family not in self._families:
            return
        entries = [self._first]
        if service.external_traffic_policy is TrafficPolicy.LOCAL:
            own = {each.endpoint.node_name for each in self._used(service, port, family)}
            with_one = [node for node in self._nodes if node in own]
            without = [node for node in self._nodes if node not in own]
            entries = [*with_one[:1], *without[:1]]
        self.hosts[OUTSIDE_CLIENT] = {}
        for entry in entries:
            which = f"from outside{f' at {entry}' if len(entries) > 1 else ''}"
            target = {"node": entry, **({"address": str(balancers[0])} if via != _DIALLED_BY_NODE else {})}
            yield self._written(service, port, family, ProbedFrontend(via, which, target), OUTSIDE_CLIENT)

    def _balancers(self, service: Service) -> list[IPAddress]:
        """The balancer's addresses for which a node has rules."""
        found = []
        for each in service.load_balancer_ingress:
            where = f"{service.namespace}/{service.name} ({each.ip or each.hostname})"
            if each.ip is None:
                self._omissions.add("balancers that are known by name only: nodes have no rules for them", where)
            elif each.ip_mode != "VIP":
                self._omissions.add("balancers that translate themselves: nodes have no rules for them", where)
            else:
                found.append(each.ip)
        return found

    def _by_family(self, addresses: Iterable[IPAddress]) -> Iterator[tuple[Family, IPAddress]]:
        return ((Family.of(each), each) for each in addresses if Family.of(each) in self._families)

    def _client(self) -> str:
        self.clients.setdefault(CLIENT, {"nodes": [self._first]})
        return CLIENT

    def _used(self, service: Service, port: ServicePort, family: Family) -> list[Candidate]:
        """The endpoints that the proxies of some nodes use: the ready ones, or else those that still serve."""
        found = candidates_of(port, family, self._slices.get((service.namespace, service.name), ()))
        ready = [each for each in found if each.endpoint.ready]
        return ready or [each for each in found if each.endpoint.serving and each.endpoint.terminating]

    def _written(
        self, service: Service, port: ServicePort, family: Family, frontend: ProbedFrontend, sender: str = ""
    ) -> Data:
        """A probe with enough flows to reach each endpoint."""
        target = {
            "service": f"{service.namespace}/{service.name}",
            "port": port.name or port.port,
            "via": frontend.via,
            **frontend.target,
        }
        words = [service.namespace, service.name, str(port.name or port.port), "by", frontend.via, frontend.which]
        count = len({(each.address, each.port) for each in self._used(service, port, family)})
        flows = 1
        if count > 1:
            flows = flows_to_hit_all(count) if service.affinity_timeout is None else flows_to_stick(count)
        return _probe(" ".join(filter(None, words)), sender or self._client(), target, port.protocol, flows)


def _probe(name: str, client: str, target: Mapping[str, object], protocol: Protocol, flows: int = 1) -> Data:
    """A single flow uses a socket, except by SCTP."""
    send = {"as": "packet", "flows": flows} if flows > 1 else {"as": "packet"} if protocol is Protocol.SCTP else {}
    return {"name": name, "from": client, "to": dict(target), **({"send": send} if send else {})}
