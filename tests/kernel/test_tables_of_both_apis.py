"""`kubectl get` shows the same of the lab's own API and of a real one: columns, and cells of the same scenario."""

import json
import ssl
import urllib.request
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

from command_line import CommandLine
from test_real_control_plane import FRONT, SCENARIO, SECONDS, WORKLOADS, started
from test_real_control_plane import pytestmark as needs_control_plane

from proxylab.cluster.store import Store
from proxylab.control.kubeapi.api import ApiReply, KubeApi
from proxylab.plan.assembly import lay_out
from proxylab.scenario.load import parse_scenario

pytestmark = needs_control_plane

AS_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
FURTHER = """\
---
apiVersion: v1
kind: Service
metadata: {name: named}
spec: {type: ExternalName, externalName: example.com}
---
apiVersion: v1
kind: Service
metadata: {name: edge}
spec:
  type: LoadBalancer
  externalIPs: [198.51.100.7]
  selector: {app: web, tier: front}
  ports: [{name: a, port: 80, targetPort: 8080, nodePort: 30081}, {name: b, port: 81, protocol: UDP, nodePort: 30082}]
status: {loadBalancer: {ingress: [{ip: 192.0.2.7}]}}
---
"""
TEXT = f"{SCENARIO}---\n{WORKLOADS}{FURTHER}{FRONT[FRONT.index('apiVersion: networking.k8s.io/v1') :]}"

ONLY_COLUMNS = (
    "/apis/apps/v1/replicasets",  # the scenario has none; its Deployment's is the controller's
    "/api/v1/secrets", "/api/v1/serviceaccounts", "/apis/networking.k8s.io/v1/ingressclasses",
    "/apis/networking.k8s.io/v1/networkpolicies", "/apis/networking.k8s.io/v1/servicecidrs", "/api/v1/events",
    "/apis/events.k8s.io/v1/events", "/apis/rbac.authorization.k8s.io/v1/clusterroles",
)  # fmt: skip
ALIKE = (
    "/api/v1/namespaces/default/services", "/api/v1/namespaces/default/pods", "/api/v1/nodes",
    "/api/v1/namespaces/default/endpoints", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
    "/api/v1/namespaces/default", "/apis/apps/v1/deployments", "/apis/apps/v1/statefulsets",
    "/apis/apps/v1/daemonsets", "/api/v1/namespaces/default/configmaps", "/apis/networking.k8s.io/v1/ingresses",
)  # fmt: skip
OF_MACHINES = {"Age", "Version", "OS-Image", "Kernel-Version", "Container-Runtime"}
"""What a lab does not say of its objects, or at another time."""

Ask = Callable[[str], Any]


def columns(table: Any) -> list[tuple[Any, ...]]:
    return [tuple(each[key] for key in ("name", "type", "format", "priority")) for each in table["columnDefinitions"]]


def cells(table: Any, *, named: bool) -> list[dict[str, Any]]:
    heads = [each["name"] for each in table["columnDefinitions"]]
    without = OF_MACHINES if named else OF_MACHINES | {"Name"}
    rows = [dict(zip(heads, each["cells"], strict=True)) for each in table["rows"]]
    found = [
        {head: ",".join(sorted(str(cell).split(","))) for head, cell in row.items() if head not in without}
        for row in rows
        if row["Name"] not in ("kubernetes", "kube-root-ca.crt")
    ]
    return sorted(found, key=str)


def real(cli: CommandLine) -> Ask:
    document = json.loads(cli.type("kubeconfig").output)
    (cluster,), (user,) = document["clusters"], document["users"]
    authority = b64decode(cluster["cluster"]["certificate-authority-data"]).decode()
    context = ssl.create_default_context(cadata=authority)

    def ask(path: str) -> Any:
        headers = {"Authorization": f"Bearer {user['user']['token']}", "Accept": AS_TABLE}
        asked = urllib.request.Request(cluster["cluster"]["server"] + path, headers=headers)
        with urllib.request.urlopen(asked, context=context, timeout=SECONDS) as answer:
            return json.load(answer)

    return ask


def embedded() -> Ask:
    store = Store()
    for thing in lay_out(parse_scenario(TEXT, "both.lab.yaml")).objects:
        store.apply(thing)
    api = KubeApi(store, "2026-01-02T03:04:05Z")

    def ask(path: str) -> Any:
        reply = api.answer("GET", path, "", b"", "", AS_TABLE)
        assert isinstance(reply, ApiReply)
        return json.loads(reply.body)

    return ask


def test_both_have_the_same_columns_and_the_same_cells(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "both.lab.yaml"
    file.write_text(TEXT)
    kubectl = started(cli, tmp_path, str(file))
    for each in ("deployment/web", "statefulset/db", "daemonset/agent"):
        kubectl("rollout", "status", each, "--timeout=40s")
    own, other = embedded(), real(cli)
    for path in (*ONLY_COLUMNS, *ALIKE):
        assert columns(own(path)) == columns(other(path)), path
    for path in ALIKE:
        named = not path.endswith("endpointslices")  # whose names their controllers generate
        assert cells(own(path), named=named) == cells(other(path), named=named), path
