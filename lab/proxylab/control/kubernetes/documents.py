"""Objects as the real API server has them: those of a scenario written for it, and its own read.

What the lab does not know of an object, such as who manages its fields, is left out on the way in.
"""

from collections.abc import Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Any, Final

from proxylab.addresses import Family, IPAddress, Protocol
from proxylab.cluster.objects import (
    SERVICE_NAME_LABEL,
    Endpoint,
    EndpointPort,
    EndpointSlice,
    KubeObject,
    LoadBalancerIngress,
    Namespace,
    Node,
    Pod,
    Service,
    ServicePort,
    ServiceType,
    TrafficPolicy,
)
from proxylab.control.kubeapi.manifest import Document, manifest

SERVICES: Final = "/api/v1/services"
SLICES: Final = "/apis/discovery.k8s.io/v1/endpointslices"
MERGE: Final = "application/merge-patch+json"
STRATEGIC_MERGE: Final = "application/strategic-merge-patch+json"

_OF_SERVER: Final = ("uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
_DEFAULT_TIMEOUT: Final = 10800
_IMAGE: Final = "proxylab.invalid/pod"
"""What a pod of a scenario runs: the lab itself answers in its namespace."""

_CAPACITY: Final = {"pods": "110", "cpu": "8", "memory": "16Gi", "ephemeral-storage": "64Gi"}


def collection_of(thing: KubeObject) -> str:
    """The path of the collection in which an object is created."""
    match thing:
        case Namespace():
            return "/api/v1/namespaces"
        case Node():
            return "/api/v1/nodes"
        case Pod() | Service():
            return f"/api/v1/namespaces/{thing.key.namespace}/{type(thing).__name__.lower()}s"
        case EndpointSlice():
            return f"/apis/discovery.k8s.io/v1/namespaces/{thing.namespace}/endpointslices"
        case _:
            raise ValueError(f"{thing.key} is of no kind that a lab creates")


def created(thing: KubeObject) -> Document:
    """The document by which an object of the lab is created, without what the server sets."""
    document = manifest(thing, 0, "")
    metadata = {key: value for key, value in document["metadata"].items() if key not in _OF_SERVER}
    document = {**document, "metadata": metadata}
    if isinstance(thing, Pod):
        document["spec"] = {
            **document["spec"],
            "containers": [{**each, "image": _IMAGE} for each in document["spec"]["containers"]],
            **({"hostname": thing.hostname} if thing.hostname else {}),
            **({"subdomain": thing.subdomain} if thing.subdomain else {}),
            # The scenario has placed it, on whatever taints its node has.
            "tolerations": [{"operator": "Exists"}],
        }
    return document


def node_status(node: Node, version: str, now: str) -> Document:
    """The status that the kubelet of a node reports. ``now`` is in the format of RFC 3339."""
    addresses = [{"type": "InternalIP", "address": str(each)} for each in node.addresses]
    return {
        "status": {
            "addresses": [*addresses, {"type": "Hostname", "address": node.name}],
            "capacity": _CAPACITY,
            "allocatable": _CAPACITY,
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "KubeletReady",
                    "message": "the lab plays the kubelet of this node",
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": now,
                }
            ],
            "nodeInfo": {
                "kubeletVersion": version,
                "containerRuntimeVersion": "proxylab://namespaces",
                "operatingSystem": "linux",
                "osImage": "proxylab",
                **dict.fromkeys(("architecture", "bootID", "kernelVersion", "machineID", "systemUUID"), ""),
                "kubeProxyVersion": "",
            },
        }
    }


def pod_status(pod: Pod, host: Sequence[IPAddress], now: str) -> Document:
    """The status of a pod of the lab, which runs. ``host`` has its node's addresses."""
    document = created(pod)
    return running_status(document, pod.addresses, host, now, is_ready=pod.ready)


def running_status(
    pod: Document, addresses: Sequence[IPAddress], host: Sequence[IPAddress], now: str, *, is_ready: bool = True
) -> Document:
    """The status of a pod that runs, by its document."""
    own = [{"ip": str(each)} for each in addresses]
    conditions = {"PodScheduled": True, "Initialized": True, "ContainersReady": is_ready, "Ready": is_ready}
    return {
        "status": {
            "phase": "Running",
            "startTime": now,
            "hostIP": str(host[0]),
            "hostIPs": [{"ip": str(each)} for each in host],
            "podIP": own[0]["ip"],
            "podIPs": own,
            "conditions": [
                {"type": name, "status": str(holds), "lastTransitionTime": now} for name, holds in conditions.items()
            ],
            "containerStatuses": [
                {
                    "name": each["name"],
                    "image": each["image"],
                    "imageID": each["image"],
                    "ready": is_ready,
                    "started": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": now}},
                }
                for each in pod["spec"]["containers"]
            ],
        }
    }


def failed_status(pod: Document, why: str) -> Document:
    """The status of a pod that its node cannot run."""
    return {
        "status": {
            "phase": "Pending",
            "containerStatuses": [
                {
                    "name": each["name"],
                    "image": each["image"],
                    "imageID": "",
                    "ready": False,
                    "restartCount": 0,
                    "state": {"waiting": {"reason": "CreateContainerError", "message": why}},
                }
                for each in pod["spec"]["containers"]
            ],
        }
    }


def service_status(service: Service) -> Document:
    """The status of a Service of type LoadBalancer, by its ingress in the scenario."""
    return {"status": manifest(service, 0, "")["status"]}


def service_of(document: Document) -> Service:
    """A Service as the API server has it."""
    metadata, spec = document["metadata"], document["spec"]
    timeout = spec.get("sessionAffinityConfig", {}).get("clientIP", {}).get("timeoutSeconds", _DEFAULT_TIMEOUT)
    is_headless = spec.get("clusterIP") == "None"
    ingress = document.get("status", {}).get("loadBalancer", {}).get("ingress") or ()
    return Service(
        **_named(metadata),
        annotations=metadata.get("annotations", {}),
        type=ServiceType(spec["type"]),
        selector=spec.get("selector", {}),
        ports=tuple(
            ServicePort(
                name=each.get("name", ""),
                protocol=Protocol(each["protocol"]),
                port=each["port"],
                target_port=each.get("targetPort", each["port"]),
                node_port=each.get("nodePort", 0),
            )
            for each in spec.get("ports", ())
        ),
        headless=is_headless,
        cluster_ips=() if is_headless else tuple(map(ip_address, filter(None, spec.get("clusterIPs", ())))),
        ip_families=tuple(map(Family, spec.get("ipFamilies", ()))),
        ip_family_policy=spec.get("ipFamilyPolicy", "SingleStack"),
        external_ips=tuple(map(ip_address, spec.get("externalIPs", ()))),
        load_balancer_ingress=tuple(
            LoadBalancerIngress(
                ip=ip_address(each["ip"]) if each.get("ip") else None,
                hostname=each.get("hostname", ""),
                ip_mode=each.get("ipMode", "VIP"),
            )
            for each in ingress
        ),
        source_ranges=tuple(ip_network(each, strict=False) for each in spec.get("loadBalancerSourceRanges", ())),
        internal_traffic_policy=TrafficPolicy(spec.get("internalTrafficPolicy", "Cluster")),
        external_traffic_policy=TrafficPolicy(spec.get("externalTrafficPolicy", "Cluster")),
        health_check_node_port=spec.get("healthCheckNodePort", 0),
        affinity_timeout=timeout if spec.get("sessionAffinity") == "ClientIP" else None,
        publish_not_ready_addresses=spec.get("publishNotReadyAddresses", False),
        traffic_distribution=spec.get("trafficDistribution", ""),
        allocate_node_ports=spec.get("allocateLoadBalancerNodePorts", True),
        external_name=spec.get("externalName", ""),
    )


def slice_of(document: Document) -> EndpointSlice | None:
    """An EndpointSlice as the API server has it; ``None`` for one of no Service, or of names (FQDN)."""
    metadata = document["metadata"]
    labels = metadata.get("labels", {})
    if SERVICE_NAME_LABEL not in labels or document["addressType"] not in list(Family):
        return None
    return EndpointSlice(
        **{**_named(metadata), "labels": {key: text for key, text in labels.items() if key != SERVICE_NAME_LABEL}},
        service=labels[SERVICE_NAME_LABEL],
        address_type=Family(document["addressType"]),
        ports=tuple(
            EndpointPort(name=each.get("name", ""), protocol=Protocol(each.get("protocol", "TCP")), port=each["port"])
            for each in document.get("ports") or ()
            if each.get("port")
        ),
        endpoints=tuple(_endpoint(each) for each in document.get("endpoints") or ()),
    )


def namespace_of(document: Document) -> Namespace:
    """A Namespace as the API server has it."""
    return Namespace(name=document["metadata"]["name"], labels=document["metadata"].get("labels", {}))


def node_of(document: Document, known: Node) -> Node:
    """A Node as people may have changed it: labels, taints, and whether it is about to go."""
    metadata, spec = document["metadata"], document.get("spec", {})
    taints = (f"{each['key']}={each.get('value', '')}:{each['effect']}" for each in spec.get("taints", ()))
    return Node(
        name=known.name,
        labels=metadata.get("labels", {}),
        addresses=known.addresses,
        pod_cidrs=known.pod_cidrs,
        taints=tuple(each.replace("=:", ":") for each in taints),
        deleting="deletionTimestamp" in metadata,
    )


def _endpoint(document: Document) -> Endpoint:
    conditions, hints = document.get("conditions", {}), document.get("hints") or {}
    # A condition that is absent means "unknown", which consumers take for ready (discovery.k8s.io/v1).
    ready = conditions.get("ready", True)
    target = document.get("targetRef") or {}
    return Endpoint(
        addresses=tuple(map(ip_address, document["addresses"])),
        ready=ready,
        serving=conditions.get("serving", ready),
        terminating=conditions.get("terminating", False),
        node_name=document.get("nodeName", ""),
        zone=document.get("zone", ""),
        hostname=document.get("hostname", ""),
        for_zones=tuple(each["name"] for each in hints.get("forZones") or ()),
        for_nodes=tuple(each["name"] for each in hints.get("forNodes") or ()),
        target=target.get("name", "") if target.get("kind") == "Pod" else "",
    )


def _named(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {"namespace": metadata["namespace"], "name": metadata["name"], "labels": metadata.get("labels", {})}
