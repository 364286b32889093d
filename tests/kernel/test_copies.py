"""The lab notices a copied packet, wherever the copy goes; without the copy, the probe passes."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from sandboxed import ROOT, sandboxed
from test_it_cannot_lie import HERE, POD, rules
from test_traffic import Stage, stage
from traffic_plan import PODS, resolved

from proxylab.addresses import Transport
from proxylab.errors import CapabilityError
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.plan.resolved import ResolvedProbe
from proxylab.report.failure_text import explain
from proxylab.scenario.expect import Backend, Expect, Preserved
from proxylab.scenario.probes import AddressTarget, Probe, Send, Source
from proxylab.scenario.words import Manner, Outcome, Position
from proxylab.timing import Deadline
from proxylab.verdict.judge import judge

CLIENT, ECHO, STRANGER = (str(PODS[name][0]) for name in ("client", POD, "echo-2"))
TCP, UDP, PACKET, CONNECT = Transport.TCP, Transport.UDP, Manner.PACKET, Manner.CONNECT
REQUESTS, REPLIES = f"ip daddr {ECHO} meta l4proto {{tcp, udp}} th dport 8080", f"ip daddr {CLIENT} th sport 80"
TO_STRANGER, TO_CLIENT = f"dup to {STRANGER} device echo-2", f"dup to {CLIENT} device client"


@dataclass(frozen=True)
class Case:
    """The copied packets, the probe, its verdict and its reason. ``at`` is the namespace with the foreign address."""

    copied: str
    protocol: Transport
    manner: Manner
    flows: int
    judgement: str
    reason: str = ""
    why: str = ""
    commands: tuple[tuple[str, ...], ...] = ()


HELD_TWICE = (("echo-2", "address", "add", f"{ECHO}/32", "dev", "lo"),)
FOREIGN_MAC = (
    ("node-a", "neighbour", "replace", STRANGER, "lladdr", "02:00:00:00:00:77", "dev", "echo-2", "nud", "permanent"),
)
TWO_OF_THEM = f"{REQUESTS} numgen inc mod 5000 4999 {TO_STRANGER}"
COPY = f"came in at echo-2/eth0, addressed to {ECHO}:8080"
SENT = "which node-a sent out of its device echo-2"
CASES = {
    "a stranger gets each request": Case(
        f"{REQUESTS} {TO_STRANGER}", UDP, PACKET, 3, "fail",
        f"outcome: 3 of 3 flows: it arrived at echo-1, and a copy of it {COPY}",
        f"the packet was copied on its way: a copy {COPY}, {SENT}.",
    ),
    "a stranger gets each request, and answers": Case(
        f"{REQUESTS} {TO_STRANGER}", TCP, PACKET, 3, "fail",
        "reply: 3 of 3 flows: 2 replies came to client, but echo-1 sent one",
        f"the packet was copied on its way: a copy {COPY}, {SENT}; echo-2 answered it.",
        HELD_TWICE,
    ),
    "a stranger gets each connection": Case(
        f"{REQUESTS} {TO_STRANGER}", TCP, CONNECT, 2, "fail",
        f"outcome: 2 of 2 flows: it arrived at echo-1, and a copy of it {COPY}",
    ),
    "a stranger gets two of ten thousand": Case(
        TWO_OF_THEM, UDP, PACKET, 10_000, "fail",
        f"outcome: 2 of 10,000 flows: it arrived at echo-1, and a copy of it {COPY}",
        f"the packet was copied on its way: a copy {COPY}, {SENT}.",
    ),
    "a stranger gets two of ten thousand crafted segments": Case(
        TWO_OF_THEM, TCP, PACKET, 10_000, "fail", "outcome: 2 of 10,000 flows: it arrived at echo-1, and a copy of it"
    ),
    "a stranger gets each reply": Case(
        f"{REPLIES} {TO_STRANGER}", UDP, PACKET, 1, "fail",
        f"reply: a copy of the reply came in at echo-2/eth0, addressed to {CLIENT}:",
        "the reply was copied on its way: a copy came in at echo-2/eth0",
    ),
    "the sender gets each reply twice": Case(
        f"{REPLIES} {TO_CLIENT}", UDP, PACKET, 3, "fail",
        "reply: 3 of 3 flows: 2 replies came to client, but echo-1 sent one",
        "the reply was copied on its way: echo-1 sent it once, and it came twice.",
    ),
    "the sender gets two of ten thousand replies twice": Case(
        f"{REPLIES} numgen inc mod 5000 4999 {TO_CLIENT}", UDP, PACKET, 10_000, "fail",
        "reply: 2 of 10,000 flows: 2 replies came to client, but echo-1 sent one",
    ),
    # As a bridge floods a frame to an unknown MAC: the stack of the device drops it (PACKET_OTHERHOST).
    "a stranger sees each request under another MAC": Case(
        f"{REQUESTS} {TO_STRANGER}", UDP, PACKET, 3, "pass", commands=(*FOREIGN_MAC, *HELD_TWICE)
    ),
}  # fmt: skip


async def copy(lab: Stage, what: str) -> None:
    """Copy packets on the node, after all rules of a proxy (nft(8), "dup")."""
    table = f"table ip copies {{ chain copies {{ type filter hook postrouting priority 300; {what}; }}; }}"
    done = await lab.launcher.run(
        lab.netns["node-a"], ["nft", table], netns_name="node-a", stdin=b"", deadline=Deadline.after(10)
    )
    if done.status != 0:
        raise CapabilityError(f"packets that nftables copies ({done.stderr.decode().strip()})", "modprobe nft_dup_ipv4")


def probe_of(sent: ResolvedProbe) -> Probe:
    return Probe(
        name="a probe",
        source=Source(name="client"),
        target=AddressTarget(address=sent.destination, port=80),
        send=Send(protocol=sent.protocol, manner=sent.manner, flows=sent.flows),
        expect=Expect(outcome=Outcome.DELIVERED, backends=(Backend(POD),), source=Preserved(), position=HERE),
        position=Position("copies.lab.yaml", 1, 1),
    )


async def judged(launcher: Launcher, case: Case, copied: str, commands: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    async with stage(launcher) as lab:
        await lab.rules(rules(case.protocol))
        if copied:
            await copy(lab, copied)
        for netns_name, *argv in commands:
            await lab.ip(netns_name, *argv)
        sent = resolved(case.protocol, case.manner, flows=case.flows)
        verdict = judge(probe_of(sent), sent, None, await lab.run(sent))
        told = "\n".join(explain(replace(verdict, plan=lab.runner._plan), 1000))
    reasons = [f"{each.expectation}: {why}" for each in verdict.verdicts for why in each.reasons]
    return {"overall": verdict.overall, "reasons": reasons, "why": told.partition("why: ")[2].partition("\n")[0]}


async def copied(launcher: Launcher) -> dict[str, Any]:
    found = {"plain": await judged(launcher, CASES["a stranger gets each request"], "", HELD_TWICE)}
    for name, case in CASES.items():
        found[name] = await judged(launcher, case, case.copied, case.commands)
    return found


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    result: dict[str, Any] = sandboxed(copied)
    assert result["plain"] == {"overall": "pass", "reasons": [], "why": ""}, json.dumps(result["plain"])
    return result


@pytest.mark.parametrize("name", CASES)
def test_a_copy_is_no_pass(found: dict[str, Any], name: str) -> None:
    case, seen = CASES[name], found[name]
    assert seen["overall"] == case.judgement, seen
    assert not case.reason or any(each.startswith(case.reason) for each in seen["reasons"]), seen
    assert seen["why"].startswith(case.why), seen


ENDS_AT_A_NODE = """
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: a-copy-that-ends-at-a-node}
spec:
  nodes:
    node-a: {COPYING}
    node-b: {}
    node-c:
      leftovers:
        nft: |
          table ip copies {
            chain copies { type filter hook prerouting priority -400; ip daddr 10.244.1.0/24 drop; }
          }
  pods:
    echo: {nodes: [node-b], labels: {app: echo}, ports: [8080]}
    client: {nodes: [node-a]}
  probes:
  - {name: one, from: client, to: {service: echo, via: clusterIP}, expect: {outcome: delivered, source: preserved}}
  - name: many
    from: client
    to: {service: echo, via: clusterIP}
    send: {as: packet, flows: 2000}
    expect: {outcome: delivered, source: preserved}
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {selector: {app: echo}, ports: [{port: 80, targetPort: 8080}]}
"""
COPYING = (
    "leftovers: {nft: 'table ip copies { chain copies { type filter hook postrouting priority 300; "
    "ip daddr 10.244.1.0/24 tcp dport 8080 tcp flags syn numgen inc mod 1000 0 dup to 172.18.0.4 device eth0; }; }'}"
)


@pytest.mark.parametrize(("copying", "expected"), [("", "pass"), (COPYING, "fail")], ids=["as it is", "copied"])
def test_a_copy_that_a_third_node_drops_is_no_pass(copying: str, expected: str, tmp_path: Path) -> None:
    """No pod sees the copy. Of thousands of flows, the nodes' observations are packed."""
    file = tmp_path / "copied.lab.yaml"
    file.write_text(ENDS_AT_A_NODE.replace("COPYING", copying), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "proxylab", "run", "--no-bundles", "-o", "json", str(file)],
        capture_output=True, text=True, check=False, timeout=100, cwd=ROOT,
    )  # fmt: skip
    if "dup" in done.stderr:
        pytest.skip(f"this kernel cannot copy packets by nftables: {done.stderr}")
    (run,) = json.loads(done.stdout)["scenarios"]
    found = {probe["name"]: probe["verdicts"][0] for probe in run["probes"]}
    assert {name: each["judgement"] for name, each in found.items()} == dict.fromkeys(("one", "many"), expected)
    if copying:
        copy = "a copy of it came in at node-c/eth0, addressed to 10.244.1.10:8080, and went no further"
        assert found["one"]["reasons"] == [f"it arrived at echo, and {copy}"]
        assert found["many"]["reasons"] == [f"2 of 2,000 flows: it arrived at echo, and {copy}"]
