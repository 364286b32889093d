"""The document of ``proxylab plan``: what a scenario's lab consists of."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from proxylab.addresses import Family
from proxylab.cluster.kube_dns import KUBE_DNS
from proxylab.cluster.objects import KubeObject, Service
from proxylab.cluster.slices import slices_of
from proxylab.plan.assembly import LabLayout
from proxylab.plan.model import Plan, Role
from proxylab.plan.name_servers import has_own_server, own_devices
from proxylab.plan.sources import snat_source

_DEVICES: Final = ("uplink", "pods", "overlay")


def overview(layout: LabLayout) -> dict[str, Any]:
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
            "podNetwork": str(network.pod_network),
            "interNode": str(network.inter_node),
            "outboundMasquerade": network.outbound_masquerade,
            "hairpin": str(network.hairpin) if network.pod_network == "bridge" else None,
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
                "announcedBy": each.announced_by or None,
            }
            for each in plan.balancers
        ],
        "services": [_service(service, layout.objects) for service in layout.services if service.key not in hidden],
    }


def _names(plan: Plan, role: Role) -> list[str]:
    return [namespace.name for namespace in plan.namespaces if namespace.role is role]


def _addresses(plan: Plan, name: str) -> list[str]:
    return [f"{each.interface} dev {each.device}" for each in plan.namespace(name).addresses]


def _node(layout: LabLayout, name: str) -> dict[str, Any]:
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
