"""Objects as ``kubectl get -o yaml`` prints them, with all fields that servers and controllers write."""

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

__all__ = ["Raw", "condition", "listed", "metadata", "node_status", "pod_spec", "pod_status", "suffix", "yaml_of"]

Raw = dict[str, Any]

_CREATED = "2026-03-01T09:00:00Z"
_PLAIN = re.compile(r"[A-Za-z/][\w ./-]*[\w/]|[A-Za-z]", re.ASCII)


def metadata(name: str, namespace: str, labels: Raw, writer: str, owner: tuple[str, str] | None = None) -> Raw:
    """Everything that an object has at its head."""
    fields = {"f:metadata": {"f:labels": {".": {}} | {f"f:{key}": {} for key in labels}}, "f:spec": {"f:x": {}}}
    return {
        "annotations": {"example.com/checksum": suffix(name, namespace) * 4},
        "creationTimestamp": _CREATED,
        **({"labels": labels} if labels else {}),
        "managedFields": [
            {
                "apiVersion": "v1",
                "fieldsType": "FieldsV1",
                "fieldsV1": fields | {"f:status": {"f:conditions": {'k:{"type":"Ready"}': {".": {}, "f:status": {}}}}},
                "manager": writer,
                "operation": "Update",
                "time": _CREATED,
            }
        ],
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        **({"ownerReferences": [_owner(*owner)]} if owner else {}),
        "resourceVersion": str(int(suffix(name, namespace, "revision"), 36) % 90_000 + 400),
        "uid": _uid(name, namespace),
    }


def _owner(kind: str, name: str) -> Raw:
    version = {"Node": "v1", "Service": "v1", "Job": "batch/v1"}.get(kind, "apps/v1")
    return {
        "apiVersion": version,
        "blockOwnerDeletion": True,
        "controller": True,
        "kind": kind,
        "name": name,
        "uid": _uid(kind, name),
    }


def pod_spec(name: str, node: str, ports: list[Raw], *, host_network: bool) -> Raw:
    """A pod with one container."""
    return {
        "containers": [
            {
                "image": f"registry.example.com/{name}:1.4.2",
                "imagePullPolicy": "IfNotPresent",
                "name": name,
                **({"ports": ports} if ports else {}),
                "resources": {"requests": {"cpu": "100m", "memory": "70Mi"}},
                "terminationMessagePath": "/dev/termination-log",
                "volumeMounts": [
                    {"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": "token", "readOnly": True}
                ],
            }
        ],
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        **({"hostNetwork": True} if host_network else {}),
        **({"nodeName": node} if node else {}),
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "serviceAccountName": "default",
        "tolerations": [{"effect": "NoExecute", "key": "node.kubernetes.io/not-ready", "operator": "Exists"}],
        "volumes": [{"name": "token", "projected": {"defaultMode": 420, "sources": [{"serviceAccountToken": {}}]}}],
    }


def pod_status(phase: str, ready: bool, host: str, addresses: list[str]) -> Raw:
    """What the kubelet reports of a pod."""
    return {
        "conditions": [
            condition("Initialized", True),
            condition("PodScheduled", bool(host)),
            condition("Ready", ready),
        ],
        **({"hostIP": host, "hostIPs": [{"ip": host}]} if host else {}),
        "phase": phase,
        **({"podIP": addresses[0], "podIPs": [{"ip": each} for each in addresses]} if addresses else {}),
        "qosClass": "Burstable",
        "startTime": _CREATED,
    }


def node_status(addresses: list[Raw], *, ready: bool) -> Raw:
    """What the kubelet reports of its node."""
    return {
        "addresses": addresses,
        "allocatable": {"cpu": "4", "ephemeral-storage": "95551679124", "memory": "16393292Ki", "pods": "110"},
        "capacity": {"cpu": "4", "ephemeral-storage": "103682160Ki", "memory": "16393292Ki", "pods": "110"},
        "conditions": [condition("MemoryPressure", False), condition("DiskPressure", False), condition("Ready", ready)],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "images": [{"names": ["registry.k8s.io/pause:3.10"], "sizeBytes": 320368}],
        "nodeInfo": {"architecture": "amd64", "kubeletVersion": "v1.34.2", "operatingSystem": "linux"},
    }


def condition(kind: str, holds: bool) -> Raw:
    return {"lastProbeTime": None, "lastTransitionTime": _CREATED, "status": str(holds), "type": kind}


def suffix(*words: str) -> str:
    """Five letters and digits, as controllers put behind the names of what they make."""
    number = int(hashlib.sha256("/".join(words).encode()).hexdigest(), 16)
    letters = "bcdfghjklmnpqrstvwxz2456789"  # those of k8s.io/apimachinery/pkg/util/rand
    return "".join(letters[number // len(letters) ** netns_name % len(letters)] for netns_name in range(5))


def _uid(*words: str) -> str:
    text = hashlib.sha256("/".join(words).encode()).hexdigest()
    return f"{text[:8]}-{text[8:12]}-4{text[12:15]}-a{text[15:18]}-{text[18:30]}"


def listed(objects: list[Raw]) -> Raw:
    """The List in which kubectl puts several objects."""
    return {"apiVersion": "v1", "items": objects, "kind": "List", "metadata": {"resourceVersion": ""}}


def yaml_of(value: object) -> str:
    """YAML as kubectl prints it: block style, keys in order of the alphabet."""
    return "\n".join(_lines(value)) + "\n"


def _lines(value: object) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key in sorted(value):
            inner, name = value[key], _scalar(key)
            if isinstance(inner, dict | list) and inner:
                yield f"{name}:"
                indent = "  " if isinstance(inner, dict) else ""
                yield from (indent + line for line in _lines(inner))
            else:
                yield f"{name}: {_scalar(inner)}"
    elif isinstance(value, list) and value:
        for each in value:
            first, *rest = _lines(each)
            yield f"- {first}"
            yield from (f"  {line}" for line in rest)
    else:
        yield _scalar(value)


def _scalar(value: object) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in ("true", "false", "null", "none"):
        return value
    return json.dumps(value)
