"""Clusters as kubectl prints them: of the shapes that kind, k3s and a cloud make."""

from growing_cluster import Cluster, Ports
from kubectl_objects import suffix

__all__ = ["cloud", "k3s", "kind", "vpc"]


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
    """The Services of most clusters; ``prefix`` begins the cluster IPs."""
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
