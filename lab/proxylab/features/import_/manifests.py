"""Reduces Services and EndpointSlices to the fields that a proxy reads; the reader of scenarios checks them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from msgspec.structs import fields

from proxylab.cluster.documents import TABLES
from proxylab.cluster.objects import HEADLESS_LABEL, SERVICE_NAME_LABEL, SERVICE_PROXY_NAME_LABEL, Service
from proxylab.features.import_.reading import Raw, at, namespaced
from proxylab.scenario.keys import declared_keys
from proxylab.scenario.services import ServiceSpec

Data = dict[str, Any]
"""A part of the scenario, as it will be written."""

_DEFAULTS: Final = {each.name: each.default for each in fields(Service)}
_SPEC: Final = {key.alias: key.default for key in declared_keys(ServiceSpec) if key.name != "ports"} | {
    each.path.removeprefix("spec."): _DEFAULTS[name]
    for name, each in TABLES[Service].fields.items()
    if each.path.startswith("spec.") and name != "ports"
}
"""The keys of a Service's spec that a proxy reads, with their defaults."""

_LABELS: Final = (HEADLESS_LABEL, SERVICE_PROXY_NAME_LABEL)


def reduced_service(raw: Raw) -> Data:
    """A Service with the fields that a proxy reads."""
    spec = {key: at(raw, "spec", key) for key, default in _SPEC.items() if at(raw, "spec", key) not in (None, default)}
    if len(spec.get("clusterIPs") or []) == 1:  # says the same as clusterIP
        del spec["clusterIPs"]
    ports = [
        pruned({**each, "targetPort": each.get("targetPort") if each.get("targetPort") != each.get("port") else None})
        for each in _picked(at(raw, "spec", "ports"), ("name", "protocol", "port", "targetPort", "nodePort"))
    ]
    ingress = list(_picked(at(raw, "status", "loadBalancer", "ingress"), ("ip", "hostname", "ipMode")))
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(raw, _LABELS),
        "spec": pruned({**spec, "ports": ports}),
        **({"status": {"loadBalancer": {"ingress": ingress}}} if ingress else {}),
    }


def reduced_slice(raw: Raw, node_name: Callable[[str], str], address: Callable[[str], str]) -> Data:
    """An EndpointSlice with the fields that a proxy reads.

    Two functions give a node's name in the scenario, and the lab's address for one of the cluster.
    """
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": _metadata(raw, (SERVICE_NAME_LABEL,)),
        "addressType": at(raw, "addressType"),
        "ports": [pruned(each) for each in _picked(at(raw, "ports"), ("name", "protocol", "port"))],
        "endpoints": [_endpoint(each, node_name, address) for each in at(raw, "endpoints") or []],
    }


def _endpoint(raw: Raw, node_name: Callable[[str], str], address: Callable[[str], str]) -> Data:
    conditions = dict(at(raw, "conditions") or {})
    usual = {"ready": True, "serving": conditions.get("ready", True), "terminating": False}
    hints = {
        "forZones": at(raw, "hints", "forZones"),
        "forNodes": [{"name": node_name(each["name"])} for each in at(raw, "hints", "forNodes") or []],
    }
    return pruned(
        {
            "addresses": [address(each) for each in (at(raw, "addresses") or [])[:1]],  # proxies look at the first
            "conditions": {
                key: value
                for key, value in conditions.items()
                if key in usual and value is not None and value != usual[key]
            },
            "nodeName": node_name(raw["nodeName"]) if raw.get("nodeName") else None,
            "zone": raw.get("zone"),
            "hints": pruned(hints),
        }
    )


def _metadata(raw: Raw, labels: Iterable[str]) -> Data:
    namespace, name = namespaced(raw)
    given = at(raw, "metadata", "labels") or {}
    return pruned(
        {
            "name": name,
            "namespace": namespace if namespace != "default" else None,
            "labels": {key: given[key] for key in labels if key in given},
        }
    )


def _picked(entries: Any, keys: tuple[str, ...]) -> Iterable[Data]:
    for each in entries or []:
        picked = {key: each[key] for key in keys if key in each}
        if picked.get("protocol") == "TCP":
            del picked["protocol"]
        yield picked


def pruned(data: Mapping[str, Any]) -> Data:
    """The mapping without empty values."""
    return {key: value for key, value in data.items() if value is not None and value != "" and value not in ([], {})}
