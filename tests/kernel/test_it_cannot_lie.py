"""A lab that is disturbed while it looks says so: each disturbance ends in fail or inconclusive, in the right words.

Every case stands beside the same errand undisturbed, which passes: so it is the disturbance that turns it.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from sandboxed import sandboxed
from test_traffic import Stage, stage
from traffic_plan import PODS, VIP, errand, nat

from lab.ip import Transport
from lab.kernel.capture import Tap
from lab.kernel.launcher import Launcher
from lab.kernel.netns import inside
from lab.scenario.model import AddressTarget, Expect, Manner, Outcome, Position, Preserved, Probe, Send, Source
from lab.traffic.answer import Voice
from lab.traffic.identity import TOKEN_BYTES
from lab.verdict.judge import judge

HERE = Position("disturbed.lab.yaml", 1, 1)
POD = "echo-1"
Disturbance = Callable[[Stage], Awaitable[None]]


def rules(protocol: Transport) -> str:
    return nat(f"-A PREROUTING -d {VIP}/32 -p {protocol.lower()} --dport 80 -j DNAT --to-destination 10.244.0.11:8080")


async def judged(lab: Stage, protocol: Transport, manner: Manner, flows: int) -> list[Any]:
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
    """The responder says nothing as long as the run lasts; its answers leave later (``late_answers``)."""
    responders = lab.runner._responders
    assert responders is not None
    asyncio.get_running_loop().remove_reader(responders._epoll.fileno())
    responders.pump = lambda: 0  # type: ignore[method-assign]


async def swapped_replies(lab: Stage) -> None:
    """Each of two flows is answered in the name of the other: forged, from where and by whom it should be."""

    def swapped(voice: Voice, request: bytes, peer: str, port: int) -> bytes | None:
        flow = request[TOKEN_BYTES - 1 : TOKEN_BYTES]
        other = {b"0": b"1", b"1": b"0"}[flow]
        return answer(voice, request[: TOKEN_BYTES - 1] + other + request[TOKEN_BYTES:], peer, port)

    responders = lab.runner._responders
    assert responders is not None
    for door in responders._udp.values():
        answer = type(door.voice).answer
        door.voice = SimpleNamespace(  # type: ignore[misc]
            answer=partial(swapped, door.voice), _name=door.voice._name
        )


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


CASES: dict[str, tuple[Disturbance, Transport, Manner, int, str, str]] = {
    "a link is cut": (cut_link, Transport.UDP, Manner.PACKET, 5, "inconclusive", "the way to echo-1 is itself broken"),
    "a tap drops frames": (
        lossy_tap,
        Transport.UDP,
        Manner.PACKET,
        1000,
        "inconclusive",
        "the tap at echo-1 eth0 lost",
    ),
    "a reply is late": (delayed_reply, Transport.UDP, Manner.PACKET, 3, "fail", "echo-1 sent no reply to client"),
    "a reply is forged": (
        forged_reply,
        Transport.UDP,
        Manner.PACKET,
        1,
        "fail",
        "reply: the reply came from 10.244.0.12:",
    ),
    "replies are those of other flows": (
        swapped_replies,
        Transport.UDP,
        Manner.PACKET,
        2,
        "fail",
        "from where the request did not come",
    ),
    "replies are those of other flows, to sockets": (
        swapped_replies,
        Transport.UDP,
        Manner.CONNECT,
        2,
        "fail",
        "from where the request did not come",
    ),
    # The sender hears the pod's own address. That is wrong, though conntrack no longer says who it is for.
    "conntrack is flushed": (
        flushed_conntrack,
        Transport.UDP,
        Manner.PACKET,
        1,
        "fail",
        "the reply came from 10.244.0.11:8080, not from 10.96.0.10:80 that was dialled",
    ),
    "a responder is killed (TCP)": (killed_responder, Transport.TCP, Manner.CONNECT, 3, "fail", "a reset from"),
    "a responder is killed (UDP)": (
        killed_responder,
        Transport.UDP,
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


async def late_answers(launcher: Launcher) -> dict[str, Any]:
    """A run whose answers come in the midst of the next one."""
    async with stage(launcher) as lab:
        await lab.rules(rules(Transport.UDP))
        responders = lab.runner._responders
        assert responders is not None
        pump = responders.pump
        await delayed_reply(lab)
        first = await judged(lab, Transport.UDP, Manner.PACKET, 3)
        responders.pump = pump  # type: ignore[method-assign]
        second = await judged(lab, Transport.UDP, Manner.PACKET, 3)
        lab.runner.forget()
        frames = b"".join(bytes.fromhex(frame.data) for frame in lab.runner.capture().frames)
        runs = {run.decode() for run in re.findall(rb"proxylab (?:probe|reply) ([0-9a-f]{16} [0-9a-f]{8})", frames)}
        return {"first": first, "second": second, "runs": len(runs)}


def test_answers_that_come_late_are_not_those_of_the_next_run() -> None:
    found = sandboxed(late_answers)
    assert found["first"][0] == "fail"
    assert any("echo-1 sent no reply to client" in reason for reason in found["first"][1])
    assert found["second"] == ["pass", []]
    assert found["runs"] == 1  # no frame of the run before is among those of this one


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
