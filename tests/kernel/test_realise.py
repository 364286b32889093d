"""A built plan equals the plan, and carries from the first packet on."""

import json
import socket
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from msgspec.structs import replace
from network_scenarios import BASIC, TUNNELLED
from sandboxed import sandboxed
from small_plan import small_plan
from survey import survey
from users import BOTH, EITHER

from proxylab.errors import CapabilityError, InternalError
from proxylab.kernel.netlink.build import Wiring, realise
from proxylab.kernel.netlink.links_carry import make_links_carry
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import inside
from proxylab.plan.model import Bridge, LinkEnd, Plan, PlannedNamespace, Role, Route, Sysctl, Veth, ends_by_namespace
from proxylab.plan.topology import draw
from proxylab.timing import Deadline


async def ip(launcher: Launcher, wiring: Wiring, netns_name: str, *argv: str) -> Any:
    done = await launcher.run(
        wiring.namespaces[netns_name], ["ip", "-j", *argv], netns_name=netns_name, deadline=Deadline.after(10)
    )
    assert done.status == 0, done.stderr
    return json.loads(done.stdout or b"[]")


async def what_the_kernel_has(launcher: Launcher) -> dict[str, Any]:
    with realise(small_plan()) as wiring:
        links = await ip(launcher, wiring, "node-a", "link")
        addresses = await ip(launcher, wiring, "node-a", "-4", "address")
        routes = {netns_name: await ip(launcher, wiring, netns_name, "route") for netns_name in ("node-b", "pod-1")}
        return {
            "links": {link["ifname"]: [link["ifindex"], link["address"]] for link in links},
            "up": sorted(link["ifname"] for link in links if "LOWER_UP" in link["flags"]),
            "addresses": {
                link["ifname"]: [f"{a['local']}/{a['prefixlen']}" for a in link["addr_info"]] for link in addresses
            },
            "routes": sorted(
                f"{route['dst']} via {route.get('gateway', '-')} on {route['dev']}"
                for netns_name in routes
                for route in routes[netns_name]
            ),
            "neighbours": [
                [entry["dst"], entry["lladdr"], *entry["state"]]
                for entry in await ip(launcher, wiring, "pod-2", "neighbour", "show", "nud", "permanent")
            ],
            "ports": [
                link["ifname"] for link in await ip(launcher, wiring, "fabric", "link", "show", "master", "nodes")
            ],
        }


@EITHER
def test_the_kernel_has_what_the_plan_says(ordinary: bool) -> None:
    found = sandboxed(what_the_kernel_has, ordinary=ordinary)
    assert found["links"] == {
        "lo": [1, "00:00:00:00:00:00"],
        "eth0": [12, "02:00:00:00:00:0c"],
        "pod-1": [20, "02:00:00:00:00:14"],
        "pod-2": [22, "02:00:00:00:00:16"],
    }
    assert found["up"] == ["eth0", "lo", "pod-1", "pod-2"]
    assert found["addresses"] == {
        "lo": ["127.0.0.1/8"],
        "eth0": ["172.18.0.2/16"],
        "pod-1": ["10.244.0.1/32"],
        "pod-2": ["10.244.0.1/32"],
    }
    assert found["routes"] == [
        "10.244.0.0/24 via 172.18.0.2 on eth0",
        "10.244.0.1 via - on eth0",
        "172.18.0.0/16 via - on eth0",
        "default via 10.244.0.1 on eth0",
    ]
    assert found["neighbours"] == [["10.244.0.1", "02:00:00:00:00:16", "PERMANENT"]]
    assert found["ports"] == ["node-a", "node-b"]


def differences(plan: Plan) -> list[str]:
    """What a plan has and the survey of its built network does not show, and the reverse."""
    found = []
    ends = ends_by_namespace(plan)
    with realise(plan) as wiring:
        for namespace in plan.namespaces:
            seen = survey(wiring.namespaces[namespace.name])
            routes = {replace(each, device="") if each.unreachable else each for each in namespace.routes}
            devices = [*ends[namespace.name], *namespace.bridges, *namespace.vxlans]
            masters = {end.device: end.master for end in ends[namespace.name]}
            pairs: list[tuple[set[Any], set[Any]]] = [
                (
                    {(each.device, each.index, each.mac, masters.get(each.device), True) for each in devices},
                    {(each.device, each.index, each.mac, each.master, each.up) for each in seen.links if each.mac},
                ),
                (set(namespace.addresses), set(seen.addresses)),
                (routes, set(seen.routes)),
                (set(namespace.neighbours), set(seen.neighbours)),
                (set(namespace.rules), set(seen.rules)),
            ]
            found += [f"{namespace.name}: {each}" for planned, there in pairs for each in planned ^ there]
    return found


async def surveys_beside_plans(_: Launcher) -> dict[str, list[str]]:
    return {name: differences(draw(case)) for name, case in (BASIC | TUNNELLED).items()}


@BOTH
def test_a_survey_of_the_kernel_shows_the_plan_and_nothing_else(ordinary: bool) -> None:
    found = sandboxed(surveys_beside_plans, ordinary=ordinary)
    assert found == {name: [] for name in BASIC | TUNNELLED}


async def sysctls_before_links(_: Launcher) -> list[str]:
    def read(name: str) -> str:
        with open(f"/proc/sys/net/ipv4/{name}", encoding="ascii") as file:
            return file.read().strip()

    with realise(small_plan()) as wiring:
        values = []
        for netns_name, name in (
            ("node-a", "ip_forward"),
            ("pod-1", "ip_forward"),
            ("node-a", "conf/eth0/rp_filter"),
            ("node-a", "conf/pod-1/rp_filter"),
        ):
            with inside(wiring.namespaces[netns_name]):
                values.append(read(name))
        return values


@BOTH
def test_devices_are_born_with_the_sysctls_of_the_plan(ordinary: bool) -> None:
    assert sandboxed(sysctls_before_links, ordinary=ordinary) == ["1", "0", "2", "2"]


def first_packet_arrives(wiring: Wiring) -> bool:
    """One datagram from the other node to a pod, at once and without a second try."""
    with inside(wiring.namespaces["pod-1"]):
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with inside(wiring.namespaces["node-b"]):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with receiver, sender:
        receiver.bind(("0.0.0.0", 9))
        receiver.setblocking(False)
        sender.sendto(b"first", ("10.244.0.10", 9))
        try:
            return receiver.recv(64) == b"first"
        except BlockingIOError:
            return False


async def first_packets(_: Launcher) -> list[bool]:
    arrived = []
    for _build in range(20):
        with realise(small_plan()) as wiring:
            arrived.append(first_packet_arrives(wiring))
    return arrived


@EITHER
def test_the_first_packet_after_a_build_arrives(ordinary: bool) -> None:
    assert sandboxed(first_packets, ordinary=ordinary) == [True] * 20


async def carry_by_frames(_: Launcher) -> list[bool]:
    with realise(small_plan()) as wiring:
        make_links_carry(wiring.plan, wiring.namespaces, wiring.routes, release=(6, 1))
        return [first_packet_arrives(wiring)]


@EITHER
def test_on_an_older_kernel_frames_prove_that_links_carry(ordinary: bool) -> None:
    assert sandboxed(carry_by_frames, ordinary=ordinary) == [True]


async def a_link_that_is_down(launcher: Launcher) -> str:
    with realise(small_plan()) as wiring:
        await ip(launcher, wiring, "node-a", "link", "set", "pod-2", "down")
        try:
            make_links_carry(wiring.plan, wiring.namespaces, wiring.routes, release=(6, 1), patience=0.2)
        except InternalError as error:
            return str(error)
    return "it claims to carry"


def test_a_link_over_which_no_frame_arrives_is_named() -> None:
    assert "pod-2" in sandboxed(a_link_that_is_down)


def many_ports(count: int) -> Plan:
    links = tuple(
        Veth(
            LinkEnd("fabric", f"port-{number}", 1000 + number, f"02:01:00:00:00:{number:02x}", "nodes"),
            LinkEnd(f"pod-{number}", "eth0", 2000 + number, f"02:02:00:00:00:{number:02x}"),
        )
        for number in range(count)
    )
    pods = tuple(PlannedNamespace(name=f"pod-{number}", role=Role.POD) for number in range(count))
    fabric = PlannedNamespace(name="fabric", role=Role.SEGMENT, bridges=(Bridge("nodes", 10, "02:00:00:00:00:0a"),))
    return Plan(namespaces=(fabric, *pods), links=links)


async def a_bridge_with_many_ports(_: Launcher) -> int:
    with realise(many_ports(120)) as wiring:
        return len(wiring.namespaces)


@EITHER
def test_answers_about_many_ports_fit_the_socket(ordinary: bool) -> None:
    assert sandboxed(a_bridge_with_many_ports, ordinary=ordinary) == 121


UNKNOWN, READ_ONLY = "net.ipv4.no_such_thing", "net.netfilter.nf_conntrack_max"


async def sysctls_that_cannot_be_written(_: Launcher) -> list[str]:
    plan = small_plan()
    answers = []
    for name in (UNKNOWN, READ_ONLY):
        odd = replace(plan.namespaces[1], sysctls=(Sysctl(name, "1"),))
        try:
            with realise(replace(plan, namespaces=(plan.namespaces[0], odd, *plan.namespaces[2:]))):
                answers.append("it was built")
        except CapabilityError as error:
            answers.append(str(error))
    return answers


@BOTH
def test_a_required_sysctl_that_cannot_be_written_is_a_capability(ordinary: bool) -> None:
    unknown, read_only = sandboxed(sysctls_that_cannot_be_written, ordinary=ordinary)
    assert f"{UNKNOWN}: the value '1' could not be written in node-a (No such file or directory)" in unknown
    assert f"{READ_ONLY}: the value '1' could not be written in the kernel" in read_only  # all namespaces share it


async def a_sysctl_that_may_be_absent(_: Launcher) -> str:
    plan = small_plan()
    odd = replace(plan.namespaces[1], sysctls=(Sysctl("net.ipv4.no_such_thing", "1", required=False),))
    with realise(replace(plan, namespaces=(plan.namespaces[0], odd, *plan.namespaces[2:]))):
        return "it was built"


def test_a_sysctl_that_is_not_required_may_be_absent() -> None:
    assert sandboxed(a_sysctl_that_may_be_absent) == "it was built"


async def a_route_to_nowhere(_: Launcher) -> str:
    plan = small_plan()
    lost = Route(IPv4Network("192.0.2.0/24"), "eth0", IPv4Address("198.51.100.1"))
    odd = replace(plan.namespaces[1], routes=(*plan.namespaces[1].routes, lost))
    try:
        with realise(replace(plan, namespaces=(plan.namespaces[0], odd, *plan.namespaces[2:]))):
            return "it was built"
    except InternalError as error:
        return str(error)


def test_what_the_kernel_refuses_is_named_with_the_kernel_s_own_words() -> None:
    words = sandboxed(a_route_to_nowhere)
    assert "node-a: the kernel refused to add the route 192.0.2.0/24 via 198.51.100.1 on eth0: ENETUNREACH" in words
    assert "Nexthop has invalid gateway" in words


async def plans_that_contradict_themselves(_: Launcher) -> dict[str, str]:
    found = {}
    for name, changes in {
        "a route by no device": {"routes": (Route(IPv4Network("192.0.2.0/24"), "eth9"),)},
        "a sysctl of the machine": {"sysctls": (Sysctl("kernel.hostname", "x"),)},
        "an address twice": {"addresses": small_plan().namespaces[1].addresses * 2},
    }.items():
        plan = small_plan()
        odd = replace(plan.namespaces[1], **changes)
        try:
            with realise(replace(plan, namespaces=(plan.namespaces[0], odd, *plan.namespaces[2:]))):
                found[name] = "it was built"
        except InternalError as error:
            found[name] = str(error)
    return found


def test_a_plan_that_contradicts_itself_is_refused_by_name() -> None:
    found = sandboxed(plans_that_contradict_themselves)
    assert "the plan names node-a/eth9, which it does not make" in found["a route by no device"]
    assert "node-a: kernel.hostname is not a sysctl of a network namespace" in found["a sysctl of the machine"]
    assert "node-a: the kernel refused to" in found["an address twice"]
    assert "EEXIST" in found["an address twice"]
