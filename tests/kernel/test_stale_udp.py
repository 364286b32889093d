"""A UDP flow that conntrack remembers keeps its endpoint, whatever the rules are now; and the lab reports why.

The lab's engine deletes such flows when an endpoint goes. So the test writes and changes rules by hand, and does not
delete conntrack entries.
"""

from ipaddress import IPv4Address
from typing import Any

import pytest
from msgspec.structs import replace
from sandboxed import sandboxed
from test_traffic import Stage, stage
from traffic_plan import PODS, VIP, nat, resolved, traffic_plan

from proxylab.addresses import Transport
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.plan.resolved import ResolvedProbe
from proxylab.report.failure_text import explain
from proxylab.scenario.expect import Backend, Expect
from proxylab.scenario.probes import AddressTarget, Probe, Send, Source
from proxylab.scenario.words import Manner, Outcome, Position
from proxylab.verdict.judge import judge

HERE = Position("stale.lab.yaml", 1, 1)
PORT = 12345


def rules(pod: str) -> str:
    return nat(f"-A PREROUTING -d {VIP}/32 -p udp --dport 80 -j DNAT --to-destination {PODS[pod][0]}:8080")


async def explained(lab: Stage, sent: ResolvedProbe) -> list[str]:
    """The verdict, then the explanation."""
    probe = Probe(
        name="a query by a port that was used before",
        source=Source(name="client", port=PORT),
        target=AddressTarget(address=IPv4Address(VIP), port=80),
        send=Send(protocol=Transport.UDP, manner=sent.manner),
        expect=Expect(outcome=Outcome.DELIVERED, backends=(Backend("echo-2"),), position=HERE),
        position=HERE,
    )
    verdict = replace(judge(probe, sent, None, await lab.run(sent)), plan=traffic_plan())
    return [verdict.overall, *explain(verdict)]


async def remembered(launcher: Launcher) -> dict[str, Any]:
    found = {}
    for manner in (Manner.PACKET, Manner.CONNECT):
        async with stage(launcher) as lab:
            sent = resolved(Transport.UDP, manner)
            sent = replace(sent, sender=replace(sent.sender, port=PORT))
            await lab.rules(rules("echo-1"))
            await lab.run(sent)
            await lab.rules(rules("echo-2"))
            lab.runner._ports.restart()  # as if conntrack had been flushed
            found[f"the old pod lives, {manner}"] = await explained(lab, sent)
            await lab.ip("echo-1", "link", "set", "eth0", "down")
            lab.runner._ports.restart()
            found[f"the old pod is gone, {manner}"] = await explained(lab, sent)
            lab.runner.forget()
            found[f"conntrack has forgotten, {manner}"] = await explained(lab, sent)
    return found


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    result: dict[str, list[str]] = sandboxed(remembered)
    return result


@pytest.mark.parametrize("manner", ["packet", "connect"])
def test_a_stale_entry_is_named_as_the_cause(found: dict[str, list[str]], manner: str) -> None:
    judgement, *lines = found[f"the old pod lives, {manner}"]
    assert judgement == "fail"
    assert why(lines) == (
        "conntrack on node-a sent the flow to echo-1 (10.244.0.11:8080) by an older entry: no DNAT rule to "
        "that address counted it."
    )


@pytest.mark.parametrize("manner", ["packet", "connect"])
def test_a_stale_entry_to_a_pod_that_is_gone_never_passes(found: dict[str, list[str]], manner: str) -> None:
    judgement, *lines = found[f"the old pod is gone, {manner}"]
    assert judgement in ("fail", "inconclusive")  # silence proves a loss only if the sentinel packet reached that pod
    assert "    conntrack on node-a: 10.244.0.11:8080 answers, to 10.244.0.10:12345" in lines


@pytest.mark.parametrize("manner", ["packet", "connect"])
def test_without_the_entry_the_flow_goes_by_the_rules(found: dict[str, list[str]], manner: str) -> None:
    assert found[f"conntrack has forgotten, {manner}"][0] == "pass", found


def why(lines: list[str]) -> str:
    _, _, behind = "\n".join(lines).partition("\n  why: ")
    return " ".join(behind.partition("\n\n")[0].split())
