"""Printouts as they come: YAML and JSON, one text or several, whole lists and single objects."""

import json

import pytest
from kubectl_clusters import k3s

from proxylab.errors import ScenarioError
from proxylab.features.import_.reading import read_kubectl_output

NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "n"}}


def test_yaml_and_json_hold_the_same() -> None:
    cluster = k3s()
    assert read_kubectl_output([("x", cluster.yaml())]) == read_kubectl_output([("x", cluster.json())])


def test_lists_of_lists_documents_and_several_texts_are_one_printout() -> None:
    nested = {"kind": "List", "items": [{"kind": "NodeList", "items": [NODE]}, POD]}
    found = read_kubectl_output(
        [("a", json.dumps(nested)), ("b", "kind: Pod\nmetadata: {name: b}\n---\nkind: Secret\n")]
    )
    assert [each["metadata"]["name"] for each in (*found.nodes, *found.pods)] == ["a", "a", "b"]
    assert found.others == {"Secret": 1}


def test_an_object_that_is_printed_twice_is_one() -> None:
    assert len(read_kubectl_output([("a", json.dumps(POD)), ("b", json.dumps(POD))]).pods) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "x:1:2: not valid YAML"),
        ("a: [", "x:1:5: not valid YAML"),
        ("", "x: no Service, EndpointSlice, Pod or Node there; give it what `kubectl get"),
        ("kind: Secret\n", "x: no Service, EndpointSlice, Pod or Node there"),
        ("[1, 2]", "x: no Service"),
        ("kind: Deployment\nmetadata: {name: a}\n", "x: workloads, and no pod or EndpointSlice: manifests rather than"),
        ("kind: List\nitems: null\n", "x: no Service"),
    ],
)
def test_what_is_no_printout(text: str, said: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        read_kubectl_output([("x", text)])
    assert refused.value.problems[0].startswith(said)
