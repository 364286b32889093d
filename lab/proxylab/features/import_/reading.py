"""Reads kubectl's output: YAML or JSON, objects or lists of them, from one text or several; each object once.

`kubectl cluster-info dump` prints one list after the other, as JSON or YAML, and the logs of pods between them. Objects
of its lists, such as a ServiceList, do not say their kind. It has no EndpointSlices, so that selectors say what backs a
Service. Its folder, and that of must-gather, have a file for each list, or one for each Node.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path, PurePath
from typing import Any, Final

from msgspec import Struct

from proxylab.cluster.objects import ObjectKey
from proxylab.errors import ScenarioError
from proxylab.scenario.document import Problems
from proxylab.scenario.source import read_documents

COMMAND: Final = "kubectl get svc,endpointslices,pods,nodes -A -o yaml"
_MOST_FILES: Final = 20_000

Raw = Mapping[str, Any]
"""An object as kubectl printed it."""

_LOOKED_AT: Final = ("Service", "EndpointSlice", "Pod", "Node", "Endpoints", "ConfigMap", "ServiceCIDR")
_WORKLOADS: Final = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job")

_LOGS: Final = re.compile(
    r"^==== START logs for (?P<whose>[^\n]*)\n.*?==== END logs for (?P=whose)$", re.MULTILINE | re.DOTALL
)
"""The last line of a log need not end before the mark of its end."""

_BETWEEN: Final = re.compile(r"(?<=\})[ \t\r]*\n\s*(?=\{)")
"""Inside of a JSON value a comma stands between two objects, and no text has a line break."""

_PLURALS: Final = frozenset(f"{kind.lower()}s" for kind in (*_LOOKED_AT, *_WORKLOADS)) | {"endpoints"}


def is_of_use(path: PurePath) -> bool:
    """Whether a file of a dump's folder may hold objects that the import looks at, by its name and place.

    A file has a whole list (``shop/services.json``), or is one of a folder (``core/nodes/worker-1.yaml``). The
    ConfigMaps of other namespaces than the proxy's stay out.
    """
    names = {path.stem, path.parent.name}
    if path.suffix not in (".json", ".yaml", ".yml") or not names & _PLURALS:
        return False
    return "configmaps" not in names or "kube-system" in path.parts


def dump_files(file: Path) -> list[Path]:
    """The file itself, or those in the folder of a dump that may hold objects. Raises ``ScenarioError``."""
    if not file.is_dir():
        return [file]
    found = sorted(islice((each for each in file.rglob("*") if each.is_file() and is_of_use(each)), _MOST_FILES + 1))
    if not found:
        what = "the folder that `kubectl cluster-info dump --output-directory` or must-gather wrote"
        raise ScenarioError([f"{file}: no file of Services, pods or nodes there; name {what}"])
    if len(found) > _MOST_FILES:
        raise ScenarioError([f"{file}: more than {_MOST_FILES:,} files of objects there; name the files instead"])
    return found


class KubectlOutput(Struct, frozen=True):
    """The objects of a cluster in the order of the output, and the number of objects of each other kind."""

    services: tuple[Raw, ...]
    slices: tuple[Raw, ...]
    pods: tuple[Raw, ...]
    nodes: tuple[Raw, ...]
    endpoints: tuple[Raw, ...]
    config_maps: tuple[Raw, ...]
    service_cidrs: tuple[Raw, ...]
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
    found: dict[ObjectKey, Raw] = {}
    others: Counter[str] = Counter()
    names = []
    for name, text in texts:
        names.append(name)
        parts = _parts(text)
        for number, part in enumerate(parts, 1):
            own = name if len(parts) == 1 else f"{name}, value {number}"
            for each in (
                each for document in read_documents(part, own, problems)[0] for each in _objects(document.value)
            ):
                kind = str(each.get("kind"))
                if kind in (*_LOOKED_AT, *_WORKLOADS):
                    found.setdefault(ObjectKey(kind, *namespaced(each)), each)
                else:
                    others[kind] += 1
    problems.raise_any()
    services, slices, pods, nodes, endpoints, config_maps, service_cidrs = (
        tuple(each for key, each in found.items() if key.kind == wanted) for wanted in _LOOKED_AT
    )
    workloads = tuple(each for key, each in found.items() if key.kind in _WORKLOADS)
    if workloads and not (pods or slices or endpoints):
        what = "workloads, and no pod or EndpointSlice: manifests rather than the state of a cluster"
        cure = "name the file in spec.manifests of a scenario, which makes their pods"
        raise ScenarioError([f"{', '.join(names)}: {what}; {cure}"])
    if not (services or slices or endpoints or pods or nodes):
        what = "no Service, EndpointSlice, Pod or Node there"
        raise ScenarioError([f"{', '.join(names)}: {what}; give it what `{COMMAND}` prints"])
    return KubectlOutput(services, slices, pods, nodes, endpoints, config_maps, service_cidrs, workloads, others)


def _parts(text: str) -> list[str]:
    """The text without logs of pods, or each of several JSON values that follow one another in it."""
    text = _LOGS.sub("", text)
    return _BETWEEN.split(text) if text.lstrip().startswith("{") else [text]


def _objects(value: object, kind: str = "") -> Iterator[Raw]:
    """The objects of a value; ``kind`` is that of a list's objects, which need not say it."""
    if not isinstance(value, dict):
        return
    own = value.get("kind") or kind
    if not isinstance(own, str) or not own:
        return
    if own.endswith("List"):
        items = value.get("items")
        for each in items if isinstance(items, list) else []:
            yield from _objects(each, own.removesuffix("List"))
    else:
        yield value if value.get("kind") else {**value, "kind": own}


def namespaced(raw: Raw) -> tuple[str, str]:
    """Namespace and name; the namespace of a cluster-scoped object is empty."""
    everywhere = "" if raw.get("kind") in ("Node", "ServiceCIDR") else "default"
    return str(at(raw, "metadata", "namespace") or everywhere), str(at(raw, "metadata", "name") or "")


def at(raw: object, *keys: str) -> Any:
    """The value at a path of keys; ``None`` without one."""
    for key in keys:
        raw = raw.get(key) if isinstance(raw, dict) else None
    return raw
