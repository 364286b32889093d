"""Clusters as kubectl prints them: of the shapes that kind, k3s and a cloud make.

``Cluster`` keeps house as the controllers do: pods get names and addresses, Services get EndpointSlices.
"""

import json
from ipaddress import ip_address, ip_network
from typing import Any

from kubectl_objects import Raw, condition, listed, metadata, node_status, pod_spec, pod_status, suffix, yaml_of

__all__ = ["Cluster", "cloud", "k3s", "kind", "vpc"]

Ports = list[Raw]


class Cluster:
    """A cluster that grows by its methods."""

    def __init__(self, *pod_networks: str) -> None:
        self._networks = [ip_network(each) for each in pod_networks]
        self._families = ["IPv4" if each.version == 4 else "IPv6" for each in self._networks]
        self._free: dict[str, list[Any]] = {}
        self._own: dict[str, list[str]] = {}
        self.nodes: list[Raw] = []
        self.pods: list[Raw] = []
        self.services: list[Raw] = []
        self.slices: list[Raw] = []

    @property
    def objects(self) -> list[Raw]:
        """All of them, in the order in which kubectl is asked for them."""
        return [*self.services, *self.slices, *self.pods, *self.nodes]

    def json(self) -> str:
        return json.dumps(listed(self.objects), indent=4) + "\n"

    def yaml(self) -> str:
        return yaml_of(listed(self.objects))

    def node(
        self, name: str, *own: str, zone: str = "", external: str = "", taint: str = "", ready: bool = True
    ) -> None:
        number = len(self.nodes)
        parts = [[*each.subnets(new_prefix=24 if each.version == 4 else 64)][number] for each in self._networks]
        self._free[name], self._own[name] = [iter(each.hosts()) for each in parts], list(own)
        for free in self._free[name]:
            next(free)  # the gateway
        labels = {"kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
        labels |= (
            {"topology.kubernetes.io/region": zone.rstrip("abcd-"), "topology.kubernetes.io/zone": zone} if zone else {}
        )
        addresses = [{"address": each, "type": "InternalIP"} for each in own]
        addresses += [{"address": external, "type": "ExternalIP"}] if external else []
        spec: Raw = {"podCIDR": str(parts[0]), "podCIDRs": list(map(str, parts)), "providerID": f"some:///{name}"}
        spec |= {"taints": [{"effect": "NoSchedule", "key": taint}]} if taint else {}
        self.nodes.append(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": metadata(name, "", labels, "kubelet"),
                "spec": spec,
                "status": node_status([*addresses, {"address": name, "type": "Hostname"}], ready=ready),
            }
        )

    def pod(
        self,
        namespace: str,
        name: str,
        node: str,
        *,
        app: str,
        owner: tuple[str, str],
        ports: Ports | None = None,
        host_network: bool = False,
        phase: str = "Running",
        labels: Raw | None = None,
    ) -> None:
        own = self._own.get(node, [])
        addresses = own if host_network else [str(next(free)) for free in self._free.get(node, [])]
        self.pods.append(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": metadata(name, namespace, {"app": app, **(labels or {})}, "kubelet", owner),
                "spec": pod_spec(app, node, ports or [], host_network=host_network),
                "status": pod_status(phase, phase == "Running", own[0] if own else "", addresses),
            }
        )

    def daemonset(self, namespace: str, app: str, *, host_network: bool = False, ports: Ports | None = None) -> None:
        for node in self._own:
            self.pod(
                namespace,
                f"{app}-{suffix(app, node)}",
                node,
                app=app,
                owner=("DaemonSet", app),
                host_network=host_network,
                ports=ports,
            )

    def deployment(
        self, namespace: str, app: str, *nodes: str, ports: Ports | None = None, phase: str = "Running"
    ) -> None:
        """A pod on each of these nodes."""
        template = suffix(namespace, app) * 2
        for number, node in enumerate(nodes):
            name = f"{app}-{template}-{suffix(namespace, app, str(number))}"
            labels = {"pod-template-hash": template}
            owner = ("ReplicaSet", f"{app}-{template}")
            self.pod(namespace, name, node, app=app, owner=owner, ports=ports, phase=phase, labels=labels)

    def statefulset(self, namespace: str, app: str, *nodes: str, ports: Ports | None = None) -> None:
        for number, node in enumerate(nodes):
            labels = {"apps.kubernetes.io/pod-index": str(number)}
            self.pod(
                namespace, f"{app}-{number}", node, app=app, owner=("StatefulSet", app), ports=ports, labels=labels
            )

    def job(self, namespace: str, name: str, node: str) -> None:
        pod = f"{name}-{suffix(namespace, name)}"
        self.pod(namespace, pod, node, app=name, owner=("Job", name), phase="Succeeded")

    def service(
        self,
        namespace: str,
        name: str,
        *ips: str,
        ports: Ports,
        app: str | None = "",
        ingress: list[Raw] | None = None,
        zones: bool = False,
        **spec: Any,
    ) -> None:
        """A Service for pods of its own name, of another, or (``None``) without selector; and its slices."""
        selector = {} if app is None else {"selector": {"app": app or name}}
        families = self._families[: max(len(ips), 1)]
        filled = [{"protocol": "TCP", "targetPort": each["port"], **each} for each in ports]
        policy = {"ipFamilies": families, "ipFamilyPolicy": "PreferDualStack" if len(ips) > 1 else "SingleStack"}
        self.services.append(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": metadata(name, namespace, {"app": name}, "kubectl-client-side-apply"),
                "spec": {
                    "clusterIP": ips[0],
                    "clusterIPs": list(ips),
                    "internalTrafficPolicy": "Cluster",
                    **policy,
                    "ports": filled,
                    **selector,
                    "sessionAffinity": "None",
                    "type": "ClusterIP",
                    **spec,
                },
                "status": {"loadBalancer": {"ingress": ingress} if ingress else {}},
            }
        )
        for family in families if selector else []:
            pods = [each for each in self.pods if _is_behind(each, namespace, app or name)]
            endpoints = [self._endpoint(each, family, zones) for each in pods]
            self.slice(namespace, name, [_numbered(each, pods) for each in filled], endpoints, family)

    def slice(self, namespace: str, service: str, ports: Ports, endpoints: list[Raw], family: str = "IPv4") -> None:
        labels = {"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}
        labels |= {"kubernetes.io/service-name": service}
        name, owner = f"{service}-{suffix(namespace, service, family)}", ("Service", service)
        self.slices.append(
            {
                "addressType": family,
                "apiVersion": "discovery.k8s.io/v1",
                "endpoints": endpoints or None,
                "kind": "EndpointSlice",
                "metadata": metadata(name, namespace, labels, "kube-controller-manager", owner)
                | {"generateName": f"{service}-", "generation": 7},
                "ports": ports if endpoints else None,
            }
        )

    def api_server(self, *ips: str, addresses: list[str]) -> None:
        """The Service ``kubernetes``, whose slice the API servers keep themselves."""
        self.service(
            "default", "kubernetes", *ips, app=None, ports=[{"name": "https", "port": 443, "targetPort": 6443}]
        )
        endpoints = [{"addresses": [each], "conditions": {"ready": True}} for each in addresses]
        self.slice("default", "kubernetes", [{"name": "https", "port": 6443, "protocol": "TCP"}], endpoints)

    def external_name(self, namespace: str, name: str, target: str) -> None:
        self.services.append(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": metadata(name, namespace, {}, "kubectl-create"),
                "spec": {"externalName": target, "sessionAffinity": "None", "type": "ExternalName"},
                "status": {"loadBalancer": {}},
            }
        )

    def terminate(self, pod: Raw) -> None:
        """A pod is being deleted, and still serves."""
        pod["metadata"] |= {"deletionGracePeriodSeconds": 30, "deletionTimestamp": "2026-03-02T09:00:00Z"}
        self._say(pod, ready=False, serving=True, terminating=True)

    def unready(self, pod: Raw) -> None:
        """A pod's readiness probe fails."""
        pod["status"]["conditions"][-1] = condition("Ready", False)
        self._say(pod, ready=False, serving=False, terminating=False)

    def behind(self, namespace: str, app: str) -> list[Raw]:
        return [each for each in self.pods if _is_behind(each, namespace, app)]

    def _say(self, pod: Raw, **conditions: bool) -> None:
        for endpoint in (each for found in self.slices for each in found["endpoints"] or []):
            if endpoint.get("targetRef", {}).get("name") == pod["metadata"]["name"]:
                endpoint["conditions"] = conditions

    def _endpoint(self, pod: Raw, family: str, zones: bool) -> Raw:
        node = pod["spec"]["nodeName"]
        labels = next(each["metadata"]["labels"] for each in self.nodes if each["metadata"]["name"] == node)
        zone = labels.get("topology.kubernetes.io/zone")
        head = pod["metadata"]
        return {
            "addresses": [_address(pod, family)],
            "conditions": {"ready": True, "serving": True, "terminating": False},
            **({"hints": {"forZones": [{"name": zone}]}} if zones else {}),
            "nodeName": node,
            "targetRef": {"kind": "Pod", "name": head["name"], "namespace": head["namespace"], "uid": head["uid"]},
            **({"zone": zone} if zone else {}),
        }


def _is_behind(pod: Raw, namespace: str, app: str) -> bool:
    head = pod["metadata"]
    return (head["namespace"], head["labels"]["app"]) == (namespace, app) and pod["status"]["phase"] == "Running"


def _address(pod: Raw, family: str) -> str:
    addresses = [each["ip"] for each in pod["status"]["podIPs"]]
    return next(each for each in addresses if (ip_address(each).version == 4) == (family == "IPv4"))


def _numbered(port: Raw, pods: list[Raw]) -> Raw:
    """A Service's port in a slice, with the number that the pods have for it."""
    number = port["targetPort"]
    declared = [each for pod in pods for each in pod["spec"]["containers"][0].get("ports", [])]
    if isinstance(number, str):
        number = next((each["containerPort"] for each in declared if each.get("name") == number), 0)
    return {"name": port.get("name", ""), "port": number, "protocol": port["protocol"]}


def _http(number: int = 8080) -> Ports:
    return [{"containerPort": number, "name": "http", "protocol": "TCP"}]


def _dns(cluster: Cluster, name: str, *ips: str, nodes: tuple[str, ...]) -> None:
    both = [
        {"containerPort": 53, "name": f"dns{word}", "protocol": each} for word, each in (("", "UDP"), ("-tcp", "TCP"))
    ]
    both += [{"containerPort": 9153, "name": "metrics", "protocol": "TCP"}]
    cluster.deployment("kube-system", "kube-dns", *nodes, ports=both)
    ports = [
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53},
        {"name": "metrics", "port": 9153},
    ]
    cluster.service("kube-system", name, *ips, app="kube-dns", ports=ports)


def _usual(cluster: Cluster, prefix: str, nodes: list[str]) -> None:
    """What runs in most clusters, whoever made them; ``prefix`` begins the cluster IPs."""
    one, two, *_ = nodes
    cluster.deployment(
        "kube-system", "metrics-server", one, ports=[{"containerPort": 10250, "name": "https", "protocol": "TCP"}]
    )
    cluster.service(
        "kube-system", "metrics-server", f"{prefix}.40", ports=[{"name": "https", "port": 443, "targetPort": "https"}]
    )
    cluster.deployment("shop", "web", one, two, one, ports=_http())
    cluster.service("shop", "web", f"{prefix}.50", ports=[{"name": "http", "port": 80, "targetPort": "http"}])
    cluster.deployment("shop", "cart", one, two, ports=_http(9000))
    sticky = {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}}}
    cluster.service("shop", "cart", f"{prefix}.51", ports=[{"port": 9000}], **sticky)
    cluster.deployment("shop", "checkout", one, two, two, ports=_http())
    cluster.service("shop", "checkout", f"{prefix}.52", ports=[{"port": 80, "targetPort": 8080}])
    cluster.terminate(cluster.behind("shop", "checkout")[0])
    cluster.unready(cluster.behind("shop", "checkout")[1])
    cluster.deployment("shop", "old", two, ports=_http())
    cluster.service("shop", "old", f"{prefix}.53", ports=[{"port": 80, "targetPort": 8080}])
    cluster.terminate(cluster.behind("shop", "old")[0])
    cluster.service("shop", "search", f"{prefix}.54", ports=[{"port": 80}])  # scaled to nothing
    cluster.statefulset("data", "db", one, two, one, ports=[{"containerPort": 5432, "name": "pg", "protocol": "TCP"}])
    cluster.service("data", "db", "None", ports=[{"name": "pg", "port": 5432}])
    cluster.service("data", "db-read", f"{prefix}.60", app="db", ports=[{"name": "pg", "port": 5432}])
    cluster.statefulset("staging", "db", two, ports=[{"containerPort": 5432, "name": "pg", "protocol": "TCP"}])
    cluster.service("staging", "db", f"{prefix}.61", ports=[{"name": "pg", "port": 5432}])
    cluster.service("data", "warehouse", f"{prefix}.62", app=None, ports=[{"port": 1521}])
    cluster.slice(
        "data",
        "warehouse",
        [{"name": "", "port": 1521, "protocol": "TCP"}],
        [{"addresses": ["192.0.2.50"], "conditions": {}}],
    )
    cluster.external_name("shop", "payments", "payments.example.com")
    for number in range(4):
        cluster.job("data", f"backup-2941{number}", nodes[number % 2])
    cluster.deployment("shop", "recommender", "", phase="Pending")  # no node has room for it
    cluster.daemonset("monitoring", "node-exporter", host_network=True, ports=_http(9100))
    cluster.service("monitoring", "node-exporter", "None", ports=[{"name": "http", "port": 9100}])
    cluster.deployment("monitoring", "prometheus", two, ports=_http(9090))
    cluster.service("monitoring", "prometheus", f"{prefix}.70", ports=[{"name": "http", "port": 9090}])
    cluster.service(
        "monitoring",
        "agent",
        f"{prefix}.71",
        app="node-exporter",
        ports=[{"port": 9100}],
        internalTrafficPolicy="Local",
    )


def kind() -> Cluster:
    """Three nodes of kind, with both families."""
    cluster = Cluster("10.244.0.0/16", "fd00:10:244::/56")
    nodes = ["kind-control-plane", "kind-worker", "kind-worker2"]
    taints = ["node-role.kubernetes.io/control-plane", "", ""]
    for number, (name, taint) in enumerate(zip(nodes, taints, strict=True), 2):
        cluster.node(name, f"172.18.0.{number}", f"fc00:f853:ccd:e793::{number}", taint=taint)
    parts = {"etcd": 2381, "kube-apiserver": 6443, "kube-controller-manager": 10257, "kube-scheduler": 10259}
    for name, port in parts.items():
        declared = [{"containerPort": port, "name": "probe-port", "protocol": "TCP"}]
        pod, owner = f"{name}-{nodes[0]}", ("Node", nodes[0])
        cluster.pod("kube-system", pod, nodes[0], app=name, owner=owner, ports=declared, host_network=True)
    cluster.daemonset("kube-system", "kindnet", host_network=True)
    cluster.daemonset("kube-system", "kube-proxy", host_network=True)
    cluster.api_server("10.96.0.1", addresses=["172.18.0.2"])
    _dns(cluster, "kube-dns", "10.96.0.10", nodes=(nodes[0], nodes[0]))
    cluster.deployment("local-path-storage", "local-path-provisioner", nodes[0])
    _usual(cluster, "10.96.7", nodes[1:])
    cluster.deployment("shop", "front", nodes[1], nodes[2], ports=_http())
    cluster.service(
        "shop", "front", "10.96.8.1", "fd00:10:96::81", type="NodePort", externalTrafficPolicy="Cluster",
        ports=[{"name": "http", "port": 80, "targetPort": "http", "nodePort": 31080}],
    )  # fmt: skip
    cluster.service(
        "shop", "front-local", "10.96.8.2", app="front", type="LoadBalancer", externalTrafficPolicy="Local",
        ports=[{"name": "http", "port": 80, "targetPort": "http", "nodePort": 31081}], healthCheckNodePort=31990,
    )  # fmt: skip
    return cluster


def k3s() -> Cluster:
    """A server and two agents of k3s: no pod of the control plane, and a balancer of pods with ports of their nodes."""
    cluster = Cluster("10.42.0.0/16")
    nodes = {"k3s-server": "192.168.1.10", "k3s-agent-1": "192.168.1.11", "k3s-agent-2": "192.168.1.12"}
    for name, address in nodes.items():
        cluster.node(name, address, ready=name != "k3s-agent-2")
    cluster.api_server("10.43.0.1", addresses=["192.168.1.10"])
    _dns(cluster, "kube-dns", "10.43.0.10", nodes=("k3s-server",))
    for name in ("helm-install-traefik", "helm-install-traefik-crd"):
        cluster.job("kube-system", name, "k3s-server")
    cluster.deployment("kube-system", "local-path-provisioner", "k3s-server")
    cluster.deployment(
        "kube-system",
        "traefik",
        "k3s-agent-1",
        ports=[*_http(8000), {"containerPort": 8443, "name": "https", "protocol": "TCP"}],
    )
    lb_ports = [
        {"containerPort": each, "hostPort": each, "name": f"lb-tcp-{each}", "protocol": "TCP"} for each in (80, 443)
    ]
    cluster.daemonset("kube-system", "svclb-traefik-4f1c2d3e", ports=lb_ports)
    cluster.service(
        "kube-system", "traefik", "10.43.200.1", type="LoadBalancer", externalTrafficPolicy="Cluster",
        allocateLoadBalancerNodePorts=True, ingress=[{"ip": each, "ipMode": "VIP"} for each in nodes.values()],
        ports=[
            {"name": "web", "port": 80, "targetPort": "http", "nodePort": 30451},
            {"name": "websecure", "port": 443, "targetPort": "https", "nodePort": 31923},
        ],
    )  # fmt: skip
    _usual(cluster, "10.43.7", ["k3s-agent-1", "k3s-agent-2"])
    return cluster


def cloud() -> Cluster:
    """Six nodes in three zones of a cloud, with balancers by address and by name."""
    cluster = Cluster("10.52.0.0/14")
    nodes = [f"gke-prod-default-pool-1a2b3c4d-{suffix('gke', str(each))}" for each in range(6)]
    for number, name in enumerate(nodes):
        taint = "ToBeDeletedByClusterAutoscaler" if number == 5 else ""
        zone = f"europe-west1-{'bcd'[number % 3]}"
        cluster.node(name, f"10.128.0.{number + 2}", zone=zone, external=f"34.76.10.{number + 20}", taint=taint)
    cluster.api_server("34.118.224.1", addresses=["172.16.0.2"])
    _dns(cluster, "kube-dns", "34.118.224.10", nodes=(nodes[0], nodes[1]))
    for name in ("fluentbit-gke", "gke-metadata-server", "kube-proxy"):
        cluster.daemonset("kube-system", name, host_network=True)
    _usual(cluster, "34.118.230", nodes[:2])
    cluster.deployment("edge", "gateway", *nodes[:3], ports=_http())
    http = {"name": "http", "port": 80, "targetPort": "http"}
    cluster.service(
        "edge", "gateway", "34.118.231.1", type="LoadBalancer", externalTrafficPolicy="Local",
        healthCheckNodePort=32100, ingress=[{"ip": "34.140.20.5", "ipMode": "VIP"}], ports=[http | {"nodePort": 30801}],
    )  # fmt: skip
    cluster.service(
        "edge", "gateway-internal", "34.118.231.2", app="gateway", type="LoadBalancer", externalTrafficPolicy="Cluster",
        loadBalancerSourceRanges=["198.51.100.0/24"], ingress=[{"ip": "34.140.20.6", "ipMode": "VIP"}],
        ports=[http | {"nodePort": 30802}],
    )  # fmt: skip
    cluster.service(
        "edge", "gateway-proxied", "34.118.231.3", app="gateway", type="LoadBalancer", externalTrafficPolicy="Cluster",
        ingress=[{"hostname": "k8s-edge-gateway-0123456789.elb.eu-west-1.amazonaws.com"}],
        ports=[http | {"nodePort": 30803}],
    )  # fmt: skip
    cluster.service(
        "edge", "nearby", "34.118.231.4", app="gateway", trafficDistribution="PreferClose", zones=True, ports=[http],
        externalIPs=["198.51.100.77"],
    )  # fmt: skip
    return cluster


def vpc() -> Cluster:
    """A cloud whose network plugin gives pods addresses of the nodes' own subnets, and nodes names with dots."""
    cluster = Cluster("10.0.8.0/21")
    for zone, number in zip("abc", (8, 9, 10), strict=True):
        name = f"ip-10-0-{number}-200.eu-west-1.compute.internal"
        cluster.node(name, f"10.0.{number}.200", zone=f"eu-west-1{zone}")
    nodes = [each["metadata"]["name"] for each in cluster.nodes]
    cluster.api_server("172.20.0.1", addresses=["10.0.14.4", "10.0.15.9"])
    _usual(cluster, "172.20.7", nodes[:2])
    return cluster
