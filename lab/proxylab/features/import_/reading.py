"""Reads kubectl's output: YAML or JSON, objects or lists of them, from one text or several; each object once."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from proxylab.errors import ScenarioError
from proxylab.scenario.document import Problems
from proxylab.scenario.source import read_documents

COMMAND: Final = "kubectl get svc,endpointslices,pods,nodes -A -o yaml"

Raw = Mapping[str, Any]
"""An object as kubectl printed it."""

_LOOKED_AT: Final = ("Service", "EndpointSlice", "Pod", "Node", "Endpoints", "ConfigMap")
_WORKLOADS: Final = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job")


class KubectlOutput(Struct, frozen=True):
    """The objects of a cluster in the order of the output, and the number of objects of each other kind."""

    services: tuple[Raw, ...]
    slices: tuple[Raw, ...]
    pods: tuple[Raw, ...]
    nodes: tuple[Raw, ...]
    endpoints: tuple[Raw, ...]
    config_maps: tuple[Raw, ...]
    workloads: tuple[Raw, ...]
    others: Mapping[str, int]


def read_kubectl_output(texts: Iterable[tuple[str, str]]) -> KubectlOutput:
    """Read kubectl's output.

    Args:
        texts: each with its name in messages.

    Raises:
        ScenarioError: a text is neither YAML nor JSON, holds something else, or nothing at all.
    """
    problems = Problems()
    found: dict[tuple[str, str, str], Raw] = {}
    others: Counter[str] = Counter()
    names = []
    for name, text in texts:
        names.append(name)
        for document in read_documents(text, name, problems)[0]:
            for each in _objects(document.value):
                kind = str(each.get("kind"))
                if kind in (*_LOOKED_AT, *_WORKLOADS):
                    found.setdefault((kind, *namespaced(each)), each)
                else:
                    others[kind] += 1
    problems.raise_any()
    services, slices, pods, nodes, endpoints, config_maps = (
        tuple(each for (kind, *_), each in found.items() if kind == wanted) for wanted in _LOOKED_AT
    )
    workloads = tuple(each for (kind, *_), each in found.items() if kind in _WORKLOADS)
    if workloads and not (pods or slices or endpoints):
        what = "workloads, and no pod or EndpointSlice: manifests rather than the state of a cluster"
        cure = "name the file in spec.manifests of a scenario, which makes their pods"
        raise ScenarioError([f"{', '.join(names)}: {what}; {cure}"])
    if not (services or slices or endpoints or pods or nodes):
        what = "no Service, EndpointSlice, Pod or Node there"
        raise ScenarioError([f"{', '.join(names)}: {what}; give it what `{COMMAND}` prints"])
    return KubectlOutput(services, slices, pods, nodes, endpoints, config_maps, workloads, others)


def _objects(value: object) -> Iterator[Raw]:
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        return
    if value["kind"].endswith("List"):
        for each in value.get("items") or []:
            yield from _objects(each)
    else:
        yield value


def namespaced(raw: Raw) -> tuple[str, str]:
    """Namespace and name; the namespace of a cluster-scoped object is empty."""
    everywhere = "" if raw.get("kind") == "Node" else "default"
    return str(at(raw, "metadata", "namespace") or everywhere), str(at(raw, "metadata", "name") or "")


def at(raw: object, *keys: str) -> Any:
    """The value at a path of keys; ``None`` without one."""
    for key in keys:
        raw = raw.get(key) if isinstance(raw, Mapping) else None
    return raw
