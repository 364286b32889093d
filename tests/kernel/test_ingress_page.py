"""The page about Ingress draws a request from a run. ``LAB_DOCS=write`` writes it again."""

import os
from collections.abc import Iterator, Sequence
from itertools import groupby

import pytest
from sandboxed import ROOT
from shared_sessions import shared_session

from proxylab.errors import CapabilityError
from proxylab.evidence.evidence import Observation, Packet
from proxylab.scenario.cases import cases
from proxylab.scenario.load import load_scenario
from proxylab.scenario.probes import ServiceTarget
from proxylab.verdict.model import Judgement, ProbeVerdict

PAGE = ROOT / "docs" / "explanation" / "ingress.md"

TEXT = """\
# A request through an Ingress

An Ingress is no part of a Service: no proxy reads it. A controller does, here nginx in a pod, and the controller is a
client of the cluster like any other. So a request makes two connections. The first goes to the Service of the
controller, through the rules that [every packet to a Service](packet-flow.md) passes. nginx ends it, reads host and
path, and opens the second one to a pod. It takes the pods' addresses from the EndpointSlices, so the second
connection passes no rule of a Service.

Both drawings are of `scenarios/ingress/client-address.lab.yaml`: an outside client asks `{url}` at the load
balancer's address. A line shows source and destination as a tap saw them. A test makes this page from a run.

## externalTrafficPolicy Cluster

The load balancer may choose any node. A node that has no pod of the controller passes the connection on, and
masquerades it so that the answer comes back that way. nginx sees the node, and writes the node's address into
X-Forwarded-For.

```
{cluster}
```

## externalTrafficPolicy Local

The load balancer learns from the health-check node port which nodes have a pod of the controller, and chooses among
them. The node there does not masquerade. nginx sees the client.

```
{local}
```

## What each of them sees

{table}

The pod never sees the client's address as that of its connection, under either policy. A program that needs it must
read X-Forwarded-For, and must trust the controller alone to write it.

## How the lab serves an Ingress

A pod with `program: nginx` is the controller. Its configuration follows Ingresses, HTTPRoutes, Services and
EndpointSlices; after a change, nginx reloads it, and a step waits until the old worker has exited. A probe with `via:
ingress` dials the Service that selects these pods. Its `expect` judges the first connection from its packets, as for
any Service. `expect.http` judges the second one by the pod's own answer, which the packets must confirm: the pod's
name, the source of its connection, and X-Forwarded-For. Whether or not the author names the pods, a request may come to
no pod but a ready endpoint to which its host and path lead, and the controller answers none with a success by itself.

`proxylab.cluster.http_routes` says what a host and a path lead to, and `proxylab.control.ingress` says it to nginx. A
controller of your own would take the place of the second.
"""


def drawn(verdict: ProbeVerdict) -> Iterator[str]:
    """The way of the request: a machine, then what leaves it."""
    (report,) = verdict.evidence.http
    target = verdict.probe.target
    assert isinstance(target, ServiceTarget)
    asked = f"GET http://{target.host}{target.path}"
    yield from connection(verdict.evidence.observations, "", asked)
    seen = f"nginx sees {verdict.evidence.connects[0].peer}, and ends the connection"
    asked = f"GET {target.path}, X-Forwarded-For: {report.forwarded_for}"
    yield from connection(verdict.evidence.behind, f": {seen}", asked)
    yield f"{report.backend}: the pod sees {report.source}, and {report.forwarded_for} in the header"


def connection(observations: Sequence[Observation], first: str, asked: str) -> Iterator[str]:
    """The machines that a connection passes, without the last one."""
    requests = sorted((each for each in observations if each.packet is Packet.REQUEST), key=lambda each: each.at)
    hops = [(name, list(seen)) for name, seen in groupby(requests, key=lambda each: each.netns_name)]
    for number, (name, seen) in enumerate(hops[:-1]):
        yield f"{name}{did(seen[0], seen[-1]) if number else first}"
        what = "" if number else f"  {asked}"
        yield f" │  {seen[-1].source} → {seen[-1].destination}:{seen[-1].destination_port}{what}"


def did(came: Observation, left: Observation) -> str:
    """What a node did to the packet."""
    if came.destination == left.destination:
        return ": routes it"
    masqueraded = came.source != left.source
    return f": translates the destination{', and masquerades the source' if masqueraded else ', and keeps the source'}"


def row(policy: str, verdict: ProbeVerdict) -> str:
    (report,) = verdict.evidence.http
    (connected,) = verdict.evidence.connects
    return f"| {policy} | {connected.peer} | {report.source} | {report.forwarded_for} |"


def test_the_page_is_of_this_code() -> None:
    scenario = cases(load_scenario(ROOT / "scenarios" / "ingress" / "client-address.lab.yaml"), "iptables")[0]
    first, second = scenario.all_probes
    with shared_session() as session:
        try:
            lab = session.open(scenario)
        except CapabilityError as lacking:
            pytest.skip(str(lacking))
        cluster, local = lab.judged(first), lab.judged(second)
        assert (cluster.overall, local.overall) == (Judgement.PASS, Judgement.PASS)
        assert isinstance(first.target, ServiceTarget)
        lines = ["| externalTrafficPolicy | nginx | the pod | X-Forwarded-For |", "| --- | --- | --- | --- |"]
        made = TEXT.format(
            url=f"http://{first.target.host}{first.target.path}",
            cluster="\n".join(drawn(cluster)),
            local="\n".join(drawn(local)),
            table="\n".join([*lines, row("Cluster", cluster), row("Local", local)]),
        )
    if os.environ.get("LAB_DOCS") == "write":
        PAGE.write_text(made)
    assert PAGE.read_text() == made, "LAB_DOCS=write ./dev pytest tests/kernel/test_ingress_page.py"
