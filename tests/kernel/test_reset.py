"""A wire that was made as new shows the next scenario nothing of the last."""

import json
import re
import socket
import struct
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest
from sandboxed import USERS, sandboxed
from wires import BASIC

from lab.ip import Family
from lab.kernel.launcher import Launcher
from lab.kernel.netns import inside
from lab.kernel.realise import Wiring, realise
from lab.kernel.requests import Request, replace_route
from lab.kernel.reset import NotAsNewError, Renewal
from lab.plan.model import Route
from lab.plan.topology import draw
from lab.timing import Deadline

BOTH = pytest.mark.parametrize("ordinary", USERS.values(), ids=USERS)

# What shows each kind of state, and in which namespace: a command, whose lines of output are counted.
LOOKS: Mapping[str, tuple[str, str]] = {
    "conntrack": ("node-a", "cat /proc/thread-self/net/nf_conntrack"),
    "TIME_WAIT": ("sender", "ss -Htan state time-wait"),
    "TCP metrics": ("sender", "ip tcp_metrics show"),
    "route exceptions": ("client", "ip route get 10.244.0.10 | grep mtu || true"),
    "IPv6 route exceptions": ("client", "ip -6 route get fd00:10:244::a | grep mtu || true"),
    "neighbours": ("node-a", "ip neigh show nud reachable nud stale nud delay nud probe nud failed"),
    "neighbours of the router": ("router", "ip neigh show nud reachable nud stale nud delay nud probe nud failed"),
    "moved routes": ("router", "ip route show 10.96.0.0/16 via 172.18.0.3"),
    "added routes": ("router", "ip route show 192.0.2.1"),
    "forwarding entries": ("fabric", "bridge fdb show dynamic | grep 02:00:00:00:00:99 || true"),
    "legacy rules": ("node-a", "iptables-legacy-save -t nat | grep ^-A || true"),
    "legacy rules of IPv6": ("node-a", "ip6tables-legacy-save -t filter | grep ^-A || true"),
    "recently seen": ("node-a", "cat /proc/thread-self/net/xt_recent/SEEN || true"),
    "nf_tables": ("node-a", "nft list tables"),
    "sysctls": ("node-a", "sysctl net.ipv4.conf.all.route_localnet | grep 1 || true"),
}


async def run(launcher: Launcher, wiring: Wiring, place: str, command: str) -> str:
    done = await launcher.run(wiring.namespaces[place], ["sh", "-c", command], place=place, deadline=Deadline.after(10))
    assert done.status == 0, f"{command} in {place}: {done.stderr.decode()}"
    return done.stdout.decode()


async def look(launcher: Launcher, wiring: Wiring) -> dict[str, int]:
    return {
        what: len([line for line in (await run(launcher, wiring, place, command)).splitlines() if line.strip()])
        for what, (place, command) in LOOKS.items()
    }


def made(wiring: Wiring, place: str, family: int, kind: int, protocol: int = 0) -> socket.socket:
    with inside(wiring.namespaces[place]):
        sock = socket.socket(family, kind, protocol)
    sock.settimeout(5)
    return sock


def leave_unsaid(wiring: Wiring, caller: str, host: str) -> None:
    """A connection that is closed with something unsaid, over a link that is down: its FIN is repeated for minutes."""
    with made(wiring, "echo-3", socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.bind((host, 5001))
        listening.listen()
        calling = made(wiring, caller, socket.AF_INET, socket.SOCK_STREAM)
        calling.connect((host, 5001))
        called = listening.accept()[0]
        set_link(wiring, "echo-3", up=False)
        calling.sendall(b"never heard")
        calling.close()
        called.close()


def set_link(wiring: Wiring, pod: str, *, up: bool) -> None:
    end = wiring.plan.peer(pod, "eth0")
    body = struct.pack("=BxHiII", 0, 0, end.index, int(up), 1)
    wiring.routes[end.namespace].send([Request("set a link", 16, 0, body)])


async def dirty(launcher: Launcher, wiring: Wiring) -> None:
    """Leave a trace of every kind."""
    for command in (
        "iptables-legacy -w -t nat -A POSTROUTING -j MASQUERADE",
        "iptables-legacy -w -t mangle -A PREROUTING -m recent --name SEEN --set",
        "ip6tables-legacy -w -A FORWARD -j ACCEPT",
        "nft 'add table inet left; add chain inet left c; add rule inet left c drop; add table ip other'",
        "echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet",
        "echo 5 >/proc/sys/net/netfilter/nf_conntrack_udp_timeout",
    ):
        await run(launcher, wiring, "node-a", command)
    await run(launcher, wiring, "fabric", "bridge fdb add 02:00:00:00:00:99 dev node-a master dynamic")
    index = wiring.plan.end("router", "nodes").index
    for destination in ("10.96.0.0/16", "192.0.2.1/32"):
        route = Route(IPv4Network(destination), "nodes", via=IPv4Address("172.18.0.3"))
        wiring.routes["router"].send([replace_route(route, index)])
    await run(launcher, wiring, "router", "ip link set nodes mtu 1400")
    pods = {pod.name: str(pod.addresses[0]) for pod in wiring.plan.pods}
    leave_unsaid(wiring, "client", pods["echo-3"])
    set_link(wiring, "echo-3", up=True)
    # The one who closes first waits, and remembers the way.
    with made(wiring, "echo-2", socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.bind((pods["echo-2"], 5000))
        listening.listen()
        calling = made(wiring, "sender", socket.AF_INET, socket.SOCK_STREAM)
        calling.connect((pods["echo-2"], 5000))
        called = listening.accept()[0]
        calling.shutdown(socket.SHUT_WR)
        called.recv(1)
        called.close()
        calling.recv(1)
        calling.close()
    # Too big for the router's way, and not to be fragmented: it says so, and the sender remembers.
    for family, address in ((socket.AF_INET, "10.244.0.10"), (socket.AF_INET6, "fd00:10:244::a")):
        with made(wiring, "client", family, socket.SOCK_DGRAM) as sending:
            if family == socket.AF_INET:
                sending.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO
            sending.sendto(bytes(1440), (address, 9))
    await run(launcher, wiring, "router", "ip link set nodes mtu 1500")


async def before_and_after(launcher: Launcher) -> dict[str, Any]:
    with realise(draw(BASIC["bridge dual"])) as wiring:
        renewal = Renewal(wiring)
        fresh = await look(launcher, wiring)
        rules = await run(launcher, wiring, "router", "ip route; ip -6 route")
        sysctls = await run(launcher, wiring, "node-a", "sysctl -a 2>/dev/null | grep ^net")
        await dirty(launcher, wiring)
        dirtied = await look(launcher, wiring)
        addresses = await run(launcher, wiring, "node-a", "ip -j addr")
        renewal.make_as_new([Family.IPV4, Family.IPV6])
        again = await look(launcher, wiring)
        rest = await run(launcher, wiring, *LOOKS["conntrack"])
        renewal.close()
        return {
            "fresh": fresh,
            "dirtied": dirtied,
            "again": again,
            "rest": rest,
            "routes": [rules, await run(launcher, wiring, "router", "ip route; ip -6 route")],
            "sysctls": [sysctls, await run(launcher, wiring, "node-a", "sysctl -a 2>/dev/null | grep ^net")],
            "same": json.loads(addresses) == json.loads(await run(launcher, wiring, "node-a", "ip -j addr")),
        }


def unlike(before: str, after: str) -> set[str]:
    """Lines that only one of two texts has, but for counts that nobody sets."""
    different = set(before.splitlines()) ^ set(after.splitlines())
    return {line for line in different if not re.search(r"nf_conntrack_count|flush|random|uuid", line)}


@BOTH
def test_a_reset_leaves_nothing_of_any_kind(ordinary: bool) -> None:
    found = sandboxed(before_and_after, ordinary=ordinary)
    assert [what for what, count in found["dirtied"].items() if count == 0] == ["TCP metrics"], "these are never kept"
    assert found["again"] == found["fresh"] == dict.fromkeys(LOOKS, 0), found["rest"]
    assert found["same"], "the plan's own addresses stay"
    assert unlike(*found["routes"]) == set()
    assert unlike(*found["sysctls"]) == set()


async def with_what_it_does_not_know(_: Launcher) -> list[str]:
    """A socket that somebody still holds, and a packet of which one fragment has come."""
    said = []
    with realise(draw(BASIC["bridge dual"])) as wiring:
        renewal = Renewal(wiring)
        pods = {pod.name: str(pod.addresses[0]) for pod in wiring.plan.pods}
        with made(wiring, "echo-1", socket.AF_INET, socket.SOCK_DGRAM) as held:
            held.bind(("", 0))
            said.append(refusal(renewal))
        with made(wiring, "sender", socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as sending:
            source, target = (socket.inet_aton(pods[name]) for name in ("sender", "echo-2"))
            head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28, 7, 0x2000, 64, 17, 0, source, target)  # more fragments
            sending.sendto(head + bytes(8), (pods["echo-2"], 0))
        said.append(refusal(renewal))
        renewal.close()
    return said


def refusal(renewal: Renewal) -> str:
    try:
        renewal.make_as_new([])
    except NotAsNewError as error:
        return str(error)
    return ""


def test_a_wire_with_something_unknown_is_given_up() -> None:
    held, fragment = sandboxed(with_what_it_does_not_know)
    assert held.startswith("echo-1: 1 sockets")
    assert "1 packets that wait for their fragments" in fragment
