"""The kernel does what the plan promises: who reaches which address, with which source, under which sysctls."""

import contextlib
import json
import os
from collections.abc import Mapping
from itertools import permutations
from typing import Any

from network_scenarios import BALANCED, BASIC, TUNNELLED, crowded
from planned_addresses import PlannedAddress, planned_addresses, udp
from sandboxed import sandboxed
from scenario_cases import DUAL, two_nodes
from users import EITHER

from proxylab.addresses import Family
from proxylab.kernel.netlink.build import Wiring, realise
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import inside
from proxylab.plan.sources import snat_source
from proxylab.plan.topology import draw
from proxylab.scenario.model import Scenario
from proxylab.timing import Deadline


def lost(scenario: Scenario) -> list[str]:
    """The pairs between which a datagram is lost, or arrives with another source address."""
    failed = []
    with realise(draw(scenario)) as wiring:
        addresses = list(planned_addresses(wiring.plan))
        listening = {each.address: udp(wiring, each, 4000) for each in addresses}
        for sender, receiver in permutations(addresses, 2):
            if sender.address.version != receiver.address.version or sender.address == receiver.address:
                continue
            with udp(wiring, sender) as out:
                try:
                    out.sendto(sender.name.encode(), (str(receiver.address), 4000))
                    data, (source, *_) = listening[receiver.address].recvfrom(100)
                except OSError as error:
                    failed.append(f"{sender} to {receiver}: {error}")
                    continue
            if data.decode() != sender.name or source != str(sender.address):
                failed.append(f"{sender} to {receiver}: {data!r} from {source}")
        for each in listening.values():
            each.close()
    return failed


async def lost_without_tunnels(_: Launcher) -> dict[str, list[str]]:
    return {name: lost(scenario) for name, scenario in BASIC.items()}


async def lost_in_tunnels(_: Launcher) -> dict[str, list[str]]:
    return {name: lost(scenario) for name, scenario in TUNNELLED.items()}


@EITHER
def test_addresses_reach_each_other_in_every_topology(ordinary: bool) -> None:
    assert sandboxed(lost_without_tunnels, ordinary=ordinary) == {name: [] for name in BASIC}


@EITHER
def test_addresses_reach_each_other_through_tunnels(ordinary: bool) -> None:
    assert sandboxed(lost_in_tunnels, ordinary=ordinary) == {name: [] for name in TUNNELLED}


async def ip(launcher: Launcher, wiring: Wiring, netns_name: str, *argv: str) -> Any:
    argv = ("ip", "-json", *argv) if argv[0] != "bridge" else ("bridge", "-json", "-details", *argv[1:])
    done = await launcher.run(wiring.namespaces[netns_name], argv, netns_name=netns_name, deadline=Deadline.after(10))
    assert done.status == 0, done.stderr
    return json.loads(done.stdout)


async def what_crowded_nodes_route(launcher: Launcher) -> dict[str, Any]:
    with realise(draw(crowded())) as wiring:
        found = {
            source: await ip(launcher, wiring, "node-a", "route", "get", "203.0.113.9", "from", source)
            for source in ("192.168.7.11", "172.18.0.2")
        }
        found |= {
            source: await ip(launcher, wiring, "node-a", "-6", "route", "get", "2001:db8:203:113::9", "from", source)
            for source in ("fd00:192:168:7::b", "fd00:172:18::2")
        }
        nodes = {
            name: udp(wiring, PlannedAddress(name, name, BALANCED.network_address), 4000)
            for name in ("node-a", "node-b")
        }
        for sock in nodes.values():
            sock.setblocking(False)
        client = next(each for each in planned_addresses(wiring.plan) if each.name == "client")
        arrived: dict[str, list[bytes]] = {name: [] for name in nodes}
        for number in range(100):
            with udp(wiring, client) as out:
                for _ in range(2):
                    out.sendto(str(number).encode(), (str(BALANCED.network_address), 4000))
        for name, sock in nodes.items():
            with contextlib.suppress(BlockingIOError):
                while True:
                    arrived[name].append(sock.recv(100))
            sock.close()
        return {
            "devices": {source: routes[0]["dev"] for source, routes in found.items()},
            "shares": [len(each) for each in arrived.values()],
            "torn": [number.decode() for number in set(arrived["node-a"]) & set(arrived["node-b"])],
        }


@EITHER
def test_policy_routes_hold_for_their_source_and_balanced_addresses_are_shared_by_flow(ordinary: bool) -> None:
    found = sandboxed(what_crowded_nodes_route, ordinary=ordinary)
    assert found["devices"] == {
        "192.168.7.11": "eth1",
        "172.18.0.2": "eth0",
        "fd00:192:168:7::b": "eth1",
        "fd00:172:18::2": "eth0",
    }
    assert sum(found["shares"]) == 200
    assert min(found["shares"]) > 40, "the router hashes on ports, so flows of one client are shared"
    assert found["torn"] == [], "all packets of a flow take one way"


async def ports_of_bridges(launcher: Launcher) -> dict[str, Any]:
    found = {}
    for name in ("bridge dual", "promiscuous bridge", "bridge without hairpin"):
        with realise(draw(BASIC[name])) as wiring:
            ports = await ip(launcher, wiring, "node-a", "bridge", "link", "show")
            bridge = await ip(launcher, wiring, "node-a", "-details", "link", "show", "cni0")
            found[name] = [sorted({port["hairpin"] for port in ports}), "PROMISC" in bridge[0]["flags"], len(ports)]
    return found


@EITHER
def test_bridges_hairpin_as_planned(ordinary: bool) -> None:
    assert sandboxed(ports_of_bridges, ordinary=ordinary) == {
        "bridge dual": [[True], False, 3],
        "promiscuous bridge": [[False], True, 3],
        "bridge without hairpin": [[False], False, 3],
    }


async def groups_of_node(launcher: Launcher) -> list[str]:
    """The multicast groups of IPv4 that the node's kernel is in, as /proc/net/igmp writes them."""
    with realise(draw(BASIC["bridge dual"])) as wiring:
        node, deadline = wiring.namespaces["node-a"], Deadline.after(10)
        done = await launcher.run(node, ("cat", "/proc/net/igmp"), netns_name="node-a", deadline=deadline)
        return sorted({words[0] for line in done.stdout.decode().splitlines() if len(words := line.split()) == 4})


@EITHER
def test_no_node_reports_a_multicast_group(ordinary: bool) -> None:
    """It would do so at a random time, and the packet would count as one of a probe; all are in 224.0.0.1 unasked."""
    assert sandboxed(groups_of_node, ordinary=ordinary) == ["010000E0"]


MASQUERADING: Mapping[str, Scenario] = {
    "ptp": BASIC["ptp dual"],
    "unnumbered": BASIC["unnumbered dual"],
    "bridge": BASIC["bridge dual"],
}


async def masqueraded(launcher: Launcher, cases: Mapping[str, Scenario] = MASQUERADING) -> dict[str, list[str]]:
    """The outside host's source address at receivers when node-a masquerades everything, and the plan's prediction."""
    found = {}
    for name, case in cases.items():
        with realise(draw(case)) as wiring:
            addresses = list(planned_addresses(wiring.plan))
            for family in Family:
                own = {each.name: each for each in addresses if Family.of(each.address) is family}
                if not own:
                    continue
                at_node_a = own["node-a"].address
                command = "iptables" if family is Family.IPV4 else "ip6tables"
                rule = [
                    command,
                    "-w",
                    "-t",
                    "nat",
                    "-A",
                    "POSTROUTING",
                    "-s",
                    f"{own['client'].address}",
                    "-j",
                    "MASQUERADE",
                ]
                deadline = Deadline.after(10)
                done = await launcher.run(wiring.namespaces["node-a"], rule, netns_name="node-a", deadline=deadline)
                assert done.status == 0, done.stderr
                other = "overlay" if wiring.plan.namespace("node-a").vxlans else "uplink"
                for device, receiver in (("pods", "echo-1"), (other, "echo-2")):
                    # By a route of its own, a packet for the other node's pod passes node-a as a Service's would.
                    add = ["ip", "route", "replace", str(own[receiver].address), "via", str(at_node_a)]
                    await launcher.run(wiring.namespaces["router"], add, netns_name="router", deadline=deadline)
                    with udp(wiring, own[receiver], 4000) as into, udp(wiring, own["client"]) as out:
                        out.sendto(b"x", (str(own[receiver].address), 4000))
                        source = into.recvfrom(100)[1][0]
                    planned = str(snat_source(wiring.plan, "node-a", device, family))
                    found[f"{name} {family} {device}"] = [source, planned]
    return found


@EITHER
def test_masquerade_takes_the_planned_source(ordinary: bool) -> None:
    found = sandboxed(masqueraded, ordinary=ordinary)
    uplink = {f"{name} IPv4 uplink": ["172.18.0.2"] * 2 for name in MASQUERADING}
    uplink |= {f"{name} IPv6 uplink": ["fd00:172:18::2"] * 2 for name in MASQUERADING}
    pods = {f"{name} IPv4 pods": ["10.244.0.1"] * 2 for name in ("ptp", "bridge")}
    pods |= {f"{name} IPv6 pods": ["fd00:10:244::1"] * 2 for name in ("ptp", "bridge")}
    unnumbered = {"unnumbered IPv4 pods": ["172.18.0.2"] * 2, "unnumbered IPv6 pods": ["fd00:172:18::2"] * 2}
    assert found == uplink | pods | unnumbered


async def masqueraded_in_tunnels(launcher: Launcher) -> dict[str, list[str]]:
    return await masqueraded(launcher, {"vxlan": TUNNELLED["vxlan ptp dual"]})


@EITHER
def test_masquerade_into_a_tunnel_takes_the_vxlan_devices_address(ordinary: bool) -> None:
    assert sandboxed(masqueraded_in_tunnels, ordinary=ordinary) == {
        "vxlan IPv4 pods": ["10.244.0.1"] * 2,
        "vxlan IPv4 overlay": ["10.244.0.0"] * 2,
        "vxlan IPv6 pods": ["fd00:10:244::1"] * 2,
        "vxlan IPv6 overlay": ["fd00:10:244::"] * 2,
    }


async def sysctls_that_differ(launcher: Launcher) -> Any:
    """Sysctls that differ from the plan once the lab exists, with the devices that have another value."""
    wrong = []
    for case in (two_nodes(), two_nodes(network=DUAL), crowded(), BASIC["unnumbered dual"]):
        with realise(draw(case)) as wiring:
            for namespace in wiring.plan.namespaces:
                own = {sysctl.name for sysctl in namespace.device_sysctls}
                with inside(wiring.namespaces[namespace.name]):
                    for sysctl in (*namespace.sysctls, *namespace.device_sysctls):
                        found = read(sysctl.name)
                        if found != sysctl.value and (sysctl.required or found is not None):
                            wrong.append(f"{namespace.name}: {sysctl.name} is {found!r}, not {sysctl.value!r}")
                        if ".conf.default." not in sysctl.name:
                            continue
                        for device in (end.device for link in wiring.plan.links for end in link.ends
                                       if end.namespace == namespace.name):  # fmt: skip
                            name = sysctl.name.replace(".default.", f".{device}.")
                            if name not in own and read(name) not in (sysctl.value, None):
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


@EITHER
def test_every_sysctl_holds_on_every_device(ordinary: bool) -> None:
    assert sandboxed(sysctls_that_differ, ordinary=ordinary) == []
