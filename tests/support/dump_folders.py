"""Folders of a cluster's objects, as the tools write them that people attach to bug reports.

``kubectl cluster-info dump`` prints lists of typed clients: ``NodeList`` first, then for each namespace seven lists and
the logs of its pods. Objects of such lists have neither ``kind`` nor ``apiVersion``, and no list has EndpointSlices.
``oc adm must-gather`` writes ``oc adm inspect``'s tree below the digest of its image: lists in YAML for each namespace
and group, cluster-scoped objects and each pod once more in files of their own.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml
from growing_cluster import Cluster

__all__ = ["cluster_info_dump", "printed_dump", "write_dump", "write_must_gather"]

Raw = dict[str, Any]

_LISTS = {
    "events": "EventList",
    "replication-controllers": "ReplicationControllerList",
    "services": "ServiceList",
    "daemonsets": "DaemonSetList",
    "deployments": "DeploymentList",
    "replicasets": "ReplicaSetList",
    "pods": "PodList",
}
"""The lists of a namespace in the order of the dump, by the names of their files."""

_LOG = '10.0.0.1 - - "GET / HTTP/1.1" 200\n{"level": "info"}\n{"level": "warning"}\nkind: Service\n---\n'


def _list(kind: str, objects: Iterable[Raw]) -> Raw:
    bare = [{key: value for key, value in each.items() if key not in ("kind", "apiVersion")} for each in objects]
    return {"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": "4711"}, "items": bare}


def _namespaces(cluster: Cluster) -> list[str]:
    return sorted({str(each["metadata"]["namespace"]) for each in (*cluster.pods, *cluster.services)})


def _of(objects: Iterable[Raw], namespace: str) -> list[Raw]:
    return [each for each in objects if each["metadata"]["namespace"] == namespace]


def cluster_info_dump(cluster: Cluster) -> Iterator[tuple[str, Raw | str]]:
    """The files of the folder without the form's suffix: lists, and the logs of pods as text."""
    yield "nodes", _list("NodeList", cluster.nodes)
    for namespace in _namespaces(cluster):
        there = {"services": _of(cluster.services, namespace), "pods": _of(cluster.pods, namespace)}
        yield from ((f"{namespace}/{name}", _list(kind, there.get(name, []))) for name, kind in _LISTS.items())
        for pod in there["pods"]:
            whose = f"container web of pod {namespace}/{pod['metadata']['name']}"
            marks = f"==== START logs for {whose} ====\n", f"==== END logs for {whose} ====\n"
            yield f"{namespace}/{pod['metadata']['name']}/logs", f"{marks[0]}{_LOG}{marks[1]}"


def printed_dump(cluster: Cluster, form: str) -> str:
    """The dump on standard output: JSON values one after the other, or YAML with a mark before each but the first."""
    printed = ""
    for _, each in cluster_info_dump(cluster):
        if isinstance(each, str):
            printed += each
        elif form == "json":
            printed += json.dumps(each, indent=4) + "\n"
        else:
            printed += ("---\n" if printed else "") + yaml.safe_dump(each)
    return printed


def write_dump(cluster: Cluster, folder: Path, form: str) -> None:
    for name, each in cluster_info_dump(cluster):
        text = each if isinstance(each, str) else json.dumps(each, indent=4) if form == "json" else yaml.safe_dump(each)
        _write(folder / f"{name}.{'txt' if isinstance(each, str) else form}", text)


def write_must_gather(cluster: Cluster, folder: Path) -> None:
    """The tree of ``oc adm must-gather``, with a secret's list, and with the ConfigMaps of an application."""
    root = folder / "must-gather.local.8231" / "quay-io-openshift-release-dev-sha256-a1b2c3"
    _write(root / "timestamp", "2026-01-28 10:00:00 +0000 UTC\n")
    _write(root / "version", "openshift/must-gather\n4.20.1\n")
    for node in cluster.nodes:
        _write(root / "cluster-scoped-resources" / "core" / "nodes" / f"{node['metadata']['name']}.yaml", node)
    for namespace in _namespaces(cluster):
        there = root / "namespaces" / namespace
        _write(there / f"{namespace}.yaml", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        _write(there / "core" / "services.yaml", _list("ServiceList", _of(cluster.services, namespace)))
        _write(there / "core" / "pods.yaml", _list("PodList", _of(cluster.pods, namespace)))
        _write(there / "core" / "configmaps.yaml", _list("ConfigMapList", []) if namespace != "shop" else "not: [yaml")
        _write(there / "core" / "secrets.yaml", "kind: SecretList\nitems: []\n")
        slices = _list("EndpointSliceList", _of(cluster.slices, namespace))
        _write(there / "discovery.k8s.io" / "endpointslices.yaml", slices)
        for pod in _of(cluster.pods, namespace):
            name = str(pod["metadata"]["name"])
            _write(there / "pods" / name / f"{name}.yaml", pod)
            _write(there / "pods" / name / "web" / "web" / "logs" / "current.log", _LOG)


def _write(file: Path, content: Raw | str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")
