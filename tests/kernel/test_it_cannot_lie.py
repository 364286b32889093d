"""A lab that is disturbed while it looks says so: each disturbance ends in fail or inconclusive, in the right words.

Every case stands beside the same errand undisturbed, which passes: so it is the disturbance that turns it.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sandboxed import sandboxed
from test_traffic import Stage, stage
from traffic_plan import PODS, VIP, errand, nat

from lab.ip import Protocol
from lab.kernel.capture import Tap
from lab.kernel.launcher import Launcher
from lab.kernel.netns import inside
from lab.scenario.model import AddressTarget, Expect, Manner, Outcome, Position, Preserved, Probe, Send, Source
from lab.verdict.judge import judge

HERE = Position("disturbed.lab.yaml", 1, 1)
POD = "echo-1"
Disturbance = Callable[[Stage], Awaitable[None]]


def rules(protocol: Protocol) -> str:
    return nat(f"-A PREROUTING -d {VIP}/32 -p {protocol.lower()} --dport 80 -j DNAT --to-destination 10.244.0.11:8080")


async def judged(lab: Stage, protocol: Protocol, manner: Manner, flows: int) -> list[Any]:
    """The overall judgement, and every reason."""
    sent = errand(protocol, manner, flows=flows)
    expect = Expect(outcome=Outcome.DELIVERED, backends=(POD,), source=Preserved(), position=HERE)
    probe = Probe(
        name="a probe",
        source=Source(name="client"),
        target=AddressTarget(address=VIP, port=80),
        send=Send(protocol=protocol, manner=manner, flows=flows),
        expect=expect,
        position=HERE,
    )
    verdict = judge(probe, sent, None, await lab.run(sent))
    return [verdict.overall, [f"{each.expectation}: {why}" for each in verdict.verdicts for why in each.reasons]]


def before_answers(lab: Stage, once: Callable[[], None]) -> None:
    """Do something when requests have arrived and nobody has answered yet."""
    responders = lab.runner._responders
    assert responders is not None
    pump, waiting = responders.pump, [once]

    def disturbed() -> int:
        if waiting:
            waiting.pop()()
        return pump()

    responders.pump = disturbed  # type: ignore[method-assign]


async def cut_link(lab: Stage) -> None:
    await lab.ip("echo-1", "link", "set", "eth0", "down")


async def lossy_tap(lab: Stage) -> None:
    import socket

    assert lab.runner._watch is not None
    tap: Tap = lab.runner._watch.tap(POD, "eth0")
    tap._ears.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)


async def delayed_reply(lab: Stage) -> None:
    """The responder answers nothing as long as the run lasts: what it would say later, nobody waits for."""
    responders = lab.runner._responders
    assert responders is not None
    responders.pump = lambda: 0  # type: ignore[method-assign]


async def forged_reply(lab: Stage) -> None:
    """Another pod answers flow 0 from its own address, with the very token that the answer would bear."""
    import socket

    with inside(lab.netns["echo-2"]):
        forger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    runner = lab.runner

    port = runner._ports._deck[0]  # the source port of the lab's first flow

    def forge() -> None:
        issued = runner._identities
        # The identity of the run that is under way is the last that was issued.
        token = f"proxylab reply {issued._nonce.hex()} {issued._serial - 1:08x}00000000".encode()
        forger.sendto(token + b"\n", (str(PODS["client"][0]), port))

    before_answers(lab, forge)


async def flushed_conntrack(lab: Stage) -> None:
    from lab.kernel.conntrack import flush

    before_answers(lab, lambda: flush(lab.netns["node-a"]))


async def killed_responder(lab: Stage) -> None:
    responders = lab.runner._responders
    assert responders is not None
    for doors in (responders._tcp, responders._udp):
        for fd, door in tuple(doors.items()):
            if door.voice._name == b'"echo-1"':
                del doors[fd]
                door.sock.close()


CASES: dict[str, tuple[Disturbance, Protocol, Manner, int, str, str]] = {
    "a link is cut": (cut_link, Protocol.UDP, Manner.PACKET, 5, "inconclusive", "the way to echo-1 is itself broken"),
    "a tap drops frames": (lossy_tap, Protocol.UDP, Manner.PACKET, 1000, "inconclusive", "the tap at echo-1 eth0 lost"),
    "a reply is late": (delayed_reply, Protocol.UDP, Manner.PACKET, 3, "fail", "echo-1 sent no reply to client"),
    "a reply is forged": (
        forged_reply,
        Protocol.UDP,
        Manner.PACKET,
        1,
        "fail",
        "reply: the reply came from 10.244.0.12:",
    ),
    "conntrack is flushed": (
        flushed_conntrack,
        Protocol.UDP,
        Manner.PACKET,
        1,
        "inconclusive",
        "10.244.0.11:8080, but no node's conntrack has an entry for the flow",
    ),
    "a responder is killed (TCP)": (killed_responder, Protocol.TCP, Manner.CONNECT, 3, "fail", "a reset from"),
    "a responder is killed (UDP)": (
        killed_responder,
        Protocol.UDP,
        Manner.CONNECT,
        3,
        "fail",
        "ICMP port unreachable from",
    ),
}


async def disturbed(launcher: Launcher) -> dict[str, Any]:
    found = {}
    for name, (disturb, protocol, manner, flows, _, _) in CASES.items():
        for kind in ("undisturbed", "disturbed"):
            async with stage(launcher) as lab:
                await lab.rules(rules(protocol))
                if kind == "disturbed":
                    await disturb(lab)
                found[f"{name}, {kind}"] = await judged(lab, protocol, manner, flows)
    return found


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    result: dict[str, Any] = sandboxed(disturbed)
    return result


@pytest.mark.parametrize("name", CASES)
def test_what_is_disturbed_never_passes(found: dict[str, Any], name: str) -> None:
    *_, judgement, words = CASES[name]
    assert found[f"{name}, undisturbed"] == ["pass", []]
    overall, reasons = found[f"{name}, disturbed"]
    assert overall == judgement, reasons
    assert any(words in reason for reason in reasons), reasons
