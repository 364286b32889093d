"""The embedded engine's work on a real node besides rules: UDP flows, sysctls, HTTP servers, the canary."""

import asyncio
import json
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

import pytest
from msgspec.structs import replace
from rule_cases import HERE, LOCAL_OUTSIDE, Addresses, echo, endpoint, load_balancer, node_port, slice_of
from sandboxed import sandboxed

from proxylab.addresses import Family, Protocol
from proxylab.cluster.configuration import ConntrackTimeouts, ProxyConfiguration, SocketAddress
from proxylab.cluster.objects import Node, ServicePort
from proxylab.cluster.store import Store
from proxylab.control.apiserver import ApiServer
from proxylab.engines.barrier import Barrier
from proxylab.engines.catalogue import make_engine
from proxylab.engines.context import Cluster, NodeContext
from proxylab.engines.protocol import Engine, EngineChoice
from proxylab.kernel.netfilter.iptables_tool import IptablesTool, choose_iptables
from proxylab.kernel.netfilter.nfacct import ensure_counters
from proxylab.kernel.netfilter.nft_tables import delete_table
from proxylab.kernel.netlink.addresses_answer import read_addresses
from proxylab.kernel.netlink.conntrack import Conntrack
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import NetNs, inside, make_netns
from proxylab.kernel.sandbox.sysctl import read_sysctl
from proxylab.timing import Deadline, wait_until

A = Addresses(Family.IPV4)
PORTS = (ServicePort(name="dns", protocol=Protocol.UDP, port=53, target_port=5353),)
DNS = echo(A, name="dns", ports=PORTS)
FRONT = (str(A.of("cluster", 20)), 53)
ENDS = tuple(str(A.of("pod", number)) for number in (10, 11))


@dataclass
class Stage:
    netns: NetNs
    store: Store
    engine: Engine
    tool: IptablesTool

    async def apply(self, *things: Any) -> None:
        for thing in things:
            self.store.apply(thing)
        await self.engine.wait_synced(self.store.revision, Deadline.after(10))


@asynccontextmanager
async def staged(
    launcher: Launcher, name: str = "embedded/iptables", before: str = "", **configuration: Any
) -> AsyncIterator[Stage]:
    """A node that is its own network: its loopback device has the pods' addresses.

    ``before`` is a shell command there before the engine starts.
    """
    netns = make_netns(HERE)
    commands = (
        "ip link set lo up; ip route add 10.96.0.0/16 dev lo; for a in 10 11; do ip addr add 10.42.0.$a/32 dev lo; done"
    )
    script = f"{commands}; {before}" if before else commands
    done = await launcher.run(netns, ["sh", "-ec", script], netns_name="t", deadline=Deadline.after(10))
    assert done.status == 0, done.stderr
    tool = IptablesTool(launcher, netns, "t", await choose_iptables(launcher))
    store = Store()
    store.apply(Node(name=HERE, addresses=(A.of("pod", 10),)))
    choice = EngineChoice(name, configuration=ProxyConfiguration(min_sync_period=0.01, **configuration))
    cluster = Cluster(store, ApiServer(store), Barrier(store, choice.families))
    engine = make_engine(choice, HERE, NodeContext(netns, launcher, "t", tool), cluster)
    await engine.start()
    try:
        yield Stage(netns, store, engine, tool)
    finally:
        await engine.stop()
        launcher.forget(["t"])
        netns.close()


def udp_socket(netns: NetNs) -> socket.socket:
    with inside(netns):
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setblocking(False)
    return made


async def heard(client: socket.socket, pods: dict[str, socket.socket]) -> str:
    """The pod that gets the client's next datagram."""
    client.send(b"?")
    waiting = {asyncio.ensure_future(asyncio.get_running_loop().sock_recv(pod, 9)): ip for ip, pod in pods.items()}
    done, pending = await asyncio.wait(waiting, timeout=2, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    return waiting[done.pop()] if done else "none"


def tracked(netns: NetNs) -> list[str]:
    """The pods that answer flows to the Service's frontend."""
    table = Conntrack(netns)
    try:
        flows = table.entries(Family.IPV4, Protocol.UDP.number)
    finally:
        table.close()
    return [str(flow.reply_source[0]) for flow in flows if flow.destination == (A.of("cluster", 20), 53)]


async def udp_story(launcher: Launcher) -> dict[str, Any]:
    async with staged(launcher) as stage:
        pods = {}
        for ip in ENDS:
            pods[ip] = udp_socket(stage.netns)
            pods[ip].bind((ip, 5353))
        first, second = (slice_of(DNS, A, endpoint(A, number)) for number in (10, 11))
        await stage.apply(DNS, first)
        client = udp_socket(stage.netns)
        client.connect(FRONT)
        said: dict[str, Any] = {"at first": await heard(client, pods), "tracked": tracked(stage.netns)}
        await stage.apply(second)
        said["forgotten"] = tracked(stage.netns)
        said["moved"] = await heard(client, pods)
        await stage.apply(replace(second, endpoints=()))
        said["without endpoint"] = tracked(stage.netns)
        await stage.apply(second)
        said["back"] = await heard(client, pods)
        stage.store.delete(DNS.key)
        await stage.apply()
        said["without Service"] = tracked(stage.netns)
        return said


def test_a_udp_flow_follows_its_service() -> None:
    assert sandboxed(udp_story) == {
        "at first": ENDS[0],
        "tracked": [ENDS[0]],
        "forgotten": [],
        "moved": ENDS[1],
        "without endpoint": [],
        "back": ENDS[1],
        "without Service": [],
    }


async def udp_story_of_1_34(launcher: Launcher) -> dict[str, Any]:
    async with staged(launcher, "embedded@v1.34/iptables") as stage:
        pods = {}
        for ip in ENDS:
            pods[ip] = udp_socket(stage.netns)
            pods[ip].bind((ip, 5353))
        first, second = (slice_of(DNS, A, endpoint(A, number)) for number in (10, 11))
        await stage.apply(DNS, first)
        client = udp_socket(stage.netns)
        client.connect(FRONT)
        said: dict[str, Any] = {"at first": await heard(client, pods)}
        await stage.apply(replace(first, endpoints=()))
        said["without endpoint"] = await heard(client, pods)
        await stage.apply(second)
        said["another endpoint"] = await heard(client, pods)
        stage.store.delete(DNS.key)
        await stage.apply()
        said["without Service"] = await heard(client, pods)
        return said


def test_up_to_1_36_a_udp_flow_outlives_its_last_endpoint_and_its_service() -> None:
    assert sandboxed(udp_story_of_1_34) == {
        "at first": ENDS[0],
        "without endpoint": ENDS[0],
        "another endpoint": ENDS[1],
        "without Service": ENDS[1],
    }


async def get(netns: NetNs, port: int, path: str, host: str = "127.0.0.1") -> tuple[int, dict[str, str], str]:
    with inside(netns):
        opened = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    opened.setblocking(False)
    await asyncio.get_running_loop().sock_connect(opened, (host, port))
    reader, writer = await asyncio.open_connection(sock=opened)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    status, *lines = head.split("\r\n")
    return int(status.split()[1]), dict(line.lower().split(": ", 1) for line in lines), body


NODES = {
    "eligible": Node(name=HERE, addresses=(A.of("pod", 10),)),
    "about to go": Node(name=HERE, addresses=(A.of("pod", 10),), taints=("ToBeDeletedByClusterAutoscaler",)),
    "being deleted": Node(name=HERE, addresses=(A.of("pod", 10),), deleting=True),
    "tainted otherwise": Node(name=HERE, addresses=(A.of("pod", 10),), taints=("node.kubernetes.io/unreachable",)),
}


async def http_story(launcher: Launcher) -> dict[str, Any]:
    async with staged(launcher) as stage:
        balanced = load_balancer(A, **LOCAL_OUTSIDE, health_check_node_port=30999)
        ends = (endpoint(A, 10), endpoint(A, 11, ready=False, terminating=True), endpoint(A, 12, "node-b"))
        await stage.apply(balanced, slice_of(balanced, A, *ends))
        said: dict[str, Any] = {}
        status, headers, body = await get(stage.netns, 30999, "/anything")
        said["one here"] = [status, headers["x-load-balancing-endpoint-weight"], json.loads(body)]
        await stage.apply(slice_of(balanced, A, ends[2]))
        status, headers, body = await get(stage.netns, 30999, "/")
        said["none here"] = [status, headers["x-load-balancing-endpoint-weight"], json.loads(body)["localEndpoints"]]
        stage.store.delete(balanced.key)
        await stage.apply()
        try:
            await get(stage.netns, 30999, "/")
        except ConnectionRefusedError:
            said["without Service"] = "refused"
        for name, node in NODES.items():
            await stage.apply(node)
            status, _, body = await get(stage.netns, 10256, "/healthz")
            live, _, alive = await get(stage.netns, 10256, "/livez")
            said[name] = [status, json.loads(body)["nodeEligible"], live, "nodeEligible" in json.loads(alive)]
        said["another path"] = (await get(stage.netns, 10256, "/x"))[0]
        said["over IPv6, at 0.0.0.0"] = (await get(stage.netns, 10256, "/livez", "::1"))[0]
        said["mode"] = (await get(stage.netns, 10249, "/proxyMode"))[2]
        said["metrics"] = (
            "kubeproxy_sync_proxy_rules_last_timestamp_seconds" in ((await get(stage.netns, 10249, "/metrics"))[2])
        )
        return said


def test_the_nodes_servers_answer_as_kube_proxys() -> None:
    service = {"namespace": "default", "name": "echo"}
    assert sandboxed(http_story) == {
        "one here": [200, "1", {"service": service, "localEndpoints": 1, "serviceProxyHealthy": True}],
        "none here": [503, "0", 0],
        "without Service": "refused",
        "eligible": [200, True, 200, False],
        "about to go": [503, False, 200, False],
        "being deleted": [503, False, 200, False],
        "tainted otherwise": [200, True, 200, False],
        "another path": 404,
        "over IPv6, at 0.0.0.0": 200,
        "mode": "iptables",
        "metrics": True,
    }


async def node_story(launcher: Launcher) -> dict[str, Any]:
    timeouts = ConntrackTimeouts(tcp_established=77, tcp_close_wait=0, udp=5)
    async with staged(launcher, conntrack=timeouts, sync_period=0.2) as stage:
        prefix = "net.netfilter.nf_conntrack_"
        names = ["tcp_timeout_established", "udp_timeout"]
        said: dict[str, Any] = {name: read_sysctl(stage.netns, prefix + name) for name in names}
        said["route_localnet"] = read_sysctl(stage.netns, "net.ipv4.conf.all.route_localnet")
        said["nothing of that name"] = read_sysctl(stage.netns, "net.ipv4.no_such_thing")
        said["addresses"] = sorted(map(str, read_addresses(stage.netns)))
        before = stage.engine.logs()
        flush = "*nat\nCOMMIT\n*filter\nCOMMIT\n*mangle\nCOMMIT\n"
        tool = (await choose_iptables(launcher)).command(Family.IPV4, "restore")
        await launcher.run(stage.netns, [tool], netns_name="t", stdin=flush.encode(), deadline=Deadline.after(10))

        def mended() -> bool:
            return any("full sync" in line for line in stage.engine.logs()[len(before) :])

        await wait_until(mended, Deadline.after(10), "the rules to stand again")
        said["mended"] = "-A KUBE-FORWARD" in await stage.engine.dump()
        return said


@pytest.mark.parametrize("ordinary", [False, True], ids=["as we are", "as an ordinary user"])
def test_sysctls_are_written_and_a_flush_is_mended(ordinary: bool) -> None:
    assert sandboxed(node_story, ordinary=ordinary) == {
        "tcp_timeout_established": "77",
        "udp_timeout": "5",
        "route_localnet": "1",
        "nothing of that name": None,
        "addresses": ["10.42.0.10", "10.42.0.11", "127.0.0.1", "::1"],
        "mended": True,
    }


async def places_story(launcher: Launcher) -> dict[str, Any]:
    addresses = {
        "healthz": SocketAddress(ip_address("::"), 10256),
        "metrics": SocketAddress(A.of("pod", 11), 9999),
        "bind_address": A.of("pod", 11),
    }
    async with staged(launcher, node_port_primary=True, **addresses) as stage:
        said: dict[str, Any] = {"healthz": [(await get(stage.netns, 10256, "/livez", host))[0] for host in LOOPBACKS]}
        said["metrics"] = (await get(stage.netns, 9999, "/metrics", str(A.of("pod", 11))))[0]
        try:
            await get(stage.netns, 9999, "/metrics")
        except ConnectionRefusedError:
            said["elsewhere"] = "refused"
        said["node ports"] = "-d 10.42.0.11/32" in await stage.engine.dump()
        return said


LOOPBACKS = ("127.0.0.1", "::1")


def test_servers_listen_where_the_configuration_says() -> None:
    assert sandboxed(places_story) == {
        "healthz": [200, 200],
        "metrics": 200,
        "elsewhere": "refused",
        "node ports": True,
    }


# As a proxy in mode nftables, one in mode ipvs, and another program would leave it.
LEFT = """
nft add table ip kube-proxy
nft add chain ip kube-proxy services
nft add chain ip kube-proxy nat-prerouting '{ type nat hook prerouting priority dstnat; }'
nft add rule ip kube-proxy nat-prerouting jump services
nft add table ip mine
iptables-nft -t filter -N KUBE-NODE-PORT
iptables-nft -t filter -A INPUT -j KUBE-NODE-PORT
"""


async def left_story(launcher: Launcher) -> dict[str, Any]:
    async with staged(launcher, before=LEFT) as stage:

        async def tables() -> list[str]:
            argv = ["nft", "list", "tables"]
            done = await launcher.run(stage.netns, argv, netns_name="t", deadline=Deadline.after(10))
            return [line for line in done.stdout.decode().splitlines() if line.split()[-1] in ("kube-proxy", "mine")]

        said: dict[str, Any] = {"tables": await tables(), "log": stage.engine.logs()[0]}
        again = delete_table(stage.netns, Family.IPV4, "kube-proxy")
        return {**said, "again": again}


@pytest.mark.skipif(
    shutil.which("nft") is None, reason="needs nft, to lay out what a proxy has left; 'apt-get install nftables'"
)
@pytest.mark.parametrize("ordinary", [False, True], ids=["as we are", "as an ordinary user"])
def test_at_its_start_a_proxy_removes_what_mode_nftables_left(ordinary: bool) -> None:
    assert sandboxed(left_story, ordinary=ordinary) == {
        "tables": ["table ip mine"],
        "log": "IPv4: removed the rules of a proxy in mode nftables",
        "again": False,
    }


async def counter_story(launcher: Launcher) -> dict[str, Any]:
    async with staged(launcher) as stage:
        service = node_port(A)
        await stage.apply(service, slice_of(service, A, endpoint(A, 10)))
        saved = (await stage.engine.dump()).replace("  ", " ")  # as iptables-save prints this match
        return {
            "there": ensure_counters(stage.netns, ("localhost_nps_accepted_pkts",)),
            "invalid": "--nfacct-name ct_state_invalid_dropped_pkts -j DROP" in saved,
            "localhost": saved.count("--nfacct-name localhost_nps_accepted_pkts"),
        }


def test_where_the_kernel_has_counters_rules_count_into_them() -> None:
    said = sandboxed(counter_story)
    if not said["there"]:
        pytest.skip("needs nfacct; as root: 'modprobe -a xt_nfacct nfnetlink_acct'")
    assert said == {"there": True, "invalid": True, "localhost": 1}
