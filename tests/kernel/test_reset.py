"""A wire that was made as new shows the next scenario nothing of the last."""

import json
import socket
from collections.abc import Mapping
from typing import Any

import pytest
from sandboxed import USERS, sandboxed
from wires import BASIC

from lab.kernel.launcher import Launcher
from lab.kernel.netns import inside
from lab.kernel.realise import Wiring, realise
from lab.kernel.reset import make_as_new
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
    "moved routes": ("router", "ip route show 10.96.0.0/16 via 172.18.0.3"),
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


def made(wiring: Wiring, place: str, family: int, kind: int) -> socket.socket:
    with inside(wiring.namespaces[place]):
        sock = socket.socket(family, kind)
    sock.settimeout(5)
    return sock


async def dirty(launcher: Launcher, wiring: Wiring) -> None:
    """Leave a trace of every kind."""
    await run(launcher, wiring, "node-a", "iptables -w -t nat -A POSTROUTING -j MASQUERADE")
    await run(launcher, wiring, "router", "ip route replace 10.96.0.0/16 via 172.18.0.3")
    await run(launcher, wiring, "router", "ip link set nodes mtu 1400")
    pods = {pod.name: str(pod.addresses[0]) for pod in wiring.plan.pods}
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
        fresh = await look(launcher, wiring)
        await dirty(launcher, wiring)
        dirtied = await look(launcher, wiring)
        addresses = await run(launcher, wiring, "node-a", "ip -j addr")
        make_as_new(wiring)
        again = await look(launcher, wiring)
        return {
            "fresh": fresh,
            "dirtied": dirtied,
            "again": again,
            "same": json.loads(addresses) == json.loads(await run(launcher, wiring, "node-a", "ip -j addr")),
        }


@BOTH
def test_a_reset_leaves_nothing_of_any_kind(ordinary: bool) -> None:
    found = sandboxed(before_and_after, ordinary=ordinary)
    assert [what for what, count in found["dirtied"].items() if count == 0] == ["TCP metrics"], "these are never kept"
    assert found["again"] == found["fresh"] == dict.fromkeys(LOOKS, 0)
    assert found["same"], "the plan's own addresses stay"
