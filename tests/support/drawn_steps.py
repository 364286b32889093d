"""Hypothesis strategies for streams and steps.

``step_sequences`` draws steps for a scenario of ``scenario_documents``. No step contradicts those before it.
"""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

__all__ = ["step_sequences"]

_Document = dict[str, Any]

_STREAM = {
    "from": {"name": "client", "port": 12345},
    "to": {"service": "echo", "via": "clusterIP"},
    "send": {"every": "20ms"},
}
_COUNTS = st.one_of(
    st.integers(0, 9), st.fixed_dictionaries({"atLeast": st.integers(0, 3), "atMost": st.integers(3, 9)})
)
_PATCHES = st.fixed_dictionaries(
    {
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "type": st.sampled_from(["ClusterIP", "NodePort", "LoadBalancer", None]),
                "ports": st.integers(1, 9).map(lambda port: [{"port": port, "protocol": "UDP"}]),
                "selector": st.sampled_from([None, {"app": "web", "track": "b"}]),
                "sessionAffinity": st.sampled_from(["None", "ClientIP"]),
                "publishNotReadyAddresses": st.sampled_from([True, False, None]),
            },
        )
    },
    optional={"metadata": st.just({"labels": {"team": "a"}})},
)


@st.composite
def step_sequences(draw: st.DrawFn, nodes: Sequence[str]) -> _Document:
    """``streams`` and ``steps`` of a scenario with these nodes, a pod ``client``, and Services ``echo`` and ``web``."""
    running, cut, there, served = set(nodes), set[str](), True, True
    steps = []
    for number in range(draw(st.integers(1, 4))):
        change: _Document = {}
        if draw(st.booleans()):
            patch = draw(st.one_of(st.none(), _PATCHES)) if served else {"spec": {"ports": [{"port": 80}]}}
            change["services"], served = {"web": patch}, patch is not None
        if draw(st.booleans()):
            there = not there or draw(st.booleans())
            labels = draw(st.dictionaries(st.sampled_from("ab"), st.sampled_from(["x", None]), max_size=2))
            change["pods"] = {"client": {"present": True, "labels": labels} if there else None}
        if draw(st.booleans()):
            node = draw(st.sampled_from(nodes))
            change["engines"] = {
                node: draw(st.sampled_from(["kill", "stop", "restart"])) if node in running else "start"
            }
            running = running - {node} if change["engines"][node] in ("kill", "stop") else running | {node}
        if draw(st.booleans()):
            netns_name = draw(st.sampled_from([*nodes, "outside"]))
            change["links"] = {netns_name: "mended" if netns_name in cut else "cut"}
            cut ^= {netns_name}
        if draw(st.booleans()):
            change["nodes"] = {
                nodes[0]: {
                    "labels": {"topology.kubernetes.io/zone": draw(st.sampled_from(["a", None]))},
                    "taints": draw(st.sampled_from([[], ["ToBeDeletedByClusterAutoscaler"]])),
                    "terminating": draw(st.booleans()),
                }
            }
        expect = draw(st.fixed_dictionaries({"lost": _COUNTS}, optional={"resets": _COUNTS, "delay": st.just("1s")}))
        until = {"rules": {nodes[0]: "present"}, "within": "30s"}
        steps.append({"name": f"step {number}", "change": change, "until": until, "expect": {"queries": expect}})
    return {"streams": {"queries": _STREAM}, "steps": steps}
