"""Pods of a scenario that people delete by kubectl: they are gone, and others may have their names."""

import json
import re
from pathlib import Path

from command_line import CommandLine, wait_for
from kubectl_verbs import MANIFESTS
from test_real_control_plane import SCENARIO, Kubectl, answers, kubectl, started
from test_real_control_plane import pytestmark as needs_control_plane

__all__ = ["kubectl"]

pytestmark = needs_control_plane


def test_a_deleted_pod_answers_no_more_and_another_one_may_have_its_name(cli: CommandLine, kubectl: Kubectl) -> None:
    address = kubectl("get", "pod", "echo-1", "-o", "jsonpath={.status.podIP}")
    assert answers(cli, f"http://{address}:8080/") == {"echo-1"}
    kubectl("delete", "pods", "echo-1", "client")
    wait_for(lambda: answers(cli, f"http://{address}:8080/", "node-a") == set(), "the pod to disappear")
    assert "echo-1" not in cli.type("get", "pods").output
    kubectl("run", "client", "--image=client", "--port=80")
    kubectl("wait", "--for=condition=Ready", "pod/client", "--timeout=40s")
    anew = kubectl("get", "pod", "client", "-o", "jsonpath={.status.podIP}")
    assert anew in cli.type("exec", "client", "--", "ip", "-4", "address").output
    for sender, target in (("client", "echo-2:8080"), ("node-b", "pod/client")):
        probe = cli.type("probe", sender, target, "--flows", "5")
        assert (probe.output.startswith("pass  5 delivered"), anew in probe.output) == (True, True), probe


def test_pods_of_a_stateful_set_keep_their_names_when_they_are_replaced(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "db.lab.yaml"
    file.write_text(f"{SCENARIO}---\n{MANIFESTS}")
    kubectl = started(cli, tmp_path, str(file))
    before = kubectl("get", "pod", "db-0", "-o", "jsonpath={.status.podIP}")
    kubectl("rollout", "restart", "statefulset/db")
    kubectl("rollout", "status", "statefulset/db", "--timeout=60s")
    now = kubectl("get", "pod", "db-0", "-o", "jsonpath={.status.podIP}")
    assert now != before
    probe = cli.type("probe", "client", "db-0:5432")
    assert (probe.output.startswith("pass  delivered"), f"endpoint {now}:5432" in probe.output) == (True, True), probe


def test_workloads_and_other_objects_of_kubectl_are_listed_by_our_own_verbs(cli: CommandLine, kubectl: Kubectl) -> None:
    assert cli.type("get", "deploy").output == "no deployments in this lab\n"
    kubectl("create", "deployment", "shop", "--image=shop", "--port=8080", "--replicas=2")
    kubectl("create", "configmap", "settings", "--from-literal=color=blue", "-n", "kube-public")
    kubectl("rollout", "status", "deployment/shop", "--timeout=40s")
    listed = cli.type("get", "deploy,rs").output
    assert re.search(r"deployment/shop +2/2 +node-a,node-b\n", listed), listed
    assert re.search(r"replicaset/shop-\S+ +2/2 ", listed), listed
    assert json.loads(cli.type("get", "deploy", "shop", "-o", "json").output)["spec"]["replicas"] == 2
    assert re.search(r"kube-public +settings\n", cli.type("get", "cm", "-A").output)
    assert "shop-" in cli.type("describe", "deploy", "shop").output
    kubectl("delete", "deployment", "shop")
    assert cli.type("get", "deploy").output == "no deployments in this lab\n"
