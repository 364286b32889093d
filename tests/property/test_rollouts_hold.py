"""Any rollout ends with the pods that the workload wants, and keeps its promises on the way."""

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from proxylab.cluster.objects import Node
from proxylab.cluster.rollout import RolloutStage, roll
from proxylab.cluster.workloads import PodMaker, PodTemplate, Replica, Workload

examples = settings(max_examples=100, deadline=None)
NODES = (Node(name="node-a"), Node(name="node-b"), Node(name="node-c"))

templates = st.builds(
    PodTemplate,
    labels=st.just({"app": "web"}),
    revision=st.sampled_from(["old", "new"]),
    ready_after=st.sampled_from([0, 1000]),
    grace=st.sampled_from([0, 30_000]),
)
shares = st.one_of(st.integers(0, 3), st.sampled_from(["0%", "25%", "50%", "100%"]))


def workloads(*kinds: str) -> st.SearchStrategy[Workload]:
    return st.builds(
        Workload,
        kind=st.sampled_from(kinds),
        name=st.just("web"),
        replicas=st.integers(0, 6),
        template=templates,
        strategy=st.sampled_from(["RollingUpdate", "Recreate", "OnDelete"]),
        max_surge=shares,
        max_unavailable=shares,
        partition=st.integers(0, 3),
        parallel=st.booleans(),
        min_ready=st.sampled_from([0, 1000]),
    )


def live_after(
    before: tuple[Replica, ...], stages: list[RolloutStage]
) -> Iterator[tuple[dict[str, Replica], set[str]]]:
    """After each stage, the pods and the names of those that are ready."""
    pods = {each.name: each for each in before}
    ready = set(pods)
    for stage in stages:
        assert set(stage.deleted) <= set(pods), "only a pod that is there is deleted"
        assert set(stage.terminating) <= set(pods)
        pods = {name: each for name, each in pods.items() if name not in stage.deleted}
        created = {each.name: each for each in stage.created}
        assert not set(created) & set(pods), "a pod is there once"
        pods |= created
        ready = (ready | {each.name for each in stage.created if not each.template.ready_after}) & set(pods)
        ready = (ready | set(stage.ready)) - set(stage.terminating)
        yield pods, ready


@given(workloads("Deployment", "ReplicaSet", "StatefulSet"), workloads("Deployment"))
@examples
def test_a_rollout_ends_with_the_pods_that_are_wanted(before: Workload, drawn: Workload) -> None:
    maker = PodMaker(NODES)
    live = maker.begin(before)
    wanted = replace(drawn, kind=before.kind)
    stages = list(roll(wanted, live, maker))
    pods, ready = (
        list(live_after(live, stages)) or [({each.name: each for each in live}, {each.name for each in live})]
    )[-1]
    assert len(pods) == wanted.replicas
    assert ready == set(pods)
    if wanted.kind == "Deployment":
        assert {each.revision for each in pods.values()} <= {wanted.template.revision}
    assert list(roll(wanted, tuple(pods.values()), maker)) == [] or wanted.kind == "ReplicaSet"


@given(workloads("Deployment"), templates)
@examples
def test_a_rolling_update_stays_within_its_bounds(before: Workload, template: PodTemplate) -> None:
    before = replace(before, strategy="RollingUpdate")
    maker = PodMaker(NODES)
    live = maker.begin(before)
    wanted = replace(before, template=template)
    stages = list(roll(wanted, live, maker))
    surge, missing = (
        value if isinstance(value, int) else -(-sign * int(value[:-1]) * before.replicas // 100) * sign
        for value, sign in ((before.max_surge, 1), (before.max_unavailable, -1))
    )
    missing = missing or (0 if surge else 1)
    ending: set[str] = set()
    for stage, (pods, ready) in zip(stages, live_after(live, stages), strict=True):
        ending |= set(stage.terminating)
        assert len(set(pods) - ending) <= before.replicas + surge
        assert len(ready) >= before.replicas - missing


@given(workloads("StatefulSet"), templates)
@examples
def test_a_stateful_set_replaces_one_pod_after_the_other(before: Workload, template: PodTemplate) -> None:
    before = replace(before, parallel=False, strategy="RollingUpdate")
    maker = PodMaker(NODES)
    live = maker.begin(before)
    stages = list(roll(replace(before, template=template), live, maker))
    for pods, ready in live_after(live, stages):
        assert len(ready) >= before.replicas - 1
        assert len(pods) <= before.replicas
    deleted = [int(name.rpartition("-")[2]) for stage in stages for name in stage.deleted]
    assert deleted == sorted(deleted, reverse=True)
    assert all(ordinal >= before.partition for ordinal in deleted)


@given(workloads("DaemonSet"), templates)
@examples
def test_a_daemon_set_keeps_one_pod_on_each_node(before: Workload, template: PodTemplate) -> None:
    before = replace(before, strategy="RollingUpdate", max_surge=0, max_unavailable=1)
    maker = PodMaker(NODES)
    live = maker.begin(before)
    stages = list(roll(replace(before, template=template), live, maker))
    for pods, ready in live_after(live, stages):
        assert len(ready) >= len(NODES) - 1
        assert len({each.node for each in pods.values()}) == len(pods)
        assert len(pods) >= len(NODES) - 1
