"""Objects as the real API server has them: those of a scenario written for it, and its own read.

What the lab does not know of an object, such as who manages its fields, is left out on the way in.
"""

import os
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress
from proxylab.cluster.documents import SIDECAR, Document, document_of, object_of, running_containers
from proxylab.cluster.kinds import plural_of
from proxylab.cluster.objects import EndpointSlice, KubeObject, Namespace, Node, Pod, Service, Unstructured

PODS: Final = "/api/v1/pods"
SERVICES: Final = "/api/v1/services"
SLICES: Final = "/apis/discovery.k8s.io/v1/endpointslices"
FINALIZER: Final = "proxylab.invalid/step"
"""Of a pod or node that a step lets terminate: it stays until a step deletes it."""
MERGE: Final = "application/merge-patch+json"
STRATEGIC_MERGE: Final = "application/strategic-merge-patch+json"

_OF_SERVER: Final = ("uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
IMAGE: Final = "proxylab.invalid/pod"
"""What a pod of a scenario runs: the lab itself answers in its namespace."""

LABELS_OF_CONTROLLER: Final = ("beta.kubernetes.io/os", "beta.kubernetes.io/arch")
"""Labels of nodes that their controller adds by itself (labelReconcileInfo, pkg/controller/nodelifecycle)."""

_PROBE_SECONDS: Final = 10
"""The time between two probes where a container says none (pkg/apis/core/v1/defaults.go)."""

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
        case Unstructured():
            root = f"/{'apis' if '/' in thing.api_version else 'api'}/{thing.api_version}"
            return (
                f"{root}/namespaces/{thing.namespace}/{thing.plural}" if thing.namespace else f"{root}/{thing.plural}"
            )
        case _:
            raise ValueError(f"{thing.key} is of no kind that a lab creates")


def created(thing: KubeObject) -> Document:
    """The document by which an object of the lab is created, without what the server sets."""
    document = document_of(thing, 0, "")
    metadata = {key: value for key, value in document["metadata"].items() if key not in _OF_SERVER}
    document = {**document, "metadata": metadata}
    if isinstance(thing, Pod):
        document["spec"] = {
            **document["spec"],
            "containers": [{**each, "image": IMAGE} for each in document["spec"]["containers"]],
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
                "kernelVersion": os.uname().release,
                **dict.fromkeys(("architecture", "bootID", "machineID", "systemUUID", "kubeProxyVersion"), ""),
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
            "initContainerStatuses": [
                _container_status(each, now, is_ready=is_ready)
                if each.get("restartPolicy") == SIDECAR
                else _container_status(each, now, is_ready=True, is_over=True)
                for each in pod["spec"].get("initContainers", ())
            ],
            "containerStatuses": [
                _container_status(each, now, is_ready=is_ready) for each in pod["spec"]["containers"]
            ],
        }
    }


def seconds_to_ready(pod: Document) -> int:
    """How long after its start a pod is ready: its probes succeed as soon as they may, as those of a scenario do."""
    containers = running_containers(pod["spec"])
    probes = ([each[name] for name in ("startupProbe", "readinessProbe") if name in each] for each in containers)
    return max((sum(map(_seconds_to_success, each)) for each in probes), default=0)


def _seconds_to_success(probe: Document) -> int:
    further = max(0, probe.get("successThreshold", 1) - 1)
    seconds: int = probe.get("initialDelaySeconds", 0) + further * probe.get("periodSeconds", _PROBE_SECONDS)
    return seconds


def _container_status(container: Document, now: str, *, is_ready: bool, is_over: bool = False) -> Document:
    over = {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": container["image"],
        "ready": is_ready,
        "started": not is_over,
        "restartCount": 0,
        "state": {"terminated": over} if is_over else {"running": {"startedAt": now}},
    }


def succeeded_status(pod: Document, now: str) -> Document:
    """The status of a pod whose containers have ended well."""
    conditions = ("Ready", "ContainersReady")
    return {
        "status": {
            "phase": "Succeeded",
            "conditions": [
                {"type": each, "status": "False", "reason": "PodCompleted", "lastTransitionTime": now}
                for each in conditions
            ],
            "containerStatuses": [
                _container_status(each, now, is_ready=False, is_over=True) for each in pod["spec"]["containers"]
            ],
        }
    }


def debugged_status(pod: Document, now: str) -> Document:
    """What a pod reports of the containers that `kubectl debug` adds, which run as long as it does."""
    added = (_container_status(each, now, is_ready=False) for each in pod["spec"]["ephemeralContainers"])
    return {"status": {"ephemeralContainerStatuses": [*added]}}


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
    return {"status": document_of(service, 0, "")["status"]}


def slice_of(document: Document) -> EndpointSlice | None:
    """An EndpointSlice as the API server has it; ``None`` for one of no Service, or of names (FQDN)."""
    if document["addressType"] not in list(Family):
        return None
    found = object_of(EndpointSlice, document)
    return found if found.service else None


def kept_of(api_version: str, kind: str, document: Document) -> Unstructured:
    """An object of a kind that the lab keeps as it is; a list does not say the kinds of its objects."""
    metadata = document["metadata"]
    content = {key: value for key, value in document.items() if key not in ("metadata", "status")}
    return Unstructured(
        api_version=api_version,
        kind=kind,
        plural=plural_of(kind),
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        labels=metadata.get("labels") or {},
        annotations=metadata.get("annotations") or {},
        content={**content, "apiVersion": api_version, "kind": kind},
    )


def node_of(document: Document, known: Node) -> Node:
    """A Node as people may have changed it: labels, taints, and whether it is about to go."""
    read = object_of(Node, document)
    labels = {key: text for key, text in read.labels.items() if key not in LABELS_OF_CONTROLLER}
    return replace(read, labels=labels, addresses=known.addresses, pod_cidrs=known.pod_cidrs)


def pod_of(document: Document) -> Pod | None:
    """A Pod as the API server has it; ``None`` for one that does not run."""
    spec, status = document["spec"], document.get("status", {})
    if status.get("phase") != "Running" or not status.get("podIPs"):
        return None
    pod = object_of(Pod, document)
    return replace(pod, hostname=spec.get("hostname", ""), subdomain=spec.get("subdomain", ""))
