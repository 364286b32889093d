"""The names and labels of a workload's pods."""

import re

import pytest

from proxylab.cluster.objects import Node
from proxylab.cluster.workloads import PodMaker, PodTemplate, Replica, Workload, revision_of

NODES = (Node(name="node-a"), Node(name="node-b"), Node(name="cp", taints=("node-role.kubernetes.io/control-plane",)))
TEMPLATE = PodTemplate(labels={"app": "web"}, revision=revision_of({"spec": {"containers": [{"image": "web:1"}]}}))
LETTERS = "[bcdfghjklmnpqrstvwxz2456789]"


def begun(kind: str, name: str = "web", replicas: int = 3, **others: object) -> tuple[Replica, ...]:
    workload = Workload(kind=kind, name=name, replicas=replicas, template=TEMPLATE, **others)  # type: ignore[arg-type]
    return PodMaker(NODES).begin(workload)


@pytest.mark.parametrize(
    ("kind", "pattern", "label"),
    [
        ("Deployment", rf"web-{LETTERS}{{1,10}}-{LETTERS}{{5}}", "pod-template-hash"),
        ("ReplicaSet", rf"web-{LETTERS}{{5}}", "app"),
        ("DaemonSet", rf"web-{LETTERS}{{5}}", "controller-revision-hash"),
        ("StatefulSet", r"web-[0-2]", "statefulset.kubernetes.io/pod-name"),
        ("Job", rf"web-{LETTERS}{{5}}", "job-name"),
    ],
)
def test_pods_have_names_and_labels_as_in_a_cluster(kind: str, pattern: str, label: str) -> None:
    pods = begun(kind)
    assert all(re.fullmatch(pattern, each.name) for each in pods), [each.name for each in pods]
    assert len({each.name for each in pods}) == len(pods)
    assert all(label in each.labels and each.labels["app"] == "web" for each in pods)
    assert begun(kind) == pods


def test_a_daemon_runs_once_on_each_node_that_it_tolerates() -> None:
    assert [each.node for each in begun("DaemonSet", replicas=1)] == ["node-a", "node-b"]


def test_ordinals_may_begin_elsewhere_and_a_job_may_have_indexes() -> None:
    assert [each.name for each in begun("StatefulSet", first=5, replicas=2)] == ["web-5", "web-6"]
    assert [each.name[:6] for each in begun("Job", replicas=2, indexed=True)] == ["web-0-", "web-1-"]


def test_a_long_prefix_is_cut_so_that_the_name_is_a_label() -> None:
    (pod,) = begun("Deployment", name="a" * 57, replicas=1)
    assert len(pod.name) == 63
    assert pod.name.startswith("a" * 57 + "-")


def test_another_template_has_another_hash_whatever_changed() -> None:
    one, other = ({"spec": {"containers": [{"image": image}]}} for image in ("web:1", "web:2"))
    assert revision_of(one) != revision_of(other)
    assert revision_of(one) == revision_of({**one})
