"""What the plan promises, the kernel does: who reaches whom, behind which source, under which sysctls."""

import os
import socket
from itertools import permutations
from typing import Any

import pytest
from sandboxed import USERS, sandboxed
from scenario_cases import two_nodes

from lab.kernel.launcher import Launcher
from lab.kernel.netns import inside
from lab.kernel.realise import Wiring, realise
from lab.plan.model import Namespace, Role
from lab.plan.sources import snat_source
from lab.plan.topology import draw
from lab.timing import Deadline

BOTH = pytest.mark.parametrize("ordinary", USERS.values(), ids=USERS)
SECONDS = 5.0


def address(namespace: Namespace) -> str:
    return next(str(each.interface.ip) for each in namespace.addresses if each.device == "eth0")


def udp(wiring: Wiring, place: str, port: int = 0) -> socket.socket:
    with inside(wiring.namespaces[place]):
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.settimeout(SECONDS)
    made.bind(("0.0.0.0", port))
    return made


async def every_pair(launcher: Launcher) -> list[str]:
    """The pairs that a datagram does not cross, or crosses under another address."""
    with realise(draw(two_nodes())) as wiring:
        ends = [each for each in wiring.plan.namespaces if each.role in (Role.NODE, Role.POD, Role.HOST)]
        listening = {each.name: udp(wiring, each.name, 4000) for each in ends}
        failed = []
        for sender, receiver in permutations(ends, 2):
            with udp(wiring, sender.name) as out:
                out.sendto(sender.name.encode(), (address(receiver), 4000))
            try:
                data, (source, _) = listening[receiver.name].recvfrom(100)
            except TimeoutError:
                failed.append(f"{sender.name} to {receiver.name}: nothing")
                continue
            if data.decode() != sender.name or (sender.role is not Role.NODE and source != address(sender)):
                failed.append(f"{sender.name} to {receiver.name}: {data!r} from {source}")
        for each in listening.values():
            each.close()
        return failed


@BOTH
def test_everybody_reaches_everybody(ordinary: bool) -> None:
    assert sandboxed(every_pair, ordinary=ordinary) == []


async def masqueraded(launcher: Launcher) -> dict[str, list[str]]:
    """The source that receivers see of the outside host when node-a masquerades everything, and the plan's word."""
    with realise(draw(two_nodes())) as wiring:
        rule = ["iptables", "-w", "-t", "nat", "-A", "POSTROUTING", "-s", "203.0.113.0/24", "-j", "MASQUERADE"]
        deadline = Deadline.after(10)
        done = await launcher.run(wiring.namespaces["node-a"], rule, place="node-a", deadline=deadline)
        assert done.status == 0, done.stderr
        found = {}
        for device, receiver in (("pods", "echo-1"), ("uplink", "echo-2")):
            # By a route of its own, a packet for the other node's pod passes node-a as a Service's would.
            add = ["ip", "route", "replace", "10.244.1.0/24", "via", "172.18.0.2"]
            await launcher.run(wiring.namespaces["router"], add, place="router", deadline=deadline)
            with udp(wiring, receiver, 4000) as into, udp(wiring, "client") as out:
                out.sendto(b"x", (address(wiring.plan.namespace(receiver)), 4000))
                _, (source, _) = into.recvfrom(100)
            found[device] = [source, str(snat_source(wiring.plan, "node-a", device))]
        return found


@BOTH
def test_masquerade_takes_the_planned_source(ordinary: bool) -> None:
    assert sandboxed(masqueraded, ordinary=ordinary) == {
        "pods": ["10.244.0.1", "10.244.0.1"],
        "uplink": ["172.18.0.2", "172.18.0.2"],
    }


async def sysctls_that_differ(launcher: Launcher) -> Any:
    """Keys that do not hold what the plan says once the lab stands, and the devices that have another value."""
    with realise(draw(two_nodes())) as wiring:
        wrong = []
        for namespace in wiring.plan.namespaces:
            with inside(wiring.namespaces[namespace.name]):
                for sysctl in namespace.sysctls:
                    found = read(sysctl.name)
                    if found != sysctl.value and (sysctl.required or found is not None):
                        wrong.append(f"{namespace.name}: {sysctl.name} is {found}, not {sysctl.value}")
                    if ".conf.default." in sysctl.name and sysctl.name.startswith("net.ipv4"):
                        for device in (end.device for link in wiring.plan.links for end in link.ends
                                       if end.namespace == namespace.name):  # fmt: skip
                            name = sysctl.name.replace(".default.", f".{device}.")
                            if read(name) != sysctl.value:
                                wrong.append(f"{namespace.name}: {name} is {read(name)}, not {sysctl.value}")
        return wrong


def read(name: str) -> str | None:
    try:
        fd = os.open("/proc/sys/" + name.replace(".", "/"), os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        return os.read(fd, 100).decode().strip()
    finally:
        os.close(fd)


@BOTH
def test_every_sysctl_holds_on_every_device(ordinary: bool) -> None:
    assert sandboxed(sysctls_that_differ, ordinary=ordinary) == []
