"""The document of ``proxylab plan``, and its text: what a scenario's lab consists of."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from proxylab.addresses import Family
from proxylab.cluster.kube_dns import KUBE_DNS
from proxylab.cluster.objects import KubeObject, Service
from proxylab.cluster.slices import slices_of
from proxylab.plan.assembly import Layout
from proxylab.plan.model import Plan, Role
from proxylab.plan.name_servers import has_own_server, own_devices
from proxylab.plan.sources import snat_source
from proxylab.text import WIDTH, wrapped

__all__ = ["overview", "overview_lines", "snat_sources"]

_DEVICES: Final = ("uplink", "pods", "overlay")


def overview(layout: Layout) -> dict[str, Any]:
    """The lab with all allocated addresses and defaults, as JSON values. The keys are those of the scenario format."""
    scenario, plan = layout.scenario, layout.plan
    network = scenario.network
    hidden = {KUBE_DNS} if has_own_server(scenario) else set()
    return {
        "apiVersion": "proxylab/v1",
        "kind": "Plan",
        "scenario": scenario.name,
        "case": scenario.case.id,
        "network": {
            "families": list(map(str, network.families)),
            "podNetwork": network.pod_network,
            "interNode": network.inter_node,
            "outboundMasquerade": network.outbound_masquerade,
            "hairpin": network.hairpin if network.pod_network == "bridge" else None,
            "podCIDR": list(map(str, network.pod_cidrs)),
            "serviceCIDR": list(map(str, network.service_cidrs)),
            "nodeCIDR": list(map(str, network.node_cidrs)),
            "outsideCIDR": list(map(str, network.outside_cidrs)),
        },
        "nodes": [_node(layout, name) for name in _names(plan, Role.NODE)],
        "pods": [
            {"name": pod.name, "node": pod.node, "namespace": pod.namespace, "addresses": list(map(str, pod.addresses))}
            for pod in plan.pods
        ],
        "hosts": [{"name": name, "addresses": _addresses(plan, name)} for name in _names(plan, Role.HOST)],
        "loadBalancers": [
            {
                "name": each.name,
                "pool": list(map(str, each.pool)),
                "nodes": list(each.nodes),
                "healthChecked": each.health_checked,
            }
            for each in plan.balancers
        ],
        "services": [_service(service, layout.objects) for service in layout.services if service.key not in hidden],
    }


def _names(plan: Plan, role: Role) -> list[str]:
    return [namespace.name for namespace in plan.namespaces if namespace.role is role]


def _addresses(plan: Plan, name: str) -> list[str]:
    return [f"{each.interface} dev {each.device}" for each in plan.namespace(name).addresses]


def _node(layout: Layout, name: str) -> dict[str, Any]:
    """A node with the source addresses that masquerading sets, by output device."""
    sources: dict[str, list[str]] = {}
    for device, source in snat_sources(layout.plan, name, layout.scenario.network.families):
        sources.setdefault(device, []).append(source)
    hidden = {device for node, device in own_devices(layout.plan) if node == name}
    own = dict.fromkeys(each for each in _addresses(layout.plan, name) if each.rpartition(" ")[2] not in hidden)
    return {"name": name, "addresses": list(own), "snatSources": sources}


def snat_sources(plan: Plan, node: str, families: Sequence[Family]) -> Iterator[tuple[str, str]]:
    """The output devices of a node, each with the source address that masquerading sets in each family."""
    for device in _DEVICES:
        for family in families:
            with suppress(LookupError):
                yield device, str(snat_source(plan, node, device, family))


def _service(service: Service, objects: Sequence[KubeObject]) -> dict[str, Any]:
    return {
        "name": f"{service.namespace}/{service.name}",
        "type": str(service.type),
        "clusterIPs": ["None"] if service.headless else list(map(str, service.cluster_ips)),
        "externalIPs": list(map(str, service.external_ips)),
        "loadBalancerIPs": [str(each.ip) for each in service.load_balancer_ingress if each.ip],
        "ports": [
            {
                "name": port.name,
                "protocol": str(port.protocol),
                "port": port.port,
                "targetPort": port.target_port,
                "nodePort": port.node_port or None,
            }
            for port in service.ports
        ],
        "healthCheckNodePort": service.health_check_node_port or None,
        "internalTrafficPolicy": str(service.internal_traffic_policy),
        "externalTrafficPolicy": str(service.external_traffic_policy),
        "affinityTimeout": service.affinity_timeout,
        "endpoints": [
            {
                "addresses": list(map(str, endpoint.addresses)),
                "ports": [f"{port.protocol} {port.port}" for port in each.ports],
                "pod": endpoint.target or None,
                "node": endpoint.node_name or None,
                "ready": endpoint.ready,
                "serving": endpoint.serving,
                "terminating": endpoint.terminating,
            }
            for each in slices_of(service, objects)
            for endpoint in each.endpoints
        ],
    }


def overview_lines(document: dict[str, Any], width: int = WIDTH) -> Iterator[str]:
    """The document as text, a paragraph for each object; long lists are wrapped at ``width``."""
    network = document["network"]
    yield f"scenario {document['scenario']}{' case ' + document['case'] if document['case'] else ''}"
    yield from wrapped(", ".join(_network_words(network)), "network ", width=width)
    for node in document["nodes"]:
        yield f"node {node['name']}"
        yield from (f"  address {address}" for address in node["addresses"])
        for device, sources in node["snatSources"].items():
            yield f"  masquerades what leaves by its {device} as {' and '.join(sources)}"
    for pod in document["pods"]:
        where = f" in {pod['namespace']}" if pod["namespace"] != pod["name"] else ""
        yield f"pod {pod['name']} on {pod['node']}{where}: {' '.join(pod['addresses'])}"
    for host in document["hosts"]:
        yield f"host {host['name']}: {', '.join(host['addresses'])}"
    for balancer in document["loadBalancers"]:
        checked = ", if healthy" if balancer["healthChecked"] else ""
        pool, nodes = " ".join(balancer["pool"]), " ".join(balancer["nodes"])
        yield f"load balancer {balancer['name']}: {pool} to {nodes}{checked}"
    for service in document["services"]:
        yield from _service_lines(service)


def _network_words(network: dict[str, Any]) -> Iterator[str]:
    for key, value in network.items():
        match value:
            case True:
                yield key
            case [*several]:
                yield f"{key} {' '.join(several)}"
            case str():
                yield f"{key} {value}"


def _service_lines(service: dict[str, Any]) -> Iterator[str]:
    yield f"service {service['name']}: {service['type']} {' '.join(service['clusterIPs'])}".rstrip()
    for key, word in (("externalIPs", "external IPs"), ("loadBalancerIPs", "load balancer")):
        if service[key]:
            yield f"  {word} {' '.join(service[key])}"
    for port in service["ports"]:
        name = f"{port['name']} " if port["name"] else ""
        node_port = f", node port {port['nodePort']}" if port["nodePort"] else ""
        yield f"  port {name}{port['protocol']} {port['port']} to {port['targetPort']}{node_port}"
    if service["healthCheckNodePort"]:
        yield f"  health checks on node port {service['healthCheckNodePort']}"
    policies = f"internal {service['internalTrafficPolicy']}, external {service['externalTrafficPolicy']}"
    affinity = f", affinity {service['affinityTimeout']} s" if service["affinityTimeout"] else ""
    yield f"  traffic policy {policies}{affinity}"
    for endpoint in service["endpoints"]:
        states = [state for state in ("ready", "serving", "terminating") if endpoint[state]]
        who = f" {endpoint['pod']}" if endpoint["pod"] else ""
        where = f" on {endpoint['node']}" if endpoint["node"] else ""
        ports = ", ".join(endpoint["ports"]) or "no port"
        yield f"  endpoint {' '.join(endpoint['addresses'])}{who}{where}: {ports}; {' '.join(states) or 'not ready'}"
