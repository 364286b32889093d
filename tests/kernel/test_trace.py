"""A traced packet: every rule that it met, there and back, and no other packet's rules."""

import re
from typing import Any

import pytest
from sandboxed import ROOT, sandboxed
from shared_sessions import shared_session
from test_traffic import stage
from traffic_plan import VIP, nat, resolved
from users import EITHER

from proxylab.addresses import Transport
from proxylab.engines.protocol import EngineChoice
from proxylab.evidence.evidence import Evidence, Packet
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.report.trace_text import journey
from proxylab.scenario.load import load_scenario, parse_scenario
from proxylab.scenario.words import Outcome
from proxylab.timing import Deadline

# A masqueraded packet leaves with an address of its node and a port that the kernel chooses.
RANDOM_PORT = re.compile(r"(?<=10\.244\.[01]\.1|172\.18\.0\.[23]):\d+")
BOTH = (Transport.TCP, Transport.UDP)


def redirect(protocol: Transport) -> str:
    """All packets to one pod, through a chain, and masqueraded."""
    head = f"-p {protocol.value.lower()}"
    return nat(
        ":SERVICES - [0:0]",
        "-A PREROUTING -j SERVICES",
        f"-A SERVICES {head} --dport 81 -j RETURN",
        f"-A SERVICES {head} -d {VIP} --dport 80 -j DNAT --to-destination 10.244.0.11:8080",
        "-A POSTROUTING -j MASQUERADE",
    )


def told(evidence: Evidence) -> list[list[Any]]:
    return [
        [s.packet, s.table, s.chain, s.kind, s.text, f"{s.source}", f"{s.destination}", s.in_device, s.out_device]
        for s in evidence.steps
        if s.table != "mangle"
    ]


async def traced(launcher: Launcher) -> dict[str, Any]:
    result: dict[str, Any] = {}
    async with stage(launcher) as lab:
        for protocol in BOTH:
            await lab.rules(redirect(protocol))
            result[protocol] = told(await lab.runner.run(resolved(protocol), trace=True))
            result[f"{protocol} again"] = len((await lab.runner.run(resolved(protocol), trace=True)).steps)
            result[f"{protocol} untraced"] = len((await lab.runner.run(resolved(protocol))).steps)
        await lab.rules("*filter\n-A FORWARD -p udp -j REJECT\nCOMMIT\n")
        result["rejected"] = told(await lab.runner.run(resolved(Transport.UDP), trace=True))
    return result


@EITHER
def test_every_rule_is_told_there_and_back(ordinary: bool) -> None:
    found = sandboxed(traced, ordinary=ordinary)
    for protocol in BOTH:
        steps = found[protocol]
        rules = [(packet, chain, text.partition(" -j ")[2]) for packet, _, chain, kind, text, *_ in steps if text]
        assert rules == [
            (Packet.REQUEST, "PREROUTING", "SERVICES"),
            (Packet.REQUEST, "SERVICES", "DNAT --to-destination 10.244.0.11:8080"),
            (Packet.REQUEST, "POSTROUTING", "MASQUERADE"),
        ]
        forward = {packet: tuple(ends) for packet, _, chain, _, _, *ends in steps if chain == "FORWARD"}
        assert forward[Packet.REQUEST] == ("10.244.0.10", "10.244.0.11", "client", "echo-1")
        assert forward[Packet.REPLY] == ("10.244.0.11", "10.244.0.10", "echo-1", "client")
        assert [packet for packet, *_ in steps] == sorted((packet for packet, *_ in steps), key=[*Packet].index)
        assert found[f"{protocol} again"] >= len(steps)
        assert found[f"{protocol} untraced"] == 0
    ending = [(packet, chain) for packet, _, chain, _, text, *_ in found["rejected"] if "REJECT" in text]
    assert ending == [(Packet.REQUEST, "FORWARD")]
    assert {packet for packet, *_ in found["rejected"]} == {Packet.REQUEST, Packet.PORT_UNREACHABLE}


MAPS = f"""
table ip kube-proxy {{
    map service-ips {{ type ipv4_addr . inet_proto . inet_service : verdict
        elements = {{ {VIP} . udp . 80 : goto service-echo }} }}
    chain nat-prerouting {{ type nat hook prerouting priority dstnat; policy accept; jump services; }}
    chain services {{ ip daddr . meta l4proto . th dport vmap @service-ips; }}
    chain service-echo {{ meta mark set 0x4000; numgen random mod 1 vmap {{ 0 : goto endpoint-echo-1 }}; }}
    chain endpoint-echo-1 {{ meta l4proto udp dnat to 10.244.0.11:8080; }}
    chain filter-forward {{ type filter hook forward priority filter; policy accept; jump nothing; }}
    chain nothing {{ ip daddr 192.0.2.1 drop; }}
}}
"""
DROPS = """
add table ip mine
add chain ip mine shut { type filter hook forward priority 10; policy drop; }
"""


async def native(launcher: Launcher) -> list[Any]:
    """Every step through a table that nft loaded, and its explanation."""
    found: list[Any] = []
    async with stage(launcher) as lab:
        for rules in (MAPS, DROPS):
            done = await launcher.run(
                lab.netns["node-a"],
                ["nft", "-f", "-"],
                netns_name="a",
                stdin=rules.encode(),
                deadline=Deadline.after(10),
            )
            assert done.status == 0, done.stderr
            evidence = await lab.runner.run(resolved(Transport.UDP), trace=True)
            request = [step for step in evidence.steps if step.packet is Packet.REQUEST]
            steps = [[s.chain, s.kind, s.verdict, f"{s.destination}", s.mark] for s in request]
            found.append({"steps": steps, "words": [*journey(resolved(Transport.UDP), evidence)]})
    return found


@EITHER
def test_maps_and_chains_that_nft_loaded_are_followed(ordinary: bool) -> None:
    mapped, shut = sandboxed(native, ordinary=ordinary)
    rules = [step[:1] + step[2:] for step in mapped["steps"] if step[1] == "rule"]
    assert rules == [
        ["nat-prerouting", "jump services", str(VIP), 0],
        ["services", "goto service-echo", str(VIP), 0],
        ["service-echo", "continue", str(VIP), 0],
        ["service-echo", "goto endpoint-echo-1", str(VIP), 0x4000],
        ["endpoint-echo-1", "accept", str(VIP), 0x4000],
        ["filter-forward", "jump nothing", "10.244.0.11", 0x4000],
    ]
    told = [line.split(maxsplit=2) for line in mapped["words"] if line.startswith("    ")]
    assert ["kube-proxy", "services", "goes to service-echo"] in told
    assert not [line for line in told if "nothing" in line[-1]], "no rule of that chain matched"
    assert any("now" in line and "> 10.244.0.11:8080" in line for line in mapped["words"])
    assert shut["steps"][-1][:3] == ["shut", "policy", "drop"]
    assert shut["words"][-1].endswith("the policy of the chain drops it")


def journeys(variant: str) -> list[list[str]]:
    """The text of a trace of every probe with one path."""
    found = []
    for name in ("clusterip/from-a-pod", "clusterip/no-endpoints"):
        scenario = load_scenario(ROOT / f"scenarios/{name}.lab.yaml")
        with shared_session(EngineChoice(iptables=variant)) as session:
            lab = session.open(scenario)
            for probe in scenario.probes:
                # Of several endpoints each trace may meet another.
                if len(probe.expect.backends or ()) == 1 or probe.expect.outcome is not Outcome.DELIVERED:
                    lines = "\n".join(journey(*lab.trace(probe)))
                    found.append(RANDOM_PORT.sub(":random", lines).splitlines())
    return found


def test_rules_are_told_in_the_same_words_whichever_iptables_loaded_them() -> None:
    legacy, nft = journeys("legacy"), journeys("nft")
    assert len(legacy) == len(nft) > 1
    for by_legacy, by_nft in zip(legacy, nft, strict=True):
        assert len(by_legacy) > 5
        assert by_nft == by_legacy


FROM_A_NODE = """
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: from-a-node}
spec:
  nodes: {node-a: {}, node-b: {}}
  pods:
    own: {nodes: [node-b], hostNetwork: true, labels: {app: own}, ports: [8081]}
  probes:
  - {name: away, from: node-a, to: {service: own, via: clusterIP}, expect: {outcome: delivered, source: preserved}}
  - {name: at home, from: node-b, to: {service: own, via: clusterIP}, expect: {outcome: delivered, source: preserved}}
  - {name: no endpoints, from: node-a, to: {service: none, via: clusterIP}, expect: {outcome: rejected}}
---
apiVersion: v1
kind: Service
metadata: {name: own}
spec: {selector: {app: own}, ports: [{port: 80, targetPort: 8081}]}
---
apiVersion: v1
kind: Service
metadata: {name: none}
spec: {selector: {app: none}, ports: [{port: 80, targetPort: 8081}]}
"""


def hops(variant: str) -> dict[str, list[str]]:
    """For each probe, the hops of its packet."""
    scenario = parse_scenario(FROM_A_NODE, "from-a-node.lab.yaml")
    with shared_session(EngineChoice(iptables=variant)) as session:
        lab = session.open(scenario)
        return {
            probe.name: [
                re.sub(r" \S+ > [^\s,]+", "", line).strip()
                for line in journey(*lab.trace(probe))[1:]
                if not line.startswith("    ") and not line.endswith("in by lo")  # only legacy reports a chain
            ]
            for probe in scenario.probes
        }


@pytest.mark.parametrize("variant", ["legacy", "nft"])
def test_what_a_node_sends_is_told_in_the_order_of_its_way(variant: str) -> None:
    assert hops(variant) == {
        "away": [
            "node-a sends the request",
            "node-a: the request, generated there",
            "node-b: the request, in by eth0",
            "node-b gets the request",
            "node-b sends the reply",
            "node-b: the reply, generated there",
            "node-a: the reply, in by eth0",
            "node-a gets the reply",
        ],
        "at home": [
            "node-b sends the request",
            "node-b: the request, generated there",
            "node-b gets the request",
            "node-b sends the reply",
            "node-b: the reply, generated there",
            "node-b gets the reply",
        ],
        "no endpoints": [
            "node-a sends the request",
            "node-a: the request, generated there",
            "node-a sends the port-unreachable 3/3",
            "node-a: the port-unreachable, generated there",
            "node-a gets the port-unreachable 3/3",
        ],
    }
