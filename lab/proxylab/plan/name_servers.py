"""DNS in a lab: the pods that serve names, and the /etc/resolv.conf of every pod.

A scenario that uses names has the Service ``kube-dns``. By default its endpoint is a pod of the lab's own, which no
author can name and no report counts. If the author declares that Service, the pods that it selects serve names.
"""

from collections.abc import Iterable, Mapping

from proxylab.addresses import IPAddress
from proxylab.cluster.kube_dns import COREDNS, KUBE_DNS, resolv_conf
from proxylab.cluster.objects import Service
from proxylab.plan.model import Plan, Role
from proxylab.plan.resolved import Sentinel
from proxylab.scenario.model import Scenario
from proxylab.scenario.pods import PodGroup

__all__ = [
    "has_own_server",
    "name_servers",
    "namespace_of_name_server",
    "own_addresses",
    "own_devices",
    "resolv_confs",
    "serves_names",
]


def has_own_server(scenario: Scenario) -> bool:
    """Whether the lab adds its own name server and the Service for it."""
    return scenario.has_names and _declared(scenario) is None


def serves_names(scenario: Scenario, group: PodGroup) -> bool:
    """Whether the pods of an entry serve names for a ``kube-dns`` that the author declares."""
    service = _declared(scenario) if scenario.has_names else None
    if service is None or not service.selector or group.namespace != service.namespace:
        return False
    return service.selector.items() <= group.labels.items()


def _declared(scenario: Scenario) -> Service | None:
    return next((service for service in scenario.services if service.key == KUBE_DNS), None)


def namespace_of_name_server(node: str) -> str:
    """The namespace of the lab's own name server on its node. No author's name can hold ``@``."""
    return f"{COREDNS}@{node}"


def name_servers(plan: Plan) -> tuple[Sentinel, ...]:
    """The name servers without the Service: an address of each family for each pod."""
    servers: dict[tuple[str, IPAddress], Sentinel] = {}
    for namespace in plan.namespaces:
        for listener in namespace.listeners:
            if listener.serves_names:
                own = [pod.addresses for pod in plan.pods if pod.name == listener.name] or [_own(plan, namespace.name)]
                for address in own[0]:
                    servers[listener.name, address] = Sentinel(name=listener.name, address=address)
    return tuple(servers.values())


def own_addresses(plan: Plan) -> tuple[IPAddress, ...]:
    """The addresses of the lab's own name server; empty if it has none."""
    pods = {pod.name for pod in plan.pods}
    return tuple(each.address for each in name_servers(plan) if each.name == COREDNS and each.name not in pods)


def _own(plan: Plan, namespace: str) -> tuple[IPAddress, ...]:
    addresses = (address.interface.ip for address in plan.namespace(namespace).addresses)
    return tuple(address for address in addresses if not address.is_link_local)


def own_devices(plan: Plan) -> frozenset[tuple[str, str]]:
    """The node's end of the link to the lab's own name server, by node and device."""
    homes = {
        namespace.name
        for namespace in plan.namespaces
        if any(listener.serves_names and listener.name == COREDNS for listener in namespace.listeners)
        and all(pod.namespace != namespace.name for pod in plan.pods)
    }
    return frozenset((link.first.namespace, link.first.device) for link in plan.links if link.second.namespace in homes)


def resolv_confs(scenario: Scenario, plan: Plan, services: Iterable[Service]) -> Mapping[str, str]:
    """The /etc/resolv.conf of each pod's own namespace; empty if the lab has no names.

    Nodes and outside hosts use other name servers than the cluster's, and a lab has none of those.
    """
    servers = next((service.cluster_ips for service in services if service.key == KUBE_DNS), ())
    if not scenario.has_names:
        return {}
    namespaces = {name: group.namespace for group in scenario.pods for name in group.pod_names}
    return {
        pod.namespace: resolv_conf(namespaces[pod.name], servers)
        for pod in plan.pods
        if plan.namespace(pod.namespace).role is Role.POD
    }
