"""A traced packet: every rule that it met, there and back, and no other packet's."""

import re
from typing import Any

import pytest
from sandboxed import ROOT, sandboxed
from test_traffic import stage
from traffic_plan import VIP, errand, nat

from lab.engines.protocol import EngineChoice
from lab.ip import Protocol
from lab.kernel.launcher import Launcher
from lab.scenario.load import load_scenario
from lab.scenario.model import Outcome
from lab.session import Session
from lab.verdict.evidence import Evidence, Packet
from lab.verdict.journey import journey

# A masqueraded packet leaves its node by an address that the node has, from a port of the kernel's choice.
RANDOM_PORT = re.compile(r"(?<=10\.244\.[01]\.1|172\.18\.0\.[23]):\d+")
BOTH = (Protocol.TCP, Protocol.UDP)


def redirect(protocol: Protocol) -> str:
    """All to one pod, by way of a chain, and masqueraded."""
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
            result[protocol] = told(await lab.runner.run(errand(protocol), trace=True))
            result[f"{protocol} again"] = len((await lab.runner.run(errand(protocol), trace=True)).steps)
            result[f"{protocol} untraced"] = len((await lab.runner.run(errand(protocol))).steps)
        await lab.rules("*filter\n-A FORWARD -p udp -j REJECT\nCOMMIT\n")
        result["rejected"] = told(await lab.runner.run(errand(Protocol.UDP), trace=True))
    return result


@pytest.mark.parametrize("ordinary", [False, True], ids=["as whoever runs", "ordinary user"])
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


def journeys(variant: str) -> list[list[str]]:
    """The words of a trace of every probe that has one way to go."""
    found = []
    for name in ("clusterip/from-a-pod", "clusterip/no-endpoints"):
        scenario = load_scenario(ROOT / f"scenarios/{name}.lab.yaml")
        with Session(EngineChoice(iptables=variant)) as session:
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
