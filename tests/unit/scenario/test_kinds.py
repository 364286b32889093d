"""Objects of kinds that mean nothing to a proxy, and versions that Kubernetes no longer serves."""

import re

import pytest
from broken_scenarios import BASE, noted

from proxylab.cluster.objects import Namespace, Unstructured
from proxylab.errors import ScenarioError
from proxylab.plan.assembly import lay_out
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.model import Scenario

CHART = """\
---
# Source: shop/templates/serviceaccount.yaml
apiVersion: v1
kind: ServiceAccount
metadata:
  name: shop
  labels:
    helm.sh/chart: shop-0.1.0
    app.kubernetes.io/managed-by: Helm
automountServiceAccountToken: true
---
# Source: shop/templates/configmap.yaml
apiVersion: v1
kind: ConfigMap
metadata:
  name: shop
data:
  server.conf: |
    listen 8080;
---
# Source: shop/templates/hpa.yaml
---
# Source: shop/templates/pdb.yaml
apiVersion: policy/v1beta1
kind: PodDisruptionBudget
metadata:
  name: shop
spec:
  minAvailable: 1
---
# Source: shop/templates/servicemonitor.yaml
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  name: shop
  namespace: monitoring
spec: {selector: {matchLabels: {app: shop}}}
---
# Source: shop/templates/tests/test-connection.yaml
apiVersion: v1
kind: Pod
metadata:
  name: "shop-test-connection"
  annotations:
    "helm.sh/hook": test
spec:
  containers: [{name: wget, image: busybox, command: ["wget"], args: ["shop:80"]}]
  restartPolicy: Never
"""


def read(manifest: str) -> Scenario:
    return parse_scenario(f"{BASE}---\n{manifest}", "f")


def kept(scenario: Scenario) -> dict[str, Unstructured]:
    return {str(each.key): each for each in lay_out(scenario).objects if isinstance(each, Unstructured)}


def test_the_output_of_helm_template_is_kept_with_one_note() -> None:
    scenario = read(CHART)
    found = kept(scenario)
    assert list(found) == [
        "ServiceAccount default/shop",
        "ConfigMap default/shop",
        "PodDisruptionBudget.policy default/shop",
        "ServiceMonitor.monitoring.coreos.com monitoring/shop",
    ]
    assert found["ConfigMap default/shop"].content["data"] == {"server.conf": "listen 8080;\n"}
    assert found["PodDisruptionBudget.policy default/shop"].api_version == "policy/v1"
    assert "shop-test-connection" not in {each.name for each in scenario.pods}
    assert set(noted(scenario)) == {
        (
            "the API serves them, and they have no effect here: 1 ConfigMap, 1 PodDisruptionBudget.policy, "
            "1 ServiceAccount, 1 ServiceMonitor.monitoring.coreos.com"
        ),
        "PodDisruptionBudget shop: Kubernetes serves policy/v1, and the lab reads policy/v1beta1 as that",
        "no effect: Pod 'shop-test-connection' is a hook, which a cluster has only while helm runs it",
    }


def test_a_definition_gives_the_plural_and_the_scope_of_its_kind() -> None:
    found = kept(
        read(
            """\
apiVersion: example.org/v1
kind: Fox
metadata: {name: red}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: foxen.example.org}
spec: {group: example.org, scope: Cluster, names: {kind: Fox, plural: foxen}, versions: []}
"""
        )
    )
    assert found["Fox.example.org red"].plural == "foxen"


def test_a_typed_list_is_read_like_a_list() -> None:
    item = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"
    assert list(kept(read(f"apiVersion: v1\nkind: ConfigMapList\nitems: [{item}]\n"))) == ["ConfigMap default/a"]


def test_a_namespace_keeps_its_labels() -> None:
    namespaces = [
        each
        for each in lay_out(read("{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {a: b}}}")).objects
        if isinstance(each, Namespace)
    ]
    assert [(each.name, dict(each.labels)) for each in namespaces if each.name == "shop"] == [("shop", {"a": "b"})]


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ("{apiVersion: v1, kind: ConfigMpa, metadata: {name: a}}", "did you mean 'ConfigMap'?"),
        ("{apiVersion: apps/v1, kind: ConfigMap, metadata: {name: a}}", "'apps/v1' has no ConfigMap; allowed: v1"),
        ("{apiVersion: v1, kind: Secret, metadata: {}}", "metadata.name: is missing"),
    ],
)
def test_a_mistake_is_refused(manifest: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=re.escape(message)):
        read(manifest)
