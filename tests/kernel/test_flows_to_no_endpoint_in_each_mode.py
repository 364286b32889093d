"""A flow that its proxy leads to no endpoint of its Service fails in each mode, though the author names no backends.

The proxies are shown an altered cluster, so what each mode leads astray is its own work. ``attacks/`` does the same by
hand to the rules of one mode.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Final

import pytest
from guests import OWN

from proxylab.client.session import Session
from proxylab.cluster.configuration import TERMINATING_MODES
from proxylab.engines.engine_names import mode_of
from proxylab.engines.protocol import EngineChoice
from proxylab.mutate.objects import ObjectMutation
from proxylab.scenario.cases import cases
from proxylab.scenario.load import parse_scenario
from proxylab.verdict.model import Judgement

SCENARIO: Final = """
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: astray, description: It dials IPv4 alone.}
spec:
  nodes: {node-a: {}, node-b: {}}
  pods:
    echo: {nodes: [node-b], labels: {app: echo}, addresses: [10.244.1.80], ports: &ports [8080, {port: 8080, protocol: UDP}, 8081, {port: 8081, protocol: UDP}]}
    stranger: {nodes: [node-b], addresses: [10.244.1.81], ports: *ports}
    unready: {nodes: [node-b], labels: {app: echo}, addresses: [10.244.1.90], ports: *ports, ready: false}
    client: {nodes: [node-a]}
  streams:
    datagrams: {from: client, to: {service: echo, via: clusterIP, port: udp}}
    connection: {from: client, to: {service: echo, via: clusterIP, port: tcp}}
  probes:
  - name: connections
    from: client
    to: {service: echo, via: clusterIP, port: tcp}
    send: {flows: 20}
    expect: {outcome: delivered, source: SOURCE}
  - name: datagrams
    from: client
    to: {service: echo, via: clusterIP, port: udp}
    send: {flows: 20}
    expect: {outcome: delivered, source: SOURCE}
  - name: requests
    from: client
    to: {service: echo, via: clusterIP, port: tcp}
    send: {flows: 20}
    expect: {outcome: delivered, source: SOURCE, http: {status: 200}}
  steps:
  - name: streams
    expect: {datagrams: {lost: {atMost: 1000}}, connection: {lost: {atMost: 1000}}}
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec:
  selector: {app: echo}
  ports:
  - {name: tcp, port: 80, targetPort: 8080}
  - {name: udp, port: 80, targetPort: 8080, protocol: UDP}
"""  # noqa: E501 - a line of YAML
PROBES: Final = ("connections", "datagrams", "requests")

ENGINES = [
    "embedded/iptables",
    *(pytest.param(f"embedded/{mode}", marks=pytest.mark.thorough) for mode in ("nftables", "userspace")),
    pytest.param("embedded/ipvs", marks=[OWN, pytest.mark.thorough]),
]
"""That the first one fails shows what the judge makes of it; the others show the same of what their modes leave."""

OTHER_POD: Final = "which is no endpoint of default/echo"
UNREADY: Final = "which is an endpoint that is not ready of default/echo"
ASTRAY: Final = {
    "EndpointSlice.endpoints[first].addresses[first]: one more": (OTHER_POD, {*PROBES, "streams"}),
    "EndpointSlice.ports[first].port: one more": ("at port 8081 of echo", {"connections", "requests", "streams"}),
    # One packet of two reaches the pod that is not ready, so a stream may stay with the other one.
    "EndpointSlice.endpoints[last].ready: turned on": (UNREADY, {*PROBES}),
}
"""What the proxies are shown, a part of what is said of the connections, and what fails besides streams by chance."""


@pytest.fixture(scope="module", params=ENGINES)
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    with Session(EngineChoice(request.param, kernel="uml" if request.param.endswith("ipvs") else "host")) as opened:
        yield opened


def judged(session: Session, shown: ObjectMutation | None) -> dict[str, tuple[Judgement, str]]:
    """Each probe's and the step's judgement, with what is said of where its packets arrived."""
    mode = mode_of(session.engine.name)
    source = "{node: node-a, device: uplink}" if mode in TERMINATING_MODES else "preserved"
    (case,) = cases(parse_scenario(SCENARIO.replace("SOURCE", source), "astray.lab.yaml"), mode)
    with closing(session.open(case, shown=shown)) as lab:
        verdicts = {each.name: lab.judged(each) for each in case.probes}
        steps = {each.name: lab.conclude(each) for each in case.steps}
    return {
        name: (each.overall, " ".join(reason for one in each.verdicts for reason in one.reasons))
        for name, each in {**verdicts, **steps}.items()
    }


def test_what_reaches_the_endpoint_passes(session: Session) -> None:
    found = judged(session, None)
    assert {judgement for judgement, _ in found.values()} == {Judgement.PASS}, found


@pytest.mark.parametrize("mutation", ASTRAY)
def test_what_reaches_no_endpoint_fails(session: Session, mutation: str) -> None:
    where, _, change = mutation.partition(": ")
    found = judged(session, ObjectMutation(where, change))
    said, due = ASTRAY[mutation]
    failed = {name for name, (judgement, _) in found.items() if judgement is Judgement.FAIL}
    assert failed - ({"streams"} - due) == due, found
    assert said in found["connections"][1]
