"""Kubernetes objects and a proxy's configuration as plain data, for ``printing``. Reading the data gives the same."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.cluster.objects import EndpointSlice, Service

__all__ = ["Data", "given", "printed_proxy", "printed_service", "printed_slice", "texts"]

Data = dict[str, Any]


def given(**keys: Any) -> Data:
    """The keys that are not empty; ``from_`` stands for ``from``."""
    named = {key.rstrip("_"): value for key, value in keys.items()}
    return {key: value for key, value in named.items() if value not in (None, "", [], {}, False)}


def texts(values: Iterable[object]) -> list[str]:
    """The values as text."""
    return [str(value) for value in values]


def printed_proxy(proxy: ProxyConfiguration) -> Data:
    """The KubeProxyConfiguration document."""
    conntrack = proxy.conntrack
    networks = ["primary"] if proxy.node_port_primary else texts(proxy.node_port_addresses)
    document = given(
        apiVersion="kubeproxy.config.k8s.io/v1alpha1",
        kind="KubeProxyConfiguration",
        bindAddress=str(proxy.bind_address or ""),
        detectLocalMode=str(proxy.detect_local_mode),
        detectLocal=given(bridgeInterface=proxy.bridge_interface, interfaceNamePrefix=proxy.interface_name_prefix),
        nodePortAddresses=networks,
        healthzBindAddress=str(proxy.healthz),
        metricsBindAddress=str(proxy.metrics),
        featureGates=dict(proxy.feature_gates),
    )
    if proxy.cluster_cidrs is not None:
        document["clusterCIDR"] = ",".join(texts(proxy.cluster_cidrs))
    document["iptables"] = {
        "masqueradeBit": proxy.masquerade_bit,
        "masqueradeAll": proxy.masquerade_all,
        "localhostNodePorts": proxy.localhost_node_ports,
        "syncPeriod": _duration(proxy.sync_period),
        "minSyncPeriod": _duration(proxy.min_sync_period),
    }
    document["nftables"] = {
        "masqueradeBit": proxy.nftables.masquerade_bit,
        "masqueradeAll": proxy.nftables.masquerade_all,
        "syncPeriod": _duration(proxy.nftables.sync_period),
        "minSyncPeriod": _duration(proxy.nftables.min_sync_period),
    }
    document["conntrack"] = {
        "tcpEstablishedTimeout": _duration(conntrack.tcp_established),
        "tcpCloseWaitTimeout": _duration(conntrack.tcp_close_wait),
        "udpTimeout": _duration(conntrack.udp),
        "udpStreamTimeout": _duration(conntrack.udp_stream),
        "tcpBeLiberal": conntrack.tcp_be_liberal,
    }
    return document


def _duration(seconds: float) -> str:
    """In seconds; reading them back does not round."""
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


def printed_service(service: Service) -> Data:
    """The manifest of a Service."""
    affinity = {"clientIP": {"timeoutSeconds": service.affinity_timeout}} if service.affinity_timeout else None
    exposed = service.type in ("NodePort", "LoadBalancer") or bool(service.external_ips)
    spec = given(
        type=str(service.type),
        selector=dict(service.selector),
        ports=[
            given(
                name=port.name,
                protocol=str(port.protocol),
                port=port.port,
                targetPort=port.target_port,
                nodePort=port.node_port,
            )
            for port in service.ports
        ],
        clusterIP="None" if service.headless else None,
        clusterIPs=texts(service.cluster_ips),
        ipFamilies=texts(service.ip_families),
        ipFamilyPolicy=service.ip_family_policy if service.type != "ExternalName" else None,
        externalIPs=texts(service.external_ips),
        loadBalancerSourceRanges=texts(service.source_ranges),
        internalTrafficPolicy=str(service.internal_traffic_policy),
        externalTrafficPolicy=str(service.external_traffic_policy) if exposed else None,
        healthCheckNodePort=service.health_check_node_port,
        sessionAffinity="ClientIP" if affinity else None,
        sessionAffinityConfig=affinity,
        publishNotReadyAddresses=service.publish_not_ready_addresses,
        trafficDistribution=service.traffic_distribution,
        externalName=service.external_name,
    )
    if not service.allocate_node_ports:
        spec["allocateLoadBalancerNodePorts"] = False
    ingress = [
        given(ip=str(each.ip) if each.ip else None, hostname=each.hostname, ipMode=each.ip_mode)
        for each in service.load_balancer_ingress
    ]
    status = given(status={"loadBalancer": {"ingress": ingress}} if ingress else None)
    return {"apiVersion": "v1", "kind": "Service", "metadata": _object(service), "spec": spec, **status}


def _object(thing: Service | EndpointSlice) -> Data:
    annotations = dict(thing.annotations) if isinstance(thing, Service) else {}
    return given(name=thing.name, namespace=thing.namespace, labels=dict(thing.labels), annotations=annotations)


def printed_slice(slice_: EndpointSlice) -> Data:
    """The manifest of an EndpointSlice."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": _object(slice_),
        "addressType": str(slice_.address_type),
        "ports": [{"name": port.name, "protocol": str(port.protocol), "port": port.port} for port in slice_.ports],
        "endpoints": [
            given(
                addresses=texts(each.addresses),
                conditions={"ready": each.ready, "serving": each.serving, "terminating": each.terminating},
                nodeName=each.node_name,
                zone=each.zone,
                hostname=each.hostname,
                hints=_hints({"forZones": each.for_zones, "forNodes": each.for_nodes}),
                targetRef={"kind": "Pod", "name": each.target} if each.target else None,
            )
            for each in slice_.endpoints
        ],
    }


def _hints(hints: Mapping[str, tuple[str, ...]]) -> Data:
    return dict(_named_hints(hints))


def _named_hints(hints: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, Any]]:
    for key, names in hints.items():
        if names:
            yield key, [{"name": name} for name in names]
