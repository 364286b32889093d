"""A cluster as kubectl prints it, updated as the controllers would.

In ``Cluster`` pods get names and addresses, and Services get EndpointSlices. ``kubectl_clusters`` builds four clusters
with it.
"""

import json
from ipaddress import ip_address, ip_network
from typing import Any

from kubectl_objects import Raw, condition, listed, metadata, node_status, pod_spec, pod_status, suffix, yaml_of

__all__ = ["Cluster", "Ports"]

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
