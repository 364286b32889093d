"""Merge patches: as RFC 7386 has them, and as the API server takes them for Services."""

from typing import Any

import pytest

from proxylab.scenario.document import Document, Location, Problems
from proxylab.scenario.source import read_documents
from proxylab.scenario.updates import patched, patched_service
from proxylab.scenario.words import Position


def location(value: object) -> Location:
    return Location(Document(value, Position("f", 1, 1), {}))


@pytest.mark.parametrize(
    ("base", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"a": "foo"}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_the_examples_of_the_rfc(base: object, patch: object, result: object) -> None:
    assert patched(location(base), location(patch)).value == result


NODE_PORT = {"type": "NodePort", "externalTrafficPolicy": "Local", "ports": [{"port": 80, "nodePort": 30080}]}
BALANCED = {**NODE_PORT, "type": "LoadBalancer", "healthCheckNodePort": 30081, "loadBalancerClass": "x"}


@pytest.mark.parametrize(
    ("spec", "patch", "result"),
    [
        (NODE_PORT, {"type": "ClusterIP"}, {"type": "ClusterIP", "ports": [{"port": 80}]}),
        (NODE_PORT, {"type": None}, {"ports": [{"port": 80}]}),
        (NODE_PORT, {"type": "LoadBalancer"}, {**NODE_PORT, "type": "LoadBalancer"}),
        (BALANCED, {"type": "NodePort"}, NODE_PORT | {"type": "NodePort"}),
        (BALANCED, {"externalTrafficPolicy": "Cluster"}, {
            "type": "LoadBalancer", "externalTrafficPolicy": "Cluster", "loadBalancerClass": "x",
            "ports": NODE_PORT["ports"]}),
        (NODE_PORT | {"externalIPs": ["192.0.2.1"]}, {"type": "ClusterIP"}, {
            "type": "ClusterIP", "externalTrafficPolicy": "Local", "externalIPs": ["192.0.2.1"],
            "ports": [{"port": 80}]}),
        ({"clusterIP": "10.96.0.9", "ipFamilies": ["IPv4"]}, {"type": "ExternalName", "externalName": "a.b"}, {
            "type": "ExternalName", "externalName": "a.b"}),
    ],
)  # fmt: skip
def test_what_goes_with_a_type_goes_with_it(
    spec: dict[str, Any], patch: dict[str, Any], result: dict[str, Any]
) -> None:
    assert patched_service(location({"spec": spec}), location({"spec": patch})).value == {"spec": result}


def test_everything_keeps_its_place() -> None:
    problems = Problems()
    documents, _ = read_documents("spec:\n  type: NodePort\n  ports: []\n---\nspec:\n  ports: [1]\n", "f", problems)
    base, patch = (document.root for document in documents)
    made = patched(base, patch)
    lines = [made["spec"][key].key.position.line for key in ("type", "ports")]
    assert lines == [2, 6]
    assert made["spec"]["ports"][0].spot.position == Position("f", 6, 11)
