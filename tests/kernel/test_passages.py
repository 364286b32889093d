"""The lab sees thousands of flows at every hop: at the sender, in and out of the node, at the pod, and back."""

from collections import Counter
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from sandboxed import sandboxed
from test_traffic import stage, told
from traffic_plan import nat, resolved, spread
from users import EITHER

from proxylab.addresses import Transport
from proxylab.evidence.evidence import Evidence
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.report.failure_text import explain
from proxylab.scenario.expect import Expect, Preserved
from proxylab.scenario.probes import AddressTarget, Probe, Send, Source
from proxylab.scenario.words import Outcome, Position
from proxylab.verdict.judge import judge

FLOWS = {Transport.TCP: 2000, Transport.UDP: 10_000}
CHOSEN = 4711
HERE = Position("many.lab.yaml", 1, 1)


def one_dropped(flows: int) -> str:
    """A DNAT to one pod, and after it a rule that drops one packet of many."""
    which = f"-m statistic --mode nth --every {flows} --packet {flows // 2}"
    rules = nat("-A PREROUTING -p udp --dport 80 -j DNAT --to-destination 10.244.0.11:8080")
    return f"{rules}*filter\n-A FORWARD -p udp --dport 8080 {which} -m comment --comment unlucky -j DROP\nCOMMIT\n"


def way(evidence: Evidence, flow: int) -> list[str]:
    return [
        f"{seen.netns_name}/{seen.device} {seen.direction} {seen.packet} {seen.source} > {seen.destination}"
        for seen in sorted(evidence.observations, key=attrgetter("at"))
        if seen.flow == flow
    ]


def ways(evidence: Evidence) -> list[int]:
    """How many flows crossed how many devices of the node, there and back, in any order."""
    on_nodes = Counter(seen.flow for seen in evidence.observations if seen.netns_name.startswith("node-"))
    return sorted(Counter(on_nodes[flow] for flow in range(evidence.sent)).elements())


async def many(launcher: Launcher) -> dict[str, Any]:
    found: dict[str, Any] = {}
    async with stage(launcher) as lab:
        for protocol, flows in FLOWS.items():
            await lab.rules(spread(protocol))
            evidence = await lab.run(resolved(protocol, flows=flows))
            found[protocol] = told(evidence) | {
                "ways": ways(evidence),
                "chosen": way(evidence, flows - CHOSEN % flows),
                "captured": len(lab.runner.capture().frames),
            }
        flows = FLOWS[Transport.UDP]
        await lab.rules(one_dropped(flows))
        sent = resolved(Transport.UDP, flows=flows)
        probe = Probe(
            name="one is unlucky",
            source=Source(name="client"),
            target=AddressTarget(address=sent.destination, port=80),
            send=Send(protocol=Transport.UDP, flows=flows),
            expect=Expect(outcome=Outcome.DELIVERED, source=Preserved(), position=HERE),
            position=HERE,
        )
        verdict = judge(probe, sent, None, await lab.run(sent))
        example = verdict.verdicts[0].example
        assert example is not None
        found["lost"] = {"judged": verdict.overall, "way": way(verdict.evidence, example), "words": explain(verdict)}
    return found


@EITHER
def test_no_flow_of_thousands_is_lost_or_mistaken_at_any_hop(
    ordinary: bool, record_property: Callable[[str, object], None]
) -> None:
    everything = sandboxed(many, ordinary=ordinary)
    lost = everything.pop("lost")
    for protocol, found in everything.items():
        flows = FLOWS[Transport(protocol)]
        sights = found["seen"]
        assert found["sent"] == sights["client out request"] == sights["client in reply"] == flows
        assert sights["echo-1 in request"] + sights["echo-2 in request"] == flows
        assert sorted(found["counts"].values()) == sorted(sights[f"{pod} in request"] for pod in ("echo-1", "echo-2"))
        assert found["losses"] == []
        assert found["ways"] == [4] * flows, "in and out of the node, there and back"
        pod, address = ("echo-1", "10.244.0.11") if "10.244.0.11" in str(found["chosen"]) else ("echo-2", "10.244.0.12")
        sent, there = "10.244.0.10 > 10.96.0.10", f"10.244.0.10 > {address}"
        back, heard = (" > ".join(reversed(ends.split(" > "))) for ends in (there, sent))
        assert found["chosen"] == [
            f"client/eth0 out request {sent}",
            f"node-a/client in request {sent}",
            f"node-a/{pod} out request {there}",
            f"{pod}/eth0 in request {there}",
            f"{pod}/eth0 out reply {back}",
            f"node-a/{pod} in reply {back}",
            f"node-a/client out reply {heard}",
            f"client/eth0 in reply {heard}",
        ]
        assert found["captured"] == 8 * flows, "packets are there to be looked at, too"
        record_property(f"seconds for {flows} {protocol} flows", found["seconds"])
    assert lost["judged"] == "fail"
    assert lost["way"] == [
        "client/eth0 out request 10.244.0.10 > 10.96.0.10",
        "node-a/client in request 10.244.0.10 > 10.96.0.10",
    ]
    words = " ".join(" ".join(lost["words"]).split())
    assert "hop by hop (* changed since the hop before): hop packet from to client eth0 out request" in words
    assert "node-a client in request" in words
    assert 'why: node-a dropped 1 of 10,000 flows by its rule "unlucky" in FORWARD, which counted 1 packet.' in words
