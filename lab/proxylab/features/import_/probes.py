"""Writes a probe for every frontend that a pod in the cluster, or a machine outside, can dial; and their senders."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_network
from typing import Final

from msgspec import Struct, field

from proxylab.addresses import Family, IPAddress, IPNetwork, Protocol
from proxylab.cluster.expected_results import (
    Caller,
    ExpectedResult,
    from_outside,
    through_cluster_ip,
    through_other_frontend,
)
from proxylab.cluster.objects import (
    SERVICE_PROXY_NAME_LABEL,
    ZONE_LABEL,
    EndpointSlice,
    Service,
    ServicePort,
    ServiceType,
)
from proxylab.features.import_.conversion import CLIENT, OUTSIDE_CLIENT, Converted
from proxylab.features.import_.manifests import Data
from proxylab.features.import_.omissions import Omissions
from proxylab.statistics import flows_to_hit_all, flows_to_stick

_MIXED: Final = "frontends without a probe: a node masquerades by different addresses, depending on the backend's node"


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
        self._slices = slices
        self._omissions = omissions
        self._families = [Family(each) for each in converted.network["families"]]
        self._pod_networks = [ip_network(each) for each in converted.network["podCIDR"]]
        first = (converted.workers or tuple(converted.nodes))[0]
        self._callers = [
            Caller(
                node=node,
                zone=converted.nodes[node].get("labels", {}).get(ZONE_LABEL, ""),
                local=converted.proxy.recognises(self._pod_networks),
                masqueraded=converted.proxy.masquerades(self._pod_networks),
            )
            for node in (first, *(each for each in converted.nodes if each != first))
        ]
        on_nodes = {name for name, pod in converted.pods.items() if pod.get("hostNetwork")}
        self._on_nodes = {key for key, name in converted.listeners.items() if name in on_nodes}

    def of(self, service: Service) -> Iterator[Data]:
        name = f"{service.namespace}/{service.name}"
        if service.type is ServiceType.EXTERNAL_NAME:
            self._omissions.add("Services that are only a name for another: nothing to dial", name)
        elif SERVICE_PROXY_NAME_LABEL in service.labels:
            self._omissions.add("Services that are another proxy's: nothing to dial", name)
        elif service.headless:
            yield from self._headless(service)
        else:
            for port in service.ports:
                yield from self._cluster_ip(service, port)
                yield from self._node_port(service, port)
                yield from self._further(service, port, "externalIP", service.external_ips)
                yield from self._further(service, port, "loadBalancerIP", self._balancers(service))
                yield from self._from_outside(service, port)

    def _headless(self, service: Service) -> Iterator[Data]:
        """A probe of the first ready pod by its own address, since no proxy translates for a headless Service."""
        for each in self._slices:
            if (each.namespace, each.service) != (service.namespace, service.name):
                continue
            for endpoint in each.endpoints:
                for port in each.ports:
                    name = self._converted.listeners.get((endpoint.addresses[0], (port.protocol, port.port)))
                    if name is not None and name in self._converted.pods and endpoint.ready:
                        target = {"pod": name, "port": port.port}
                        what = f"{service.namespace} {service.name}, headless, at {name}"
                        expect = {"outcome": "delivered", "backends": [name], "source": "preserved"}
                        yield _probe(what, self._client(self._callers[0]), target, port.protocol, expect)
                        return
        self._omissions.add(
            "headless Services without a ready pod: nothing to dial", f"{service.namespace}/{service.name}"
        )

    def _cluster_ip(self, service: Service, port: ServicePort) -> Iterator[Data]:
        caller, several = self._callers[0], len(service.cluster_ips) > 1
        for family, address in self._by_family(service.cluster_ips):
            promise = through_cluster_ip(service, port, family, self._slices, caller)
            frontend = (
                ProbedFrontend("clusterIP", family, {"address": str(address)})
                if several
                else ProbedFrontend("clusterIP")
            )
            yield self._written(service, port, frontend, caller, promise)

    def _node_port(self, service: Service, port: ServicePort) -> Iterator[Data]:
        families = [family for family, _ in self._by_family(service.cluster_ips)]
        for family in families if port.node_port else []:
            clear = self._first_clear(service, port, family)
            if clear is None:
                self._omissions.add(_MIXED, f"nodePort {port.node_port} of {service.namespace}/{service.name}")
                continue
            caller, promise = clear
            own = [each for each in self._converted.node_addresses[caller.node] if Family.of(each) is family]
            if len(families) == 1:
                yield self._written(
                    service, port, ProbedFrontend("nodePort", "", {"node": caller.node}), caller, promise
                )
            elif own:
                frontend = ProbedFrontend("nodePort", family, {"node": caller.node, "address": str(own[0])})
                yield self._written(service, port, frontend, caller, promise)

    def _further(self, service: Service, port: ServicePort, via: str, addresses: Sequence[IPAddress]) -> Iterator[Data]:
        allowed = service.source_ranges if via == "loadBalancerIP" else ()
        for number, (family, address) in enumerate(self._by_family(addresses), 1):
            clear = self._first_clear(service, port, family, allowed)
            if clear is None:
                self._omissions.add(_MIXED, f"{via} {address} of {service.namespace}/{service.name}")
                continue
            several = len(addresses) > 1
            frontend = ProbedFrontend(via, str(number), {"address": str(address)}) if several else ProbedFrontend(via)
            yield self._written(service, port, frontend, *clear)

    def _from_outside(self, service: Service, port: ServicePort) -> Iterator[Data]:
        """A probe of the node port, and of the first balancer's address, in the first family that has one.

        Under policy Local the first goes to a node with an endpoint, and a second one to a node without.
        """
        family = Family.of(service.cluster_ips[0])
        balancers = [each for each in self._balancers(service) if Family.of(each) is family]
        via = "nodePort" if port.node_port else "loadBalancerIP" if balancers else ""
        if not via or family not in self._families:
            return
        found: dict[str, tuple[Caller, ExpectedResult]] = {}
        for entry in self._callers:
            promise = from_outside(
                service,
                port,
                family,
                self._slices,
                entry,
                on_the_node=self._on_nodes,
                allowed=service.source_ranges if via == "loadBalancerIP" else (),
                address=self._converted.outside[family],
            )
            found.setdefault(promise.outcome, (entry, promise))
        if all(promise.outcome == "delivered" and promise.source is None for _, promise in found.values()):
            self._omissions.add(_MIXED, f"{via} of {service.namespace}/{service.name} from outside")
            return
        for outcome, (entry, promise) in sorted(found.items()):
            which = f"from outside{f' at {entry.node}' if len(found) > 1 else ''}"
            target = {"node": entry.node, **({"address": str(balancers[0])} if via == "loadBalancerIP" else {})}
            if outcome != "delivered" or promise.source is not None:
                self.hosts[OUTSIDE_CLIENT] = {}
                yield self._written(service, port, ProbedFrontend(via, which, target), entry, promise, OUTSIDE_CLIENT)

    def _first_clear(
        self, service: Service, port: ServicePort, family: Family, allowed: Sequence[IPNetwork] = ()
    ) -> tuple[Caller, ExpectedResult] | None:
        """The first caller whose source address looks the same to all backends, and its promise."""
        for caller in self._callers:
            promise = through_other_frontend(
                service,
                port,
                family,
                self._slices,
                caller,
                on_the_node=self._on_nodes,
                allowed=allowed,
                own=self._pod_networks,
            )
            if promise.outcome != "delivered" or promise.source is not None:
                return caller, promise
        return None

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

    def _client(self, caller: Caller) -> str:
        first = caller.node == self._callers[0].node
        name = CLIENT if first else self._converted.names.of(("client", caller.node), f"client-on-{caller.node}")
        self.clients.setdefault(name, {"nodes": [caller.node]})
        return name

    def _written(
        self,
        service: Service,
        port: ServicePort,
        frontend: ProbedFrontend,
        caller: Caller,
        promise: ExpectedResult,
        sender: str = "",
    ) -> Data:
        target = {
            "service": f"{service.namespace}/{service.name}",
            "port": port.name or port.port,
            "via": frontend.via,
            **frontend.target,
        }
        words = [service.namespace, service.name, str(port.name or port.port), "by", frontend.via, frontend.which]
        expect = self._expected(service, caller, promise)
        return _probe(" ".join(filter(None, words)), sender or self._client(caller), target, port.protocol, expect)

    def _expected(self, service: Service, caller: Caller, promise: ExpectedResult) -> Data:
        if promise.outcome == "dropped":
            return {"outcome": "dropped", "at": caller.node}
        if promise.outcome != "delivered":
            return {"outcome": promise.outcome}
        names = sorted({self._converted.listeners[each.address, each.port] for each in promise.used})
        sticky = {"spread": "sticky"} if service.affinity_timeout is not None and len(names) > 1 else {}
        return {"outcome": "delivered", "backends": names, "source": promise.source, **sticky}


def _probe(name: str, client: str, target: Mapping[str, object], protocol: Protocol, expect: Data) -> Data:
    """A probe with enough flows to reach each backend; a single flow uses a socket, except by SCTP."""
    count = len(expect.get("backends", []))
    flows = flows_to_stick(count) if "spread" in expect else flows_to_hit_all(count) if count > 1 else 1
    send = {"as": "packet", "flows": flows} if flows > 1 else {"as": "packet"} if protocol is Protocol.SCTP else {}
    return {"name": name, "from": client, "to": dict(target), **({"send": send} if send else {}), "expect": expect}
