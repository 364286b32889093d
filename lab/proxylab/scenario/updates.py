"""Merge patches of objects (RFC 7386), as the API server applies them.

``patched`` keeps the position of everything that the author wrote.
``patched_service`` also drops the fields that the API server drops when a Service changes its type.
"""

from collections.abc import Mapping
from typing import Any

from proxylab.scenario.document import Document, Location, Marks

_Marks = dict[int, dict[str | int, Marks]]

_OF_TYPE = {
    "NodePort": ("externalTrafficPolicy",),
    "LoadBalancer": (
        "externalTrafficPolicy",
        "healthCheckNodePort",
        "allocateLoadBalancerNodePorts",
        "loadBalancerClass",
    ),
}
"""The keys of a Service's spec that depend on its type, by the types that have them."""

_CLUSTER_IPS = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")


def patched(base: Location, patch: Location) -> Location:
    """The object at ``base`` with the patch at ``patch``."""
    marks: _Marks = {}
    return _location(_merged(base, patch, marks), marks, base, patch)


def patched_service(base: Location, patch: Location) -> Location:
    """The same for a Service: fields of its former type go, unless the patch sets them.

    As ``dropTypeDependentFields`` in pkg/registry/core/service/strategy.go.
    """
    marks: _Marks = {}
    made = _merged(base, patch, marks)
    spec, former = made.get("spec") if isinstance(made, dict) else None, base["spec"]["type"].value or "ClusterIP"
    if isinstance(spec, dict):
        kind, said = str(spec.get("type", "ClusterIP")), patch["spec"].keys
        for key in _dropped(spec, kind) if kind != former else ():
            if key not in said:
                spec.pop(key, None)
        ports = spec.get("ports")
        if kind != former and kind not in _OF_TYPE and "ports" not in said and isinstance(ports, list):
            spec["ports"] = _without_node_ports(ports, marks, base.document.marks)
        if spec.get("externalTrafficPolicy") != "Local" and "healthCheckNodePort" not in said:
            spec.pop("healthCheckNodePort", None)
    return _location(made, marks, base, patch)


def _location(value: object, marks: _Marks, base: Location, patch: Location) -> Location:
    kept = {**base.document.marks, **patch.document.marks, **marks}
    return Location(Document(value, patch.key.position, kept, within=patch.key.path))


def _dropped(spec: Mapping[str, Any], kind: str) -> set[str]:
    """The keys that a Service of that type may not have."""
    gone = {key for keys in _OF_TYPE.values() for key in keys} - set(_OF_TYPE.get(kind, ()))
    if spec.get("externalIPs"):
        gone.discard("externalTrafficPolicy")
    return gone | set(_CLUSTER_IPS) if kind == "ExternalName" else gone


def _without_node_ports(
    ports: list[object], marks: _Marks, of_base: Mapping[int, Mapping[str | int, Marks]]
) -> list[object]:
    made: list[object] = []
    for port in ports:
        if isinstance(port, dict):
            made.append({key: value for key, value in port.items() if key != "nodePort"})
            marks[id(made[-1])] = dict(of_base.get(id(port), {}))
        else:
            made.append(port)
    marks[id(made)] = dict(of_base.get(id(ports), {}))
    return made


def _merged(base: Location, patch: Location, marks: _Marks) -> Any:
    """RFC 7386, section 2."""
    change, value = patch.value, base.value
    if not isinstance(change, dict):
        return change
    old = value if isinstance(value, dict) else {}
    made: dict[str, Any] = {}
    of_made: dict[str | int, Marks] = {}
    for key in [*old, *(key for key in change if key not in old)]:
        if key not in change:
            made[key] = old[key]
            if base[key].exists:
                of_made[key] = Marks(base[key].key.position, base[key].spot.position)
        elif change[key] is not None:
            made[key] = _merged(base[key], patch[key], marks)
            of_made[key] = Marks(patch[key].key.position, patch[key].spot.position)
    marks[id(made)] = of_made
    return made
