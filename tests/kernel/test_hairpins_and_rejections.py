"""What happens to packets that a Service proxy sends back into the network: hairpins, rejections, loops."""

import socket
import struct
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from network_scenarios import BASIC
from planned_addresses import PlannedAddress, planned_addresses, udp
from sandboxed import sandboxed
from scenario_cases import DUAL, node, pods, scenario
from users import EITHER

from proxylab.kernel.netlink.build import Wiring, realise
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import inside
from proxylab.plan.topology import draw
from proxylab.timing import Deadline

GATEWAY, ITSELF, UNREACHED = "its gateway", "itself", "none"
HAIRPINS = {
    # By mode, and by whether bridged frames pass the IP rules: the source that a pod sees when it calls itself by a
    # Service, in IPv4 and in IPv6. Where bridged frames pass no rules, the node routes the packet and masquerades it.
    # On a promiscuous bridge, the bridge's hooks translate the packet, and it goes on through the stack without a
    # second pass of nat: its source is the pod's own address, which only IPv4 refuses (fib_validate_source,
    # net/ipv4/fib_frontend.c).
    ("hairpin-veth", "1"): (GATEWAY, GATEWAY),
    ("hairpin-veth", "0"): (GATEWAY, GATEWAY),
    ("promiscuous-bridge", "1"): (UNREACHED, ITSELF),
    ("promiscuous-bridge", "0"): (GATEWAY, GATEWAY),
    ("none", "1"): (UNREACHED, UNREACHED),
    ("none", "0"): (GATEWAY, GATEWAY),
}
HAIRPIN_RULES = """\
*nat
-A PREROUTING -d {service} -p udp -j DNAT --to-destination {pod}
-A POSTROUTING -s {pod} -d {pod} -j MASQUERADE
COMMIT
"""


async def reached_themselves(launcher: Launcher) -> list[Any]:
    found: list[Any] = []
    for mode, passed in HAIRPINS:
        sysctls = {f"net.bridge.bridge-nf-call-{table}": passed for table in ("iptables", "ip6tables")}
        lab = scenario([node("node-a", sysctls=sysctls)], [pods("echo", "node-a")],
                       network={**DUAL, "pod_network": "bridge", "hairpin": mode})  # fmt: skip
        with realise(draw(lab)) as wiring:
            for pod in planned_addresses(wiring.plan):
                if pod.name == "echo":
                    seen = await seen_address(launcher, wiring, pod, UNUSED[pod.address.version == 6])
                    found.append([mode, passed, pod.address.version, seen])
    return found


async def seen_address(launcher: Launcher, wiring: Wiring, pod: PlannedAddress, service: str) -> str:
    rules = HAIRPIN_RULES.format(service=service, pod=pod.address).encode()
    restore = "iptables-restore" if pod.address.version == 4 else "ip6tables-restore"
    done = await launcher.run(
        wiring.namespaces["node-a"], [restore, "-w"], netns_name="node-a", stdin=rules, deadline=Deadline.after(10)
    )
    assert done.status == 0, done.stderr
    with udp(wiring, pod, 4000) as sock:
        sock.settimeout(0.3)
        sock.sendto(b"x", (service, 4000))
        try:
            source = ip_address(sock.recvfrom(10)[1][0])
        except TimeoutError:
            return UNREACHED
    gateways = [each.interface.ip for each in wiring.plan.namespace("node-a").addresses if each.device == "cni0"]
    return {pod.address: ITSELF, **dict.fromkeys(gateways, GATEWAY)}[source]


@EITHER
def test_a_pod_on_a_bridge_reaches_itself_as_its_hairpin_lets_it(ordinary: bool) -> None:
    wanted = [
        [*how, version, seen] for how, both in HAIRPINS.items() for version, seen in zip((4, 6), both, strict=True)
    ]
    assert sandboxed(reached_themselves, ordinary=ordinary) == wanted


KERNELS_OWN_LIMITS = {"net.ipv4.icmp_ratemask": "6168", "net.ipv6.icmp.ratemask": "0-1,3-127"}
REJECTED_FLOWS = 200


async def rejections_heard(launcher: Launcher) -> dict[str, list[int]]:
    """How many flows of a pod to a closed port of its node get an error, with the lab's limits and the kernel's."""
    heard: dict[str, list[int]] = {}
    for name, sysctls in {"lab": {}, "kernel": KERNELS_OWN_LIMITS}.items():
        with realise(
            draw(scenario([node("node-a", sysctls=sysctls)], [pods("sender", "node-a")], network=DUAL))
        ) as wiring:
            at_node = {
                each.address.version: each.address for each in planned_addresses(wiring.plan) if each.name == "node-a"
            }
            for sender in (each for each in planned_addresses(wiring.plan) if each.name == "sender"):
                target = str(at_node[sender.address.version])
                heard.setdefault(name, []).append(
                    sum(is_refused(wiring, sender, target) for _ in range(REJECTED_FLOWS))
                )
    return heard


def is_refused(wiring: Wiring, sender: PlannedAddress, target: str) -> bool:
    """Whether a datagram to a closed port returns ECONNREFUSED, which arrives before send() returns."""
    with udp(wiring, sender) as sock:
        sock.connect((target, 9))
        sock.send(b"x")
        return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0


@EITHER
def test_every_rejection_is_heard_and_with_the_kernels_own_limits_few_are(ordinary: bool) -> None:
    found = sandboxed(rejections_heard, ordinary=ordinary)
    assert found["lab"] == [REJECTED_FLOWS, REJECTED_FLOWS]
    assert max(found["kernel"]) < REJECTED_FLOWS / 4


UNUSED = ("10.96.77.77", "fd00:10:96::7777")


async def looped(_: Launcher) -> dict[str, list[int]]:
    """How often a packet to an unused cluster IP crosses its node's uplink, and the ICMP error that ends the loop."""
    found = {}
    with realise(draw(BASIC["ptp dual"])) as wiring:
        sender = {each.address.version: each for each in planned_addresses(wiring.plan) if each.name == "sender"}
        for address in map(ip_address, UNUSED):
            with udp(wiring, sender[address.version]) as out:
                recverr = (socket.IPPROTO_IP, 11) if address.version == 4 else (socket.IPPROTO_IPV6, 25)
                hops = (socket.IPPROTO_IP, socket.IP_TTL) if address.version == 4 else (socket.IPPROTO_IPV6, 16)
                out.setsockopt(*recverr, 1)  # IP_RECVERR, IPV6_RECVERR
                out.setsockopt(*hops, 21)  # IP_TTL, IPV6_UNICAST_HOPS
                before = crossed(wiring, "node-a")
                out.sendto(b"x", (str(address), 80))
                with pytest.raises(OSError, match="No route to host"):
                    out.recv(1)
                _, said, _, _ = out.recvmsg(100, 512, socket.MSG_ERRQUEUE)
                _, _, kind, code = struct.unpack_from("=IBBB", said[0][2])
                found[str(address)] = [crossed(wiring, "node-a") - before, kind, code]
    return found


def crossed(wiring: Wiring, node: str) -> int:
    """How many packets have left on the node's uplink."""
    with inside(wiring.namespaces[node]):
        lines = Path("/proc/thread-self/net/dev").read_text().splitlines()
    (uplink,) = [line.split() for line in lines if line.strip().startswith("eth0:")]
    return int(uplink[10])


@EITHER
def test_a_packet_to_an_unused_cluster_ip_loops_between_node_and_router_until_its_ttl_ends(ordinary: bool) -> None:
    found = sandboxed(looped, ordinary=ordinary)
    for address, error in zip(UNUSED, ([11, 0], [3, 0]), strict=True):
        crossings, *said = found[address]
        assert crossings >= 10, "a packet of 21 hops leaves the node by every second of them"
        assert said == error, "time exceeded"
