"""When a proxy is healthy: how long a change may wait, and whether its node stays."""

import pytest

from proxylab.addresses import Family
from proxylab.cluster.objects import Node
from proxylab.engines.embedded.health import Health

BOTH = (Family.IPV4, Family.IPV6)


def test_a_change_may_wait_for_less_than_two_sync_periods() -> None:
    health = Health(BOTH, sync_period=30)
    health.queued(1000)
    assert health.is_healthy(Family.IPV4, 1059.9)
    assert not health.is_healthy(Family.IPV4, 1060)


def test_a_second_change_does_not_renew_the_patience_for_the_first() -> None:
    health = Health(BOTH, sync_period=30)
    health.queued(1000)
    health.queued(1050)
    assert not health.is_healthy(Family.IPV6, 1060)


@pytest.mark.parametrize(("began", "healthy"), [(999, False), (1000, True), (1001, True)])
def test_a_sync_covers_the_changes_that_came_before_it_began(began: float, healthy: bool) -> None:
    health = Health(BOTH, sync_period=30)
    health.queued(1000)
    health.synced(Family.IPV4, began, 1010)
    assert health.is_healthy(Family.IPV4, 1100) is healthy
    assert health.last_synced == {Family.IPV4: 1010, Family.IPV6: None}


def test_a_proxy_keeps_up_only_if_it_does_in_both_families() -> None:
    health = Health(BOTH, sync_period=30)
    assert health.all_healthy(5000), "before the first change"
    health.queued(1000)
    health.synced(Family.IPV4, 1000, 1001)
    assert health.all_healthy(1059)
    assert not health.all_healthy(1100)


@pytest.mark.parametrize(
    ("node", "eligible"),
    [
        (Node(name="node-a"), True),
        (Node(name="node-a", deleting=True), False),
        (Node(name="node-a", taints=("ToBeDeletedByClusterAutoscaler",)), False),
        (None, False),
    ],
    ids=["stays", "is deleted", "is about to be deleted", "unknown"],
)
def test_a_node_is_eligible_while_it_stays(node: Node | None, eligible: bool) -> None:
    health = Health(BOTH, sync_period=30)
    assert not health.node_eligible
    health.look_at(Node(name="node-a"))
    health.look_at(node)
    assert health.node_eligible is eligible
