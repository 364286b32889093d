"""Announced load-balancer addresses on the kernel: the MAC that the router and a host of the segment know for them."""

import json
import socket
from contextlib import AsyncExitStack
from ipaddress import ip_address
from typing import Final

from sandboxed import sandboxed
from users import EITHER

from proxylab.cluster.objects import LoadBalancerIngress, Service, ServiceType
from proxylab.cluster.store import Store
from proxylab.control.announcements import Announcements
from proxylab.kernel.netlink.build import Wiring, realise
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import inside
from proxylab.plan.topology import draw
from proxylab.scenario.load import parse_scenario
from proxylab.timing import Deadline, wait_until_seen

ADDRESSES: Final = ("172.18.255.1", "fd00:172:18::ff01")
NOBODYS: Final = "172.18.255.2"
ASKERS: Final = {"router": "nodes", "neighbour": "eth0"}

FILE: Final = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: announced}
spec:
  network: {families: [IPv4, IPv6]}
  nodes: {node-a: {}, node-b: {}}
  hosts: {neighbour: {segment: nodes}}
  loadBalancers: {segment: {pool: [172.18.255.0/28, "fd00:172:18::ff00/120"], announcedBy: node-a}}
"""
SERVICE: Final = Service(
    name="web",
    type=ServiceType.LOAD_BALANCER,
    load_balancer_ingress=tuple(LoadBalancerIngress(ip=ip_address(address)) for address in ADDRESSES),
)


async def known(launcher: Launcher, wiring: Wiring, asker: str, address: str) -> str:
    """The node whose MAC a machine has for an address: its name; empty while it has none."""
    argv = ["ip", "-json", "neigh", "show", "to", address, "dev", ASKERS[asker]]
    done = await launcher.run(wiring.namespaces[asker], argv, netns_name=asker, deadline=Deadline.after(10))
    assert done.status == 0, done.stderr
    macs = {wiring.plan.end(node, "eth0").mac: node for node in ("node-a", "node-b")}
    return next((macs[each["lladdr"]] for each in json.loads(done.stdout) if "lladdr" in each), "")


def send(wiring: Wiring, asker: str, address: str) -> None:
    family = socket.AF_INET if ip_address(address).version == 4 else socket.AF_INET6
    with inside(wiring.namespaces[asker]):
        sock = socket.socket(family, socket.SOCK_DGRAM)
    with sock:
        sock.sendto(b"who has it?", (address, 4000))


async def announced(launcher: Launcher) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    async with AsyncExitStack() as stack:
        wiring, store = stack.enter_context(realise(draw(parse_scenario(FILE, "announced.lab.yaml")))), Store()
        announcements = Announcements(wiring, store)
        stack.callback(announcements.close)
        announcements.start()

        async def look(when: str) -> None:
            found[when] = [await known(launcher, wiring, asker, address) for asker in ASKERS for address in ADDRESSES]

        async def ask() -> None:
            for asker in ASKERS:
                for address in ADDRESSES:
                    send(wiring, asker, address)

                    async def answered(asker: str = asker, address: str = address) -> bool:
                        return bool(await known(launcher, wiring, asker, address))

                    await wait_until_seen(answered, Deadline.after(10), f"{asker} knows who has {address}")

        send(wiring, "router", ADDRESSES[0])
        send(wiring, "router", NOBODYS)
        await look("no Service has an address")
        store.apply(SERVICE)
        await ask()
        await look("node-a announces")
        announcements.move("segment", "node-b", heard=True)
        await look("node-b announces, heard")
        announcements.move("segment", "node-a", heard=False)
        await ask()
        await look("node-a announces, unheard")
        found["of no Service"] = [await known(launcher, wiring, "router", NOBODYS)]
    return found


@EITHER
def test_neighbours_know_the_node_that_announced_last_as_far_as_they_heard(ordinary: bool) -> None:
    assert sandboxed(announced, ordinary=ordinary) == {
        "no Service has an address": [""] * 4,
        "node-a announces": ["node-a"] * 4,
        "node-b announces, heard": ["node-b"] * 4,
        "node-a announces, unheard": ["node-b"] * 4,
        "of no Service": [""],
    }
