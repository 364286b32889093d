"""Where pods run: selectors, taints and topology spread, one rule at a time."""

import pytest

from proxylab.cluster.objects import Node
from proxylab.cluster.placement import Constraints, Placed, Requirement, Toleration, TopologySpread, node_for

ZONE = "topology.kubernetes.io/zone"
NODES = (
    Node(name="a1", labels={ZONE: "a", "disk": "ssd", "cores": "8"}),
    Node(name="a2", labels={ZONE: "a", "cores": "4"}, taints=("dedicated=db:NoSchedule",)),
    Node(name="b1", labels={ZONE: "b"}, taints=("noisy:PreferNoSchedule",)),
    Node(name="c1", taints=("broken:NoExecute",)),
)
WEB = {"app": "web"}
ALL = (Toleration(operator="Exists"),)


def requiring(key: str, operator: str, *values: str) -> Constraints:
    return Constraints(terms=((Requirement(key=key, operator=operator, values=values),),), tolerations=ALL)


def places(constraints: Constraints, count: int) -> list[str | None]:
    there: list[Placed] = []
    for _ in range(count):
        node = node_for(constraints, "web", NODES, there)
        if node is not None:
            there.append(Placed("web", node, WEB))
    return [each.node for each in there] + [None] * (count - len(there))


def test_pods_go_round_the_nodes_that_have_no_taint_against_them() -> None:
    assert places(Constraints(), 4) == ["a1", "b1", "a1", "b1"]
    assert places(Constraints(tolerations=ALL), 5) == ["a1", "a2", "b1", "c1", "a1"]


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        (Toleration(key="dedicated", value="db"), True),
        (Toleration(key="dedicated", value="db", effect="NoSchedule"), True),
        (Toleration(key="dedicated", value="db", effect="NoExecute"), False),
        (Toleration(key="dedicated", value="web"), False),
        (Toleration(key="dedicated", operator="Exists"), True),
        (Toleration(key="other", operator="Exists"), False),
    ],
)
def test_a_toleration_matches_a_taint(toleration: Toleration, fits: bool) -> None:
    assert ("a2" in places(Constraints(tolerations=(toleration,)), 4)) is fits


@pytest.mark.parametrize(
    ("constraints", "nodes"),
    [
        (requiring("disk", "In", "ssd", "nvme"), {"a1"}),
        (requiring("disk", "NotIn", "ssd"), {"a2", "b1", "c1"}),
        (requiring(ZONE, "Exists"), {"a1", "a2", "b1"}),
        (requiring(ZONE, "DoesNotExist"), {"c1"}),
        (requiring("cores", "Gt", "4"), {"a1"}),
        (requiring("cores", "Lt", "8"), {"a2"}),
        (requiring("kubernetes.io/hostname", "In", "b1"), {"b1"}),
        (requiring("kubernetes.io/os", "In", "linux"), {"a1", "a2", "b1", "c1"}),
        (Constraints(node_name="c1"), {"c1"}),
    ],
)
def test_a_node_must_satisfy_what_the_pod_requires(constraints: Constraints, nodes: set[str]) -> None:
    assert set(places(constraints, 8)) == nodes


def test_one_of_several_terms_is_enough() -> None:
    either = Constraints(
        terms=(
            (Requirement(key="disk", operator="Exists"),),
            (Requirement(key=ZONE, operator="In", values=("b",)),),
        )
    )
    assert set(places(either, 4)) == {"a1", "b1"}


def test_a_spread_constraint_keeps_domains_level_or_leaves_the_pod_without_a_node() -> None:
    web = (Requirement(key="app", operator="In", values=("web",)),)
    spread = TopologySpread(max_skew=1, topology_key=ZONE, selector=web)
    assert places(Constraints(spreads=(spread,)), 4) == ["a1", "b1", "a1", "b1"]
    # Zone b counts, since the pod may use it; but only zone a has a node whose taints it tolerates.
    nodes = (NODES[0], Node(name="b2", labels={ZONE: "b"}, taints=("dedicated:NoSchedule",)))
    there = [Placed("web", "a1", WEB)]
    assert node_for(Constraints(spreads=(spread,)), "web", nodes, there) is None
    soft = TopologySpread(max_skew=1, topology_key=ZONE, hard=False, selector=web)
    assert node_for(Constraints(spreads=(soft,)), "web", nodes, there) == "a1"


def test_a_soft_spread_prefers_the_domain_with_fewer_pods() -> None:
    web = (Requirement(key="app", operator="In", values=("web",)),)
    nodes = (NODES[0], Node(name="a3", labels={ZONE: "a"}), Node(name="b3", labels={ZONE: "b"}))
    soft = Constraints(spreads=(TopologySpread(max_skew=1, topology_key=ZONE, hard=False, selector=web),))
    assert node_for(soft, "web", nodes, [Placed("web", "a1", WEB)]) == "b3"
