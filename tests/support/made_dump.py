"""A made dump of a cluster with 30 Services, as ``kubectl get`` prints it, with the oddities of real dumps.

``PLANTED`` lists the twelve places where mode nftables does something else than mode iptables; nothing else differs.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import yaml
from msgspec import Struct

__all__ = ["PLANTED", "SERVICES", "PlantedDifference", "made_dump"]

Raw = dict[str, Any]

WORKERS: Final = ("worker-1.example.internal", "worker-2.example.internal")
CONTROL: Final = "control-1.example.internal"
_NODE_ADDRESSES: Final = {
    CONTROL: ("172.18.0.2", "fd00:172:18::2"),
    WORKERS[0]: ("172.18.0.3", "fd00:172:18::3"),
    WORKERS[1]: ("172.18.0.4", "fd00:172:18::4", "172.18.0.44"),  # a second one on the same device
}
_POD_NETWORKS: Final = {
    CONTROL: ("10.244.0.0/24", "fd00:10:244::/64"),
    WORKERS[0]: ("10.244.1.0/24", "fd00:10:244:1::/64"),
    WORKERS[1]: ("10.244.2.0/24", "fd00:10:244:2::/64"),
}


class MadePod(Struct, frozen=True, kw_only=True):
    """A pod of the dump: its node by position, its state, and the workload that made it."""

    name: str
    node: int = 0
    ready: bool = True
    serving: bool = True
    leaving: bool = False
    host_network: bool = False
    owner: str = "ReplicaSet"


class MadeService(Struct, frozen=True, kw_only=True):
    """A Service of the dump, its ports as (name, port, target, node port, protocol), and its pods."""

    name: str
    namespace: str = "shop"
    spec: Mapping[str, Any] = {}
    labels: Mapping[str, str] = {}
    ports: Sequence[tuple[str, int, int, int, str]] = (("http", 80, 8080, 0, "TCP"),)
    pods: Sequence[MadePod] = ()
    families: Sequence[str] = ("IPv4",)
    ingress: Sequence[Mapping[str, str]] = ()
    zones: Sequence[str] = ()
    slices: int = 1


def _pods(name: str, *nodes: int, owner: str = "ReplicaSet", host_network: bool = False) -> list[MadePod]:
    """Ready pods on these workers, named as their owner names them."""
    suffixes = {"ReplicaSet": "7d4b9c6f5-x{}kq2", "StatefulSet": "{}", "DaemonSet": "p{}7zt"}
    return [
        MadePod(name=f"{name}-{suffixes[owner].format(number)}", node=node, owner=owner, host_network=host_network)
        for number, node in enumerate(nodes)
    ]


def _http(node_port: int = 0) -> tuple[tuple[str, int, int, int, str]]:
    return (("http", 80, 8080, node_port, "TCP"),)


_CLIENT_IP: Final = {
    "sessionAffinity": "ClientIP",
    "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}},
}
_BALANCED: Final = {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False}
_DUAL: Final = ("IPv4", "IPv6")
_RANGES: Final = {"loadBalancerSourceRanges": ["198.18.0.0/15"]}

SERVICES: Final[tuple[MadeService, ...]] = (
    MadeService(name="web", spec={"type": "NodePort"}, ports=_http(30080), pods=_pods("web", 0, 1)),
    MadeService(
        name="api", ports=[("http", 80, 8080, 0, "TCP"), ("grpc", 9090, 9091, 0, "TCP")], pods=_pods("api", 0, 1)
    ),
    MadeService(name="cart", spec={"clusterIP": "None"}, pods=_pods("cart", 0, 1, owner="StatefulSet")),
    MadeService(name="cart-sticky", spec=_CLIENT_IP, pods=_pods("sticky", 0, 1)),
    MadeService(
        name="pay",
        spec={**_BALANCED, "externalTrafficPolicy": "Local", "healthCheckNodePort": 32001},
        pods=_pods("pay", 0),
        ingress=[{"ip": "192.0.2.10", "ipMode": "VIP"}],
    ),
    MadeService(name="legacy", spec={"type": "ExternalName", "externalName": "db.example.com"}, ports=()),
    MadeService(name="partner", spec={"externalIPs": ["192.0.2.20"]}, pods=_pods("partner", 0, 1)),
    MadeService(name="partner-old", spec={"externalIPs": ["192.0.2.21"]}),
    MadeService(name="lb-old", spec=_BALANCED, ingress=[{"ip": "192.0.2.11"}]),
    MadeService(
        name="lb-ranges", spec={**_BALANCED, **_RANGES}, pods=_pods("ranged", 1), ingress=[{"ip": "192.0.2.12"}]
    ),
    MadeService(
        name="draining",
        pods=[MadePod(name="draining-7d4b9c6f5-abcde", ready=False, leaving=True)],
    ),
    MadeService(
        name="rollout",
        pods=[
            MadePod(name="rollout-5c9f7-new11"),
            MadePod(name="rollout-5c9f7-new12", node=1, ready=False, serving=False),
            MadePod(name="rollout-6d8b4-old11", node=1, ready=False, leaving=True),
        ],
    ),
    MadeService(name="dual", families=_DUAL, pods=_pods("dual", 0, 1)),
    MadeService(name="six", families=("IPv6",), pods=_pods("six", 0)),
    MadeService(
        name="dual-port", spec={"type": "NodePort"}, families=_DUAL, ports=_http(30081), pods=_pods("dual-port", 1)
    ),
    MadeService(
        name="kube-dns",
        namespace="kube-system",
        ports=[("dns", 53, 53, 0, "UDP"), ("dns-tcp", 53, 53, 0, "TCP"), ("metrics", 9153, 9153, 0, "TCP")],
        pods=_pods("coredns", 0, 1),
    ),
    MadeService(
        name="node-exporter",
        namespace="monitoring",
        spec={"internalTrafficPolicy": "Local"},
        ports=[("metrics", 9100, 9100, 0, "TCP")],
        pods=_pods("node-exporter", 0, 1, owner="DaemonSet", host_network=True),
    ),
    MadeService(
        name="syslog",
        namespace="monitoring",
        spec={"type": "NodePort"},
        ports=[("syslog", 514, 5514, 30514, "UDP")],
        pods=_pods("syslog", 0, owner="DaemonSet"),
    ),
    MadeService(name="kubernetes", namespace="default", ports=[("https", 443, 6443, 0, "TCP")]),
    MadeService(name="db", ports=[("postgres", 5432, 5432, 0, "TCP")]),
    MadeService(
        name="edge",
        spec={"type": "NodePort", "externalTrafficPolicy": "Local"},
        ports=_http(30082),
        pods=_pods("edge", 0),
    ),
    MadeService(name="wide", pods=_pods("wide", 0, 1, 1), slices=2),
    MadeService(
        name="near", spec={"trafficDistribution": "PreferClose"}, pods=_pods("near", 0, 1), zones=("zone-a", "zone-b")
    ),
    MadeService(name="lb-named", spec=_BALANCED, pods=_pods("named", 0), ingress=[{"hostname": "lb.example.com"}]),
    MadeService(
        name="lb-proxy", spec=_BALANCED, pods=_pods("proxied", 0), ingress=[{"ip": "192.0.2.13", "ipMode": "Proxy"}]
    ),
    MadeService(
        name="lb-ported",
        spec={"type": "LoadBalancer"},
        ports=_http(31080),
        pods=_pods("ported", 1),
        ingress=[{"ip": "192.0.2.14"}],
    ),
    MadeService(name="meshed", labels={"service.kubernetes.io/service-proxy-name": "mesh"}, pods=_pods("meshed", 0)),
    MadeService(
        name="eager",
        spec={"publishNotReadyAddresses": True},
        pods=[MadePod(name="eager-0", owner="StatefulSet", serving=False)],
    ),
    MadeService(name="port-old", spec={"type": "NodePort", "internalTrafficPolicy": "Local"}, ports=_http(30083)),
    MadeService(
        name="a-service-whose-name-has-as-many-characters-as-a-label-may-have",
        ports=[("http", 80, 8080, 0, "TCP"), ("quic", 80, 8080, 0, "UDP")],
        pods=_pods("a-deployment-whose-name-fills-the-label-of-its-pods", 0),
    ),
)
"""Of Deployments, StatefulSets and DaemonSets; dual stack, Local, affinity, ranges, external IPs, terminating pods."""


class PlantedDifference(Struct, frozen=True, kw_only=True):
    """What differs in mode nftables: at which frontends of which Services, and what each proxy does.

    ``frontend`` is a regular expression; ``services`` is empty for what concerns no Service.
    """

    title: str
    services: frozenset[str]
    frontend: str
    before: str
    after: str

    def concerns(self, service: str, frontend: str) -> bool:
        """Whether a question is about it."""
        is_its_own = service in self.services if self.services else not service
        return is_its_own and re.fullmatch(self.frontend, frontend) is not None


_MESHED: Final = "shop/meshed"
_WITH_CLUSTER_IP: Final = frozenset(
    f"{each.namespace}/{each.name}"
    for each in SERVICES
    if each.spec.get("clusterIP") != "None" and each.spec.get("type") != "ExternalName"
) - {_MESHED}
_ON_LOCALHOST: Final = r"nodePort \d+/(TCP|UDP)( \(IPv4\))?"
_AT_SECOND: Final = r"nodePort \d+/(TCP|UDP) at 172\.18\.0\.44"
_OPEN: Final = ("shop/web", "shop/dual-port", "shop/lb-ported")


def _planted(
    title: str, services: Iterable[str], frontend: str, before: str, after: str = "refused"
) -> PlantedDifference:
    return PlantedDifference(
        title=title,
        services=frozenset(services),
        frontend=frontend,
        before=f"outcome {before}",
        after=f"outcome {after}",
    )


PLANTED: Final[tuple[PlantedDifference, ...]] = (
    _planted("a TCP node port on localhost", _OPEN, _ON_LOCALHOST, "delivered"),
    _planted("a UDP node port on localhost", ["monitoring/syslog"], _ON_LOCALHOST, "delivered"),
    _planted("a node port on localhost under policy Local", ["shop/edge"], _ON_LOCALHOST, "delivered"),
    _planted("a node port without endpoints on localhost", ["shop/port-old"], _ON_LOCALHOST, "rejected"),
    _planted(
        "a node port at the second address of a node",
        [*_OPEN, "monitoring/syslog", "shop/edge"],
        _AT_SECOND,
        "delivered",
    ),
    _planted("a node port without endpoints at the second address", ["shop/port-old"], _AT_SECOND, "rejected"),
    _planted("an unused port of a cluster IP", _WITH_CLUSTER_IP, "beside: unused port .*", "untranslated", "rejected"),
    _planted(
        "an echo request to a cluster IP", _WITH_CLUSTER_IP, "beside: echo request .*", "untranslated", "rejected"
    ),
    _planted(
        "an external IP without endpoints, from a node",
        ["shop/partner-old"],
        "externalIP .*",
        "untranslated",
        "rejected",
    ),
    _planted(
        "a load balancer's IP without endpoints, from a node",
        ["shop/lb-old"],
        "loadBalancerIP .*",
        "untranslated",
        "rejected",
    ),
    _planted("the cluster IP of another proxy's Service", [_MESHED], ".*", "untranslated", "dropped"),
    _planted("an address that no Service has", [], "beside: unassigned address .*", "untranslated", "dropped"),
)


class _Dump:
    """Writes the objects; addresses are given in the order of the Services."""

    def __init__(self) -> None:
        self._pod_numbers = dict.fromkeys(_POD_NETWORKS, 9)

    def objects(self) -> Iterator[Raw]:
        for name, addresses in _NODE_ADDRESSES.items():
            yield self._node(name, addresses)
        for number, service in enumerate(SERVICES):
            yield self._service(service, number)
            pods = [self._pod(each, service) for each in service.pods]
            yield from pods
            yield from self._slices(service, pods)
        yield from self._oddities()

    def _node(self, name: str, addresses: Sequence[str]) -> Raw:
        labels = {"kubernetes.io/hostname": name, "node.kubernetes.io/instance-type": "m5.large"}
        taints = []
        if name in WORKERS:
            labels["topology.kubernetes.io/zone"] = f"zone-{'ab'[WORKERS.index(name)]}"
        else:
            labels["node-role.kubernetes.io/control-plane"] = ""
            taints = [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels, "uid": f"node-{name}", "managedFields": _managed()},
            "spec": {
                "podCIDR": _POD_NETWORKS[name][0],
                "podCIDRs": list(_POD_NETWORKS[name]),
                "providerID": f"cloud:///{name}",
                **({"taints": taints} if taints else {}),
            },
            "status": {
                "addresses": [
                    *({"type": "InternalIP", "address": each} for each in addresses),
                    {"type": "Hostname", "address": name},
                ],
                "conditions": [
                    {"type": "MemoryPressure", "status": "False"},
                    {"type": "Ready", "status": "True", "lastHeartbeatTime": None},
                ],
                "nodeInfo": {"kubeletVersion": "v1.34.1", "kubeProxyVersion": ""},
                "images": [{"names": ["registry.k8s.io/kube-proxy:v1.34.1"], "sizeBytes": 1}],
            },
        }

    def _service(self, made: MadeService, number: int) -> Raw:
        spec: Raw = {"type": "ClusterIP", "internalTrafficPolicy": "Cluster", "sessionAffinity": "None", **made.spec}
        if spec["type"] != "ExternalName":
            by_family = {"IPv4": f"10.96.1.{number + 1}", "IPv6": f"fd00:10:96::{number + 1:x}"}
            ips = ["None"] if spec.get("clusterIP") == "None" else [by_family[each] for each in made.families]
            ips = ["10.96.0.1"] if made.name == "kubernetes" else ips
            spec |= {"clusterIP": ips[0], "clusterIPs": ips, "ipFamilies": list(made.families)}
            spec["ipFamilyPolicy"] = "SingleStack" if len(made.families) == 1 else "PreferDualStack"
        if made.pods:
            spec["selector"] = {"app": made.name[:60]}
        spec["ports"] = [
            {
                "name": name,
                "port": port,
                "targetPort": target,
                "protocol": protocol,
                **({"nodePort": own} if own else {}),
            }
            for name, port, target, own, protocol in made.ports
        ] or None
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": made.name,
                "namespace": made.namespace,
                "labels": {"app.kubernetes.io/managed-by": "Helm", **made.labels},
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": '{"kind":"Service"}\n'},
                "creationTimestamp": "2021-03-04T05:06:07Z",
                "resourceVersion": str(1000 + number),
                "managedFields": _managed(),
            },
            "spec": spec,
            "status": {"loadBalancer": {"ingress": list(made.ingress)} if made.ingress else {}},
        }

    def _addresses(self, pod: MadePod) -> list[str]:
        node = WORKERS[pod.node]
        if pod.host_network:
            return list(_NODE_ADDRESSES[node][:2])
        self._pod_numbers[node] += 1
        number = self._pod_numbers[node]
        return [f"10.244.{pod.node + 1}.{number}", f"fd00:10:244:{pod.node + 1}::{number:x}"]

    def _pod(self, pod: MadePod, service: MadeService) -> Raw:
        addresses = self._addresses(pod)
        metadata: Raw = {
            "name": pod.name[:63],
            "generateName": f"{pod.name.rpartition('-')[0]}-",
            "namespace": service.namespace,
            "labels": {"app": service.name[:60], "pod-template-hash": "7d4b9c6f5"},
            "ownerReferences": [{"kind": pod.owner, "name": pod.name.rpartition("-")[0], "controller": True}],
        }
        if pod.leaving:
            metadata |= {"deletionTimestamp": "2026-01-02T03:04:05Z", "deletionGracePeriodSeconds": 30}
        is_serving = (pod.ready or pod.leaving) and pod.serving
        containers = [{"name": "proxy", "image": "envoy"}, {"name": "main", "image": "main:latest", "ports": None}]
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {
                "nodeName": WORKERS[pod.node],
                "containers": containers,
                **({"hostNetwork": True} if pod.host_network else {}),
            },
            "status": {
                "phase": "Running",
                "podIP": addresses[0],
                "podIPs": [{"ip": each} for each in addresses],
                "hostIP": _NODE_ADDRESSES[WORKERS[pod.node]][0],
                "conditions": [{"type": "Ready", "status": str(is_serving)}],
            },
        }

    def _slices(self, made: MadeService, pods: Sequence[Raw]) -> Iterator[Raw]:
        outside = {"kubernetes": ("172.18.0.2", {}), "db": ("198.51.100.77", {})}
        for family in made.families if made.spec.get("type") != "ExternalName" else ():
            endpoints = [
                self._endpoint(pod, raw, family, made, number)
                for number, (pod, raw) in enumerate(zip(made.pods, pods, strict=True))
            ]
            if made.name in outside:
                endpoints = [{"addresses": [outside[made.name][0]], "conditions": {"ready": True}}]
            for number in range(made.slices):
                yield {
                    "apiVersion": "discovery.k8s.io/v1",
                    "kind": "EndpointSlice",
                    "metadata": {
                        "name": f"{made.name[:50]}-{family.lower()}{number}",
                        "namespace": made.namespace,
                        "labels": {
                            "kubernetes.io/service-name": made.name,
                            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                        },
                    },
                    "addressType": family,
                    "ports": [
                        {"name": name, "port": target, "protocol": protocol}
                        for name, _, target, _, protocol in made.ports
                    ]
                    if endpoints
                    else None,
                    "endpoints": endpoints[number :: made.slices] or None,
                }

    def _endpoint(self, pod: MadePod, raw: Raw, family: str, made: MadeService, number: int) -> Raw:
        is_serving = pod.serving or bool(made.spec.get("publishNotReadyAddresses"))
        endpoint: Raw = {
            "addresses": [raw["status"]["podIPs"][family == "IPv6"]["ip"]],
            "conditions": {"ready": pod.ready, "serving": is_serving, "terminating": pod.leaving},
            "nodeName": WORKERS[pod.node],
            "zone": f"zone-{'ab'[pod.node]}",
            "targetRef": {"kind": "Pod", "name": raw["metadata"]["name"], "namespace": made.namespace, "uid": "x"},
        }
        if made.zones:
            endpoint["hints"] = {"forZones": [{"name": made.zones[number]}]}
        return endpoint

    def _oddities(self) -> Iterator[Raw]:
        """What real dumps have besides: finished and waiting pods, slices of nothing, other kinds, a configuration."""
        common = {"namespace": "shop", "labels": {"app": "web"}}
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**common, "name": "web-evicted"},
            "spec": {"nodeName": WORKERS[0], "containers": []},
            "status": {"phase": "Failed", "reason": "Evicted"},
        }
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**common, "name": "web-waiting", "creationTimestamp": None},
            "spec": {"containers": [{"name": "main"}]},
            "status": {"phase": "Pending"},
        }
        yield {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "gone-x7k2p", "namespace": "shop", "labels": {"kubernetes.io/service-name": "gone"}},
            "addressType": "IPv4",
            "ports": [{"name": "", "port": 80, "protocol": "TCP"}],
            "endpoints": [{"addresses": ["10.244.1.250"], "conditions": {}}],
        }
        yield {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "web-fqdn", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "FQDN",
            "ports": None,
            "endpoints": [{"addresses": ["web.example.com"]}],
        }
        yield {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "web.17", "namespace": "shop"}, "count": 3}
        yield {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "kube-proxy", "namespace": "kube-system"},
            "data": {
                "config.conf": yaml.safe_dump(
                    {
                        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
                        "kind": "KubeProxyConfiguration",
                        "mode": "iptables",
                        "bindAddress": "0.0.0.0",
                        "clusterCIDR": "10.244.0.0/16,fd00:10:244::/56",
                        "iptables": {"masqueradeAll": False, "masqueradeBit": None, "localhostNodePorts": None},
                        "nodePortAddresses": None,
                    }
                ),
                "kubeconfig.conf": "apiVersion: v1\nkind: Config\n",
            },
        }


def _managed() -> list[Raw]:
    return [{"manager": "kubectl-client-side-apply", "operation": "Update", "fieldsV1": {"f:spec": {".": {}}}}]


def made_dump() -> str:
    """What ``kubectl get svc,endpointslices,pods,nodes,configmaps,events -A -o yaml`` prints of the cluster."""
    whole = {"apiVersion": "v1", "items": list(_Dump().objects()), "kind": "List", "metadata": {"resourceVersion": ""}}
    return yaml.safe_dump(whole, sort_keys=True)
