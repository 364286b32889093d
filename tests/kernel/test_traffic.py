"""Probes on a real kernel: every tap and every flow sees what was sent, or its absence is proven."""

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from math import ceil
from typing import Any

from msgspec.structs import replace
from sandboxed import sandboxed
from traffic_plan import LISTENERS, PODS, VIP, nat, over_ipv6, resolved, spread, traffic_plan
from users import EITHER

from proxylab.addresses import Family, Transport
from proxylab.engines.embedded.iptables.meter import TableMeter
from proxylab.evidence.evidence import Direction, Evidence, Packet
from proxylab.kernel.netfilter.iptables_legacy_tables import TableReader
from proxylab.kernel.netlink.build import realise
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import inside
from proxylab.plan.model import Listener
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.words import Manner
from proxylab.timing import Deadline
from proxylab.traffic.answer import read_answer, request_line
from proxylab.traffic.identity import IdentityRegistry
from proxylab.traffic.responder import PortsTakenError, Responders
from proxylab.traffic.runner import Runner
from proxylab.traffic.watch import Watch

PROTOCOLS = (Transport.TCP, Transport.UDP)
MANNERS = (Manner.PACKET, Manner.CONNECT)
ON_THE_NODE = tuple(f"node-a {way}" for way in ("in request", "out request", "in reply", "out reply"))


@dataclass
class Stage:
    """A lab with a runner, and rules by hand."""

    launcher: Launcher
    netns: Any
    runner: Runner
    family: Family = Family.IPV4

    async def rules(self, text: str, netns_name: str = "node-a") -> None:
        await self._run(netns_name, [f"{self._tables}-legacy-restore"], text)

    @property
    def _tables(self) -> str:
        return "iptables" if self.family is Family.IPV4 else "ip6tables"

    async def run(self, resolved: ResolvedProbe) -> Evidence:
        return await self.runner.run(resolved)

    async def saved(self, netns_name: str, tables: Collection[str] = ("mangle", "filter", "nat")) -> str:
        """Table by table, since the list of tables in /proc is the machine's root's to read."""
        return "".join(
            [await self._run(netns_name, [f"{self._tables}-legacy-save", "-c", "-t", table], "") for table in tables]
        )

    async def ip(self, netns_name: str, *argv: str) -> None:
        await self._run(netns_name, ["ip", *argv], "")

    async def _run(self, netns_name: str, argv: list[str], text: str) -> str:
        done = await self.launcher.run(
            self.netns[netns_name], argv, netns_name=netns_name, stdin=text.encode(), deadline=Deadline.after(10)
        )
        assert done.status == 0, done.stderr
        return done.stdout.decode()


@asynccontextmanager
async def stage(launcher: Launcher, family: Family = Family.IPV4) -> AsyncIterator[Stage]:
    plan = traffic_plan() if family is Family.IPV4 else over_ipv6(traffic_plan())
    with realise(plan) as wiring:

        async def saved(tables: Collection[str]) -> str:
            return await standing.saved("node-a", tables)

        meter = TableMeter("node-a", TableReader(wiring.namespaces["node-a"], family), saved)
        watch, responders = Watch(wiring.namespaces, wiring.plan), Responders(wiring.namespaces, wiring.plan)
        responders.attach(asyncio.get_running_loop())
        runner = Runner(wiring.namespaces, wiring.plan, watch, responders, {("node-a", family): meter}, seed=7)
        standing = Stage(launcher, wiring.namespaces, runner, family)
        try:
            yield standing
        finally:
            for each in (runner, responders, watch):
                each.close()


def seen(evidence: Evidence) -> Counter[str]:
    """The number of observations of each kind, at any device of a namespace."""
    return Counter(f"{o.netns_name} {o.direction} {o.packet}" for o in evidence.observations)


def told(evidence: Evidence) -> dict[str, Any]:
    """What a test checks, as JSON."""
    return {
        "sent": evidence.sent,
        "seen": seen(evidence),
        "errors": Counter(report.error for report in evidence.connects),
        "backends": Counter(report.backend for report in evidence.connects),
        "sentinels": {sentinel.name: sentinel.answered for sentinel in evidence.sentinels},
        "counts": {count.text: count.packets for count in evidence.counts},
        "losses": [loss.frames for loss in evidence.losses],
        "refused": Counter(evidence.refused_sends),
        "unfinished": evidence.unfinished,
        "seconds": evidence.seconds,
    }


async def delivered(launcher: Launcher) -> dict[str, Any]:
    result = {}
    async with stage(launcher) as lab:
        for protocol in PROTOCOLS:
            await lab.rules(spread(protocol))
            for manner in MANNERS:
                evidence = await lab.run(resolved(protocol, manner, flows=40))
                by_flow = {
                    o.flow: o for o in evidence.observations if (o.netns_name, o.packet) == ("client", Packet.REPLY)
                }
                result[f"{protocol} {manner}"] = told(evidence) | {
                    "replies from": sorted({f"{o.source}:{o.source_port}" for o in by_flow.values()}),
                    "flows": len(by_flow),
                    "sources": sorted(
                        {
                            str(o.source)
                            for o in evidence.observations
                            if o.direction is Direction.IN and o.packet is Packet.REQUEST
                        }
                    ),
                }
    return result


@EITHER
def test_flows_are_followed_through_a_dnat_both_ways(ordinary: bool) -> None:
    for name, found in sandboxed(delivered, ordinary=ordinary).items():
        sights = found["seen"]
        assert found["sent"] == found["flows"] == 40, name
        assert sights["client out request"] == sights["client in reply"] == 40, name
        for way in ("in request", "out reply"):
            assert sights[f"echo-1 {way}"] + sights[f"echo-2 {way}"] == 40, name
            assert min(sights[f"echo-1 {way}"], sights[f"echo-2 {way}"]) > 0, name
        assert set(sights) == {
            "client out request",
            "client in reply",
            "echo-1 in request",
            "echo-1 out reply",
            "echo-2 in request",
            "echo-2 out reply",
            *ON_THE_NODE,
        }, name
        assert {sights[way] for way in ON_THE_NODE} == {40}, name
        assert found["replies from"] == [f"{VIP}:80"], name
        assert found["sources"] == [str(PODS["client"][0])], name
        assert found["sentinels"] == {}, name
        assert (found["losses"], found["refused"], found["unfinished"]) == ([], {}, ""), name
        assert sum(found["counts"].values()) == 40, name
        if "connect" in name:
            assert found["errors"] == {"": 40}, name
            assert found["backends"] == {pod: sights[f"{pod} in request"] for pod in ("echo-1", "echo-2")}, name


async def not_delivered(launcher: Launcher) -> dict[str, Any]:
    """The same probe, refused in four ways."""
    result = {}
    head = f"-A FORWARD -d {VIP}/32"
    fates = {
        "rejected": f"*filter\n{head} -j REJECT --reject-with icmp-port-unreachable\nCOMMIT\n",
        "dropped": f"*filter\n{head} -j DROP\nCOMMIT\n",
        "refused": nat(
            *(
                f"-A PREROUTING -d {VIP}/32 -p {protocol.lower()} -j DNAT --to-destination 10.244.0.11:9999"
                for protocol in PROTOCOLS
            )
        ),
    }
    async with stage(launcher) as lab:
        await lab.ip("node-a", "route", "add", f"{VIP}/32", "via", "10.244.0.12", "dev", "echo-2", "onlink")
        for fate, rules in fates.items():
            await lab.rules("*nat\nCOMMIT\n*filter\nCOMMIT\n")
            await lab.rules(rules)
            for protocol in PROTOCOLS:
                for manner in MANNERS:
                    result[f"{fate} {protocol} {manner}"] = told(await lab.run(resolved(protocol, manner, flows=70)))
    return result


@EITHER
def test_what_is_not_delivered_has_a_witness(ordinary: bool) -> None:
    found = sandboxed(not_delivered, ordinary=ordinary)
    for protocol in PROTOCOLS:
        for manner in MANNERS:
            rejected, dropped, refused = (
                found[f"{fate} {protocol} {manner}"] for fate in ("rejected", "dropped", "refused")
            )
            assert rejected["seen"] == {
                "client out request": 70,
                "node-a in request": 70,
                "node-a out port-unreachable": 70,
                "client in port-unreachable": 70,
            }
            assert rejected["sentinels"] == {}, "an ICMP error settles a flow"
            assert dropped["seen"] == {"client out request": 70, "node-a in request": 70}
            assert dropped["sentinels"] == dict.fromkeys(["node-a", "echo-1", "echo-2"], True), (
                "each sentinel packet came back"
            )
            assert dropped["seconds"] < 0.9, "what will never come is not waited for"
            # A closed TCP port answers with a reset, a closed UDP port with ICMP from the pod.
            word = "reset" if protocol is Transport.TCP else "port-unreachable"
            assert refused["seen"] == {
                "client out request": 70,
                "node-a in request": 70,
                "node-a out request": 70,
                "echo-1 in request": 70,
                f"echo-1 out {word}": 70,
                f"node-a in {word}": 70,
                f"node-a out {word}": 70,
                f"client in {word}": 70,
            }
            for fate in (rejected, dropped, refused):
                assert fate["unfinished"] == ""
                assert sum(fate["counts"].values()) >= 70
            if manner is Manner.CONNECT:
                assert rejected["errors"] == refused["errors"] == {"ECONNREFUSED": 70}
                assert dropped["errors"] == {"timeout": 70}


async def forbidden(launcher: Launcher) -> dict[str, Any]:
    async with stage(launcher) as lab:
        await lab.rules(f"*filter\n-A OUTPUT -d {VIP}/32 -j DROP\nCOMMIT\n", "client")
        return {
            "EPERM": told(await lab.run(resolved(Transport.UDP, Manner.CONNECT, flows=3))),
        }


def test_what_cannot_be_sent_is_named() -> None:
    for name, found in sandboxed(forbidden).items():
        assert found["sent"] == 0
        assert found["refused"] == {name: 3}
        assert found["seen"] == {}


async def hairpin(launcher: Launcher) -> dict[str, Any]:
    result = {}
    async with stage(launcher) as lab:
        for protocol in PROTOCOLS:
            dnat = f"-A PREROUTING -d {VIP}/32 -p {protocol.lower()} -j DNAT --to-destination 10.244.0.11:8080"
            await lab.rules(nat(dnat, "-A POSTROUTING -s 10.244.0.11/32 -d 10.244.0.11/32 -j MASQUERADE"))
            for manner in MANNERS:
                evidence = await lab.run(resolved(protocol, manner, sender="echo-1", flows=20))
                result[f"{protocol} {manner}"] = told(evidence)
    return result


@EITHER
def test_a_pod_that_reaches_itself_is_sender_and_receiver_at_one_tap(ordinary: bool) -> None:
    for name, found in sandboxed(hairpin, ordinary=ordinary).items():
        ways = ("out request", "in request", "out reply", "in reply")
        assert found["seen"] == {f"{netns_name} {way}": 20 for netns_name in ("echo-1", "node-a") for way in ways}, name


async def unanswered(launcher: Launcher) -> dict[str, Any]:
    async with stage(launcher) as lab:
        await lab.rules(f"*filter\n-A FORWARD -d {VIP}/32 -j DROP\n-A FORWARD -d 10.244.0.12 -p icmp -j DROP\nCOMMIT\n")
        await lab.ip("node-a", "route", "add", f"{VIP}/32", "via", "10.244.0.12", "dev", "echo-2", "onlink")
        return told(await lab.run(resolved(Transport.TCP, Manner.CONNECT, flows=200)))


def test_a_sentinel_packet_that_does_not_come_back_is_waited_for_once_and_reported() -> None:
    found = sandboxed(unanswered)
    assert found["sentinels"] == {"node-a": True, "echo-1": True, "echo-2": False}
    assert found["errors"] == {"timeout": 200}
    assert found["seconds"] >= 1
    # A stack that sends its SYNs again has the sentinel packets sent again, and nothing else has: not each flow.
    (rounds,) = (count for rule, count in found["counts"].items() if "-p icmp" in rule)
    assert 1 <= rounds <= 2 * ceil(found["seen"]["client out request"] / found["sent"])


async def overflow(launcher: Launcher) -> dict[str, Any]:
    async with stage(launcher) as lab:
        await lab.rules(spread(Transport.UDP))
        tap = lab.runner._watch.tap("echo-1", "eth0")
        tap._receiving.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        return told(await lab.run(resolved(Transport.UDP, flows=1000)))


def test_frames_that_a_tap_could_not_keep_are_counted() -> None:
    found = sandboxed(overflow)
    assert len(found["losses"]) == 1
    assert found["losses"][0] > 0
    assert found["seen"]["echo-1 in request"] < 500


async def odd_clients(launcher: Launcher) -> dict[str, Any]:
    """Half-open, silent, endless and garbage clients, and then an ordinary probe."""
    async with stage(launcher) as lab:
        with inside(lab.netns["client"]):
            clients = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(600)]
            garbage = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with ExitStack() as stack:
            stack.enter_context(garbage)
            for number, client in enumerate(clients):
                stack.enter_context(client)
                client.setblocking(False)
                with suppress(BlockingIOError):
                    client.connect(("10.244.0.11", 8080))
                await asyncio.sleep(0)
                if number % 2:
                    with suppress(OSError):
                        client.send(bytes(range(10)) if number % 4 == 1 else b"x" * 200_000)
            answers = {}
            garbage.connect(("10.244.0.11", 8080))
            garbage.setblocking(False)
            for name, datagram in {"question": b"who are you?", "answer": b"proxylab reply to no one"}.items():
                garbage.send(datagram)
                lab.runner._responders.pump()
                try:
                    answers[name] = garbage.recv(1024).decode()
                except BlockingIOError:
                    answers[name] = ""
            await lab.rules(spread(Transport.TCP))
            return told(await lab.run(resolved(Transport.TCP, Manner.CONNECT, flows=100))) | {"answers": answers}


def test_odd_clients_disturb_no_other_client() -> None:
    found = sandboxed(odd_clients)
    assert found["errors"] == {"": 100}
    assert found["answers"]["question"].startswith('proxylab reply  {"pod": "echo-1", "peer": "10.244.0.10"')
    assert found["answers"]["answer"] == "", "an answer is never answered"


async def second_listener(launcher: Launcher) -> dict[str, str]:
    """The error for a plan in which another program listens on echo-1's port."""
    said = {}
    plan = traffic_plan()
    for protocol in LISTENERS:
        intruder = Listener("intruder", protocol, 8080)
        namespaces = tuple(
            replace(namespace, listeners=(*namespace.listeners, intruder)) if namespace.name == "echo-1" else namespace
            for namespace in plan.namespaces
        )
        with realise(plan) as wiring:
            try:
                Responders(wiring.namespaces, replace(plan, namespaces=namespaces)).close()
            except PortsTakenError as error:
                said[protocol] = str(error)
    return said


def test_two_listeners_on_one_port_are_refused_by_name() -> None:
    said = sandboxed(second_listener)
    for protocol in LISTENERS:
        assert said.get(protocol) == f"echo-1 {protocol} 8080"


async def again(launcher: Launcher) -> dict[str, Any]:
    async with stage(launcher) as lab:
        await lab.rules(spread(Transport.UDP))
        first = await lab.run(resolved(Transport.UDP, flows=50))
        second = await lab.run(resolved(Transport.UDP, flows=50))
        ports = [
            {o.source_port for o in run.observations if o.netns_name == "client" and o.direction is Direction.OUT}
            for run in (first, second)
        ]
        return {"shared": len(ports[0] & ports[1]), "second": told(second)}


def test_an_errand_that_is_run_again_has_ports_of_its_own_and_asks_the_rules_again() -> None:
    found = sandboxed(again)
    assert found["shared"] == 0
    assert sum(found["second"]["counts"].values()) == 50


async def used_up(launcher: Launcher) -> dict[str, Any]:
    """A probe, nearly all other ports of its sender, and the probe again; then twice from the author's port."""
    result = {}
    async with stage(launcher) as lab:
        await lab.rules(spread(Transport.UDP))
        result["first"] = told(await lab.run(resolved(Transport.UDP, flows=50)))
        lab.runner._ports.deal(("client", Family.IPV4), Transport.UDP, lab.runner._ports.size - 80)
        result["second"] = told(await lab.run(resolved(Transport.UDP, flows=50)))
        chosen = resolved(Transport.UDP)
        chosen = replace(chosen, sender=replace(chosen.sender, port=5000))
        for turn in ("third", "fourth"):
            result[turn] = told(await lab.run(chosen))
    return result


@EITHER
def test_every_flow_asks_the_rules_however_many_flows_there_were_before(ordinary: bool) -> None:
    for turn, found in sandboxed(used_up, ordinary=ordinary).items():
        flows = 1 if turn in ("third", "fourth") else 50
        assert (found["sent"], found["losses"], found["unfinished"]) == (flows, [], ""), turn
        assert sum(found["counts"].values()) == flows, turn


async def stuffed(launcher: Launcher) -> dict[str, Any]:
    """A client of a stream whose requests come all at once, as after a link is mended, and that reads no answer yet."""
    identity, requests = IdentityRegistry(bytes(8)).issue(1), 5_000
    async with stage(launcher) as lab:
        with inside(lab.netns["client"]):
            client = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        with client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("10.244.0.11", 8080))
            client.setblocking(False)
            unsent = b"".join(request_line(identity.stream_token(number)) for number in range(requests))
            answers, tries = b"", 0
            while answers.count(b"\n") < requests and tries < 20_000:
                tries += 1
                with suppress(BlockingIOError):
                    unsent = unsent[client.send(unsent) :]
                lab.runner._responders.pump()
                if tries > 20:
                    with suppress(BlockingIOError):
                        answers += client.recv(1 << 16)
                await asyncio.sleep(0)
        lines = answers.splitlines()
        whole = [read_answer(line + b"\n", identity.stream_token(number)) for number, line in enumerate(lines)]
        return {"lines": len(lines), "whole": sum(each is not None for each in whole)}


def test_answers_that_the_send_buffer_has_no_room_for_are_sent_later_and_whole() -> None:
    assert sandboxed(stuffed) == {"lines": 5_000, "whole": 5_000}
