"""Reader, encoder and import of a Service go by one table, so that a further field stands in two files."""

from typing import Any

import pytest
from msgspec.structs import fields

from proxylab.cluster.objects import SPEC_KEYS, Service
from proxylab.control.kubeapi.manifest import manifest
from proxylab.features.import_.manifests import reduced_service
from proxylab.scenario.keys import declared_keys
from proxylab.scenario.reading import read_plain
from proxylab.scenario.services import ServiceManifest, ServiceSpec, service_of

OTHERWISE = {
    *("namespace", "name", "labels", "annotations", "stored"),  # of metadata
    *("ports", "headless", "cluster_ips", "affinity_timeout"),  # several keys, or values within values
    "load_balancer_ingress",  # of status
}
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


def test_every_field_stands_in_the_table_or_is_read_by_itself() -> None:
    assert {each.name for each in fields(Service)} == {*SPEC_KEYS, *OTHERWISE}
    assert (
        {each.key for each in SPEC_KEYS.values()} == set(WRITTEN) <= {key.alias for key in declared_keys(ServiceSpec)}
    )


@pytest.mark.parametrize("key", WRITTEN)
def test_a_key_is_read_served_and_imported_as_it_is_written(key: str) -> None:
    kind = {"externalName": "ExternalName"}.get(key, "LoadBalancer")
    raw = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "echo", "namespace": "default"},
        "spec": {"type": kind, "ports": [{"port": 80}], key: WRITTEN[key]},
    }
    served = manifest(service_of(read_plain(ServiceManifest, raw)), 1, "2026-01-02T03:04:05Z")
    assert served["spec"][key] == WRITTEN[key]
    assert reduced_service(raw)["spec"][key] == WRITTEN[key]
    assert key in ("type", "selector", "publishNotReadyAddresses") or served["spec"][key] != without(key, kind)


def without(key: str, kind: str) -> Any:
    """The value of a key that the author has not written."""
    raw = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "echo"}, "spec": {"type": kind}}
    return manifest(service_of(read_plain(ServiceManifest, raw)), 1, "2026-01-02T03:04:05Z")["spec"].get(key)
