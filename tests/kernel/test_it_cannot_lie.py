"""The lab reports a disturbance of its own observation: each ends in fail or inconclusive, with the right reason.

Every case also runs the same probe undisturbed, which passes: so the disturbance changes the verdict.
"""

import asyncio
import re
import socket
import struct
from collections.abc import Awaitable, Callable
from copy import copy
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from sandboxed import sandboxed
from test_traffic import Stage, stage
from traffic_plan import PODS, VIP, errand_over_ipv6, nat, resolved, sixth

from proxylab.addresses import Family, Transport
from proxylab.kernel.capture.taps import Tap
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import inside
from proxylab.scenario.expect import Backend, Expect, Preserved
from proxylab.scenario.probes import AddressTarget, Probe, Send, Source
from proxylab.scenario.words import Manner, Outcome, Position
from proxylab.traffic.answer import AnswerWriter
from proxylab.traffic.identity import TOKEN_BYTES
from proxylab.verdict.judge import judge

HERE = Position("disturbed.lab.yaml", 1, 1)
POD = "echo-1"
Disturbance = Callable[[Stage], Awaitable[None]]


def rules(protocol: Transport, family: Family = Family.IPV4) -> str:
    dialled, pod = f"{VIP}/32", f"{PODS[POD][0]}:8080"
    if family is Family.IPV6:
        dialled, pod = f"{sixth(VIP)}/128", f"[{sixth(PODS[POD][0])}]:8080"
    return nat(f"-A PREROUTING -d {dialled} -p {protocol.lower()} --dport 80 -j DNAT --to-destination {pod}")


async def judged(lab: Stage, protocol: Transport, manner: Manner, flows: int) -> list[Any]:
    """The overall verdict, and every reason."""
    sent = resolved(protocol, manner, flows=flows)
    if lab.family is Family.IPV6:
        sent = errand_over_ipv6(sent)
    expect = Expect(outcome=Outcome.DELIVERED, backends=(Backend(POD),), source=Preserved(), position=HERE)
    probe = Probe(
        name="a probe",
        source=Source(name="client"),
        target=AddressTarget(address=sent.destination, port=80),
        send=Send(protocol=protocol, manner=manner, flows=flows),
        expect=expect,
        position=HERE,
    )
    verdict = judge(probe, sent, None, await lab.run(sent))
    return [verdict.overall, [f"{each.expectation}: {why}" for each in verdict.verdicts for why in each.reasons]]


def before_answers(lab: Stage, once: Callable[[], None]) -> None:
    """Act when requests have arrived and no responder has answered yet."""
    responders = lab.runner._responders
    pump, waiting = responders.pump, [once]

    def disturbed() -> int:
        if waiting:
            waiting.pop()()
        return pump()

    responders.pump = disturbed  # type: ignore[method-assign]


async def cut_link(lab: Stage) -> None:
    await lab.ip("echo-1", "link", "set", "eth0", "down")


async def lossy_tap(lab: Stage, netns_name: str = POD, device: str = "eth0") -> None:
    tap = lab.runner._watch.tap(netns_name, device)
    assert isinstance(tap, Tap)
    tap._receiving.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)


async def lossy_tap_of_a_node(lab: Stage) -> None:
    """A tap on the path of a flow, not at its ends."""
    lab.runner._watch.follow(True)
    await lossy_tap(lab, "node-a", POD)


async def delayed_reply(lab: Stage) -> None:
    """The responder sends nothing during the run; its answers leave later (``late_answers``)."""
    responders = lab.runner._responders
    asyncio.get_running_loop().remove_reader(responders._epoll.fileno())
    responders.pump = lambda: 0  # type: ignore[method-assign]


async def swapped_replies(lab: Stage) -> None:
    """Each of two flows gets the answer of the other: forged, from the right address at the right pod."""

    def swapped(voice: AnswerWriter, request: bytes, peer: str, port: int) -> bytes | None:
        flow = request[TOKEN_BYTES - 1 : TOKEN_BYTES]
        other = {b"0": b"1", b"1": b"0"}[flow]
        return answer(voice, request[: TOKEN_BYTES - 1] + other + request[TOKEN_BYTES:], peer, port)

    responders = lab.runner._responders
    for control_socket in responders._udp.values():
        answer = type(control_socket.voice).answer
        control_socket.voice = SimpleNamespace(  # type: ignore[misc]
            answer=partial(swapped, control_socket.voice), _name=control_socket.voice._name
        )


async def forged_reply(lab: Stage) -> None:
    """Another pod answers flow 0 from its own address, with the token of the right answer."""
    family = socket.AF_INET if lab.family is Family.IPV4 else socket.AF_INET6
    with inside(lab.netns["echo-2"]):
        forger = socket.socket(family, socket.SOCK_DGRAM)
    runner = lab.runner
    client = PODS["client"][0] if lab.family is Family.IPV4 else sixth(PODS["client"][0])
    port = runner._ports._deck[0]  # the source port of the lab's first flow

    def forge() -> None:
        issued = runner._identities
        # The current run has the latest identity.
        token = f"proxylab reply {issued._nonce.hex()} {issued._serial - 1:08x}00000000".encode()
        forger.sendto(token + b"\n", (str(client), port))

    before_answers(lab, forge)


async def forged_handshake(lab: Stage) -> None:
    """Another pod answers flow 0 from its own address, with the right acknowledgement number."""
    with inside(lab.netns["echo-2"]):
        forger = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)
    port = lab.runner._ports._deck[0]
    acknowledged = copy(lab.runner._identities).issue(1).sequence(0) + 1
    segment = struct.pack("!HHIIBBHHH", 8080, port, 1, acknowledged, 5 << 4, 0x12, 1024, 0, 0)  # SYN and ACK

    def forge() -> None:
        forger.sendto(segment, (str(PODS["client"][0]), 0))

    before_answers(lab, forge)


async def flushed_conntrack(lab: Stage) -> None:
    from proxylab.kernel.netlink.conntrack import flush

    before_answers(lab, lambda: flush(lab.netns["node-a"]))


async def killed_responder(lab: Stage) -> None:
    responders = lab.runner._responders
    for control_sockets in (responders._tcp, responders._udp):
        for fd, control_socket in tuple(control_sockets.items()):
            if control_socket.voice._name == b'"echo-1"':
                del control_sockets[fd]
                control_socket.sock.close()


@dataclass(frozen=True)
class Case:
    """A disturbance, the probe, the required verdict, and the reason."""

    disturb: Disturbance
    protocol: Transport
    manner: Manner
    flows: int
    judgement: str
    words: str
    family: Family = Family.IPV4

    @property
    def sent(self) -> tuple[Family, Transport, Manner, int]:
        return self.family, self.protocol, self.manner, self.flows


TCP, UDP, PACKET, CONNECT, IPV6 = Transport.TCP, Transport.UDP, Manner.PACKET, Manner.CONNECT, Family.IPV6
CASES = {
    "a link is cut": Case(
        cut_link, UDP, PACKET, 5, "inconclusive", "no sentinel packet came back from echo-1"
    ),
    "a link is cut (TCP)": Case(
        cut_link, TCP, CONNECT, 1, "inconclusive", "no sentinel packet came back from echo-1"
    ),
    "a link is cut (IPv6)": Case(
        cut_link, UDP, PACKET, 5, "inconclusive", "no sentinel packet came back from echo-1", IPV6
    ),
    "a tap drops frames": Case(lossy_tap, UDP, PACKET, 1000, "inconclusive", "the tap at echo-1 eth0 lost"),
    "a tap drops frames (TCP)": Case(lossy_tap, TCP, PACKET, 1000, "inconclusive", "the tap at echo-1 eth0 lost"),
    "a node's tap drops frames": Case(
        lossy_tap_of_a_node, UDP, PACKET, 16, "inconclusive", "outcome: the tap at node-a echo-1 lost"
    ),
    "a reply is late": Case(
        delayed_reply, UDP, PACKET, 3, "fail", "reply: 3 of 3 flows: echo-1 sent no reply to client"
    ),
    # The kernel has made the connection; its program sends nothing.
    "a reply is late (TCP)": Case(
        delayed_reply, TCP, CONNECT, 1, "fail", "reply: the handshake was answered, the data was not: timeout"
    ),
    "a reply is forged": Case(
        forged_reply, UDP, PACKET, 1, "fail", "reply: the reply came from 10.244.0.12:"
    ),
    "a reply is forged (IPv6)": Case(
        forged_reply, UDP, PACKET, 1, "fail", "reply: the reply came from [fd00::af4:c]:", IPV6
    ),
    "a reply is forged (TCP)": Case(
        forged_handshake, TCP, PACKET, 1, "fail",
        "reply: the reply came from 10.244.0.12:8080, not from 10.96.0.10:80 that was dialled",
    ),
    "replies are those of other flows": Case(
        swapped_replies, UDP, PACKET, 2, "fail", "but the request did not come from there"
    ),
    "replies are those of other flows, to sockets": Case(
        swapped_replies, UDP, CONNECT, 2, "fail", "but the request did not come from there"
    ),
    # The sender receives the pod's own address. That is wrong, though conntrack has lost the flow.
    "conntrack is flushed": Case(
        flushed_conntrack, UDP, PACKET, 1, "fail",
        "the reply came from 10.244.0.11:8080, not from 10.96.0.10:80 that was dialled",
    ),
    "conntrack is flushed (IPv6)": Case(
        flushed_conntrack, UDP, PACKET, 1, "fail",
        "the reply came from [fd00::af4:b]:8080, not from [fd00::a60:a]:80 that was dialled", IPV6,
    ),
    # During a connection: the pod's next segment reaches the client from a foreign address.
    "conntrack is flushed (TCP)": Case(
        flushed_conntrack, TCP, CONNECT, 1, "fail", "reply: the handshake was answered, the data was not: "
    ),
    "a responder is killed (TCP)": Case(
        killed_responder, TCP, CONNECT, 3, "fail",
        "outcome: 3 of 3 flows: it arrived at echo-1, and client heard a reset from 10.96.0.10:80",
    ),
    "a responder is killed (TCP over IPv6)": Case(
        killed_responder, TCP, CONNECT, 3, "fail", "client heard a reset from [fd00::a60:a]:80", IPV6
    ),
    "a responder is killed (UDP)": Case(
        killed_responder, UDP, CONNECT, 3, "fail",
        "outcome: 3 of 3 flows: it arrived at echo-1, and client heard ICMP port unreachable from 10.96.0.10",
    ),
    "a responder is killed (UDP over IPv6)": Case(
        killed_responder, UDP, CONNECT, 3, "fail", "client heard ICMP port unreachable from fd00::a60:a", IPV6
    ),
}  # fmt: skip


async def disturbed(launcher: Launcher) -> dict[str, Any]:
    found = {}

    async def judged_in(case: Case, disturb: Disturbance | None) -> list[Any]:
        async with stage(launcher, case.family) as lab:
            await lab.rules(rules(case.protocol, case.family))
            if disturb is not None:
                await disturb(lab)
            return await judged(lab, case.protocol, case.manner, case.flows)

    for case in {case.sent: case for case in CASES.values()}.values():
        found[f"{case.sent}"] = await judged_in(case, None)
    for name, case in CASES.items():
        found[name] = await judged_in(case, case.disturb)
    return found


async def late_answers(launcher: Launcher) -> dict[str, Any]:
    """A run whose answers come during the next run."""
    async with stage(launcher) as lab:
        await lab.rules(rules(Transport.UDP))
        responders = lab.runner._responders
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
    assert found["runs"] == 1  # no frame of the earlier run is among those of this run


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    result: dict[str, Any] = sandboxed(disturbed)
    return result


@pytest.mark.parametrize("name", CASES)
def test_what_is_disturbed_never_passes(found: dict[str, Any], name: str) -> None:
    case = CASES[name]
    assert found[f"{case.sent}"] == ["pass", []]
    overall, reasons = found[name]
    assert overall == case.judgement, reasons
    assert any(case.words in reason for reason in reasons), reasons
