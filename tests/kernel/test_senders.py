"""Packets of a node's own programs: the lab sees them as sent, before every rule, and the answers as received."""

import socket
from ipaddress import IPv4Address
from typing import Any

from msgspec.structs import replace
from sandboxed import sandboxed
from test_traffic import Stage, nat, stage, told
from traffic_plan import PODS, VIP, resolved
from users import EITHER

from proxylab.addresses import Transport
from proxylab.evidence.evidence import Packet
from proxylab.kernel.capture.stack import StackTap
from proxylab.kernel.netlink.conntrack import Conntrack, Tuple
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import inside
from proxylab.plan.resolved import STACK, Receiver, ResolvedProbe, Sender, Sentinel
from proxylab.scenario.words import Manner

NODE = IPv4Address("172.18.0.2")
NO_MAC = "00:00:00:00:00:00"
AT_THE_POD = ("echo-1", Packet.REQUEST)
MANNERS = [
    (protocol, manner) for protocol in (Transport.TCP, Transport.UDP) for manner in (Manner.CONNECT, Manner.PACKET)
]


def from_node(protocol: Transport, manner: Manner, **changes: Any) -> ResolvedProbe:
    sender = Sender(name="node-a", namespace="node-a", device=STACK, address=NODE, mac=NO_MAC, next_hop_mac=NO_MAC)
    sentinels = tuple(Sentinel(name=pod, address=PODS[pod][0]) for pod in PODS)
    return replace(resolved(protocol, manner, **changes), sender=sender, sentinels=sentinels)


def translate(protocol: Transport) -> str:
    dnat = f"-A OUTPUT -d {VIP}/32 -p {protocol.lower()} --dport 80 -j DNAT --to-destination 10.244.0.11:8080"
    return nat(dnat, "-A POSTROUTING -s 172.18.0.2/32 -d 10.244.0.0/24 -j MASQUERADE")


async def translated(launcher: Launcher) -> dict[str, Any]:
    result = {}
    async with stage(launcher) as lab:
        await default_route(lab)
        for protocol, manner in MANNERS:
            await lab.rules(translate(protocol))
            evidence = await lab.run(from_node(protocol, manner, flows=20))
            ways = {
                (
                    f"{seen.netns_name} {seen.device} {seen.direction}",
                    seen.packet,
                    str(seen.source),
                    str(seen.destination),
                )
                for seen in evidence.observations
            }
            result[f"{protocol} {manner}"] = told(evidence) | {"ways": sorted(ways)}
    return result


async def default_route(lab: Stage) -> None:
    """A route for packets before translation: a socket looks up its route before OUTPUT sees the packet."""
    await lab.ip("node-a", "route", "add", f"{VIP}/32", "via", "10.244.0.12", "dev", "echo-2", "onlink")


@EITHER
def test_a_node_s_packet_is_seen_as_it_was_sent_and_not_as_a_rule_of_output_made_it(ordinary: bool) -> None:
    for name, found in sandboxed(translated, ordinary=ordinary).items():
        assert found["sent"] == 20, name
        assert (found["losses"], found["refused"], found["unfinished"]) == ([], {}, ""), name
        assert found["ways"] == sorted(
            [
                ["echo-1 eth0 in", "request", "10.244.0.1", "10.244.0.11"],
                ["echo-1 eth0 out", "reply", "10.244.0.11", "10.244.0.1"],
                ["node-a echo-1 in", "reply", "10.244.0.11", "10.244.0.1"],
                ["node-a echo-1 out", "request", "10.244.0.1", "10.244.0.11"],
                ["node-a stack in", "reply", str(VIP), str(NODE)],
                ["node-a stack out", "request", str(NODE), str(VIP)],
            ]
        ), name
        assert found["seen"] == {
            "node-a out request": 40,  # by its stack, and by its device for the pod
            "echo-1 in request": 20,
            "echo-1 out reply": 20,
            "node-a in reply": 40,
        }, name


async def forbidden(launcher: Launcher) -> dict[str, Any]:
    result = {}
    async with stage(launcher) as lab:
        await default_route(lab)
        await lab.rules(f"*filter\n-A OUTPUT -d {VIP}/32 -j DROP\nCOMMIT\n")
        for protocol, manner in MANNERS:
            evidence = await lab.run(from_node(protocol, manner, flows=3))
            flows = sorted({seen.flow for seen in evidence.observations})
            result[f"{protocol} {manner}"] = told(evidence) | {"flows": flows}
    return result


def test_what_a_rule_of_output_drops_was_sent_and_its_sender_is_told() -> None:
    for name, found in sandboxed(forbidden).items():
        # The kernel retransmits a SYN after a second (RFC 6298, section 2), which happens on a slow machine.
        assert set(found["seen"]) == {"node-a out request"}, name
        assert found["seen"]["node-a out request"] in ((3, 4, 5, 6) if name == "TCP connect" else (3,)), name
        assert found["flows"] == [0, 1, 2], name
        assert all(found["sentinels"].values()), name
        assert sum(found["counts"].values()) >= 3, name
        # A TCP socket does not report it (tcp_connect passes on ECONNREFUSED only), and would retry.
        assert found["refused"] == ({} if name == "TCP connect" else {"EPERM": 3}), name


async def at_home(launcher: Launcher) -> dict[str, Any]:
    """A listening program of the node, reached by a rule that redirects to the node's own address."""
    async with stage(launcher) as lab:
        await lab.rules(nat(f"-A PREROUTING -d {VIP}/32 -p udp -j DNAT --to-destination {NODE}:5353"))
        agent = Receiver(name="agent", namespace="node-a", device=STACK, address=NODE, ports=(5353,))
        asked = resolved(Transport.UDP, Manner.PACKET)
        evidence = await lab.run(replace(asked, receivers=(*asked.receivers, agent)))
        return told(evidence) | {
            "devices": sorted({seen.device for seen in evidence.observations if seen.netns_name == "node-a"}),
            "errors": [str(seen.source) for seen in evidence.observations if seen.packet is Packet.PORT_UNREACHABLE],
        }


def test_what_arrives_at_a_node_s_own_program_is_seen_behind_its_rules() -> None:
    found = sandboxed(at_home)
    assert found["seen"]["node-a in request"] == 2
    assert found["devices"] == ["client", STACK], "as it came, and as it then was for the program"
    assert found["errors"], "no socket listens there in this lab, and the kernel says so"


async def overflowing(launcher: Launcher, *, forgetting: bool = False) -> dict[str, int]:
    async with stage(launcher) as lab:
        tap = StackTap(lab.netns["node-a"], "node-a", STACK)
        try:
            with inside(lab.netns["node-a"]):
                flood = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sent = 20_000
            with flood:
                for _ in range(sent):
                    flood.sendto(b"x", (str(NODE), 9))
            heard = len([frame for frame in tap.drain() if frame.data[23] == 17])
            before = tap.take_lost()
            if forgetting:
                tap.forget()
            with inside(lab.netns["node-a"]):
                late = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            with late:
                late.sendto(b"x", (str(NODE), 9))
            last = len([frame for frame in tap.drain() if frame.data[23] == 17])
            return {"sent": sent + 1, "heard": heard + last, "last": last, "before": before, "after": tap.take_lost()}
        finally:
            tap.close()


def test_what_the_kernel_could_not_log_is_counted() -> None:
    found = sandboxed(overflowing)
    assert found["heard"] < 2 * found["sent"], "each datagram leaves and comes in; this must not fit"
    assert found["before"] >= 1, "a loss is known before the next packet tells how large it is"
    assert found["before"] + found["after"] >= 2 * found["sent"] - found["heard"]


async def overflowing_before_it_counts(launcher: Launcher) -> dict[str, int]:
    return await overflowing(launcher, forgetting=True)


def test_a_loss_before_a_probe_is_not_counted_in_the_probe() -> None:
    found = sandboxed(overflowing_before_it_counts)
    assert found["before"] >= 1
    assert found["last"] == 2, "the next datagram leaves and comes in"
    assert found["after"] == 0, "its number shows how many packets were lost before it"


async def from_a_port_that_was_given_away(launcher: Launcher) -> dict[str, Any]:
    """A flow is masqueraded to the source port of the next flow, to the same backend."""
    async with stage(launcher) as lab:
        await default_route(lab)
        dnat = f"-A OUTPUT -d {VIP}/32 -p tcp --dport 80 -j DNAT --to-destination 10.244.0.11:8080"
        out = "-A POSTROUTING -s 172.18.0.2/32 -p tcp"
        first = f"{out} --sport 20000 -j SNAT --to-source {NODE}:3253"
        await lab.rules(nat(dnat, first, f"{out} -j SNAT --to-source {NODE}:30000-40000 --random-fully"))
        await lab.ip("echo-1", "route", "add", f"{NODE}/32", "via", "10.244.0.1", "dev", "eth0")
        sender = from_node(Transport.TCP, Manner.PACKET).sender
        sources = []
        for port in (20000, 3253):
            evidence = await lab.run(
                replace(from_node(Transport.TCP, Manner.PACKET), sender=replace(sender, port=port))
            )
            sources += [
                seen.source_port for seen in evidence.observations if (seen.netns_name, seen.packet) == AT_THE_POD
            ]
        dialled = Tuple(socket.IPPROTO_TCP, NODE, 0, VIP, 80)
        lookup = Conntrack(lab.netns["node-a"])
        kept = [entry and entry.destination_port for entry in lookup.replies(dialled, (20000, 3253))]
        lookup.close()
        return {"sources": sources, "kept": kept}


def test_the_entry_of_a_flow_does_not_give_way_to_one_from_the_port_it_was_given() -> None:
    """The kernel evicts a closed connection that occupies a destination's single port, for higher sequence numbers."""
    found = sandboxed(from_a_port_that_was_given_away)
    assert found["sources"][0] == 3253
    assert found["kept"] == found["sources"]
