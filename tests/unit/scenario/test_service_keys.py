"""Reader, encoder and import of a Service go by one table, so that a further field stands in two files."""

from typing import Any

import pytest

from proxylab.cluster.documents import TABLES, document_of
from proxylab.cluster.objects import Service
from proxylab.features.import_.manifests import reduced_service
from proxylab.scenario.keys import declared_keys
from proxylab.scenario.reading import read_plain
from proxylab.scenario.services import ServiceManifest, ServiceSpec, service_of

WRITTEN: dict[str, Any] = {
    "type": "LoadBalancer",
    "selector": {"app": "echo"},
    "publishNotReadyAddresses": True,
    "externalName": "echo.example.com",
    "ipFamilies": ["IPv6", "IPv4"],
    "ipFamilyPolicy": "PreferDualStack",
    "internalTrafficPolicy": "Local",
    "externalTrafficPolicy": "Local",
    "allocateLoadBalancerNodePorts": False,
    "externalIPs": ["198.51.100.7"],
    "loadBalancerSourceRanges": ["203.0.113.0/24"],
    "healthCheckNodePort": 30099,
    "trafficDistribution": "PreferClose",
}


def test_every_key_of_one_field_has_a_row_here() -> None:
    of_one_field = {each.path for name, each in TABLES[Service].fields.items() if name != "ports"}
    of_spec = {path.removeprefix("spec.") for path in of_one_field if path.startswith("spec.")}
    assert of_spec == set(WRITTEN) <= {key.alias for key in declared_keys(ServiceSpec)}


@pytest.mark.parametrize("key", WRITTEN)
def test_a_key_is_read_served_and_imported_as_it_is_written(key: str) -> None:
    kind = {"externalName": "ExternalName"}.get(key, "LoadBalancer")
    raw = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "echo", "namespace": "default"},
        "spec": {"type": kind, "ports": [{"port": 80}], key: WRITTEN[key]},
    }
    served = document_of(service_of(read_plain(ServiceManifest, raw)), 1, "2026-01-02T03:04:05Z")
    assert served["spec"][key] == WRITTEN[key]
    assert reduced_service(raw)["spec"][key] == WRITTEN[key]
    assert key in ("type", "selector", "publishNotReadyAddresses") or served["spec"][key] != without(key, kind)


def without(key: str, kind: str) -> Any:
    """The value of a key that the author has not written."""
    raw = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "echo"}, "spec": {"type": kind}}
    return document_of(service_of(read_plain(ServiceManifest, raw)), 1, "2026-01-02T03:04:05Z")["spec"].get(key)
