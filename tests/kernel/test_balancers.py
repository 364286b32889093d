"""Load balancers on the kernel: the node to which the router sends an address, by the nodes' health answers."""

import contextlib
import json
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from network_scenarios import balanced
from sandboxed import sandboxed
from shared_sessions import shared_session
from users import EITHER

from proxylab.cluster.objects import EXCLUDED_LABEL, LoadBalancerIngress, Node, Service, ServiceType
from proxylab.cluster.store import Store
from proxylab.control.balancers import BalancerRoutes
from proxylab.control.http_server import HttpResponse, HttpServer, listen_inside
from proxylab.errors import ProgramError
from proxylab.kernel.netlink.build import Wiring, realise
from proxylab.kernel.netlink.policy_routes import PolicyRoutes
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import inside
from proxylab.plan.resolved import PolicyRoute
from proxylab.plan.topology import draw
from proxylab.scenario.load import parse_scenario
from proxylab.timing import Deadline

PORT = 30900
ADDRESSES = ("192.0.2.1", "2001:db8:192::1")
NEIGHBOURS = {"172.18.0.2": "a", "fd00:172:18::2": "a", "172.18.0.3": "b", "fd00:172:18::3": "b"}

SERVICE = Service(
    name="web",
    type=ServiceType.LOAD_BALANCER,
    health_check_node_port=PORT,
    load_balancer_ingress=tuple(LoadBalancerIngress(ip=ip_address(address)) for address in ADDRESSES),
)


class Daemons:
    """An HTTP daemon in each node, on all addresses, with given answers."""

    def __init__(self) -> None:
        self.status = {"node-a": 200, "node-b": 200}

    async def open(self, wiring: Wiring, stack: AsyncExitStack) -> None:
        for node in self.status:
            for everywhere in ("0.0.0.0", "::"):
                listening = listen_inside(wiring.namespaces[node], ip_address(everywhere), PORT)
                server = HttpServer(listening, partial(self._answer, node))
                stack.push_async_callback(server.close)

    def _answer(self, node: str, _path: str) -> HttpResponse:
        return HttpResponse(self.status[node])


async def ways(launcher: Launcher, wiring: Wiring, *addresses: str) -> list[str]:
    """The nodes to which the router sends each address: ``ab``, ``a``, ``b``, or its refusal."""
    found = []
    for address in addresses:
        length = 32 if ip_address(address).version == 4 else 128
        argv = ["ip", "-json", "route", "show", "to", "match", f"{address}/{length}", "table", "main"]
        if length == 128:
            argv.insert(1, "-6")
        done = await launcher.run(wiring.namespaces["router"], argv, netns_name="router", deadline=Deadline.after(10))
        assert done.status == 0, done.stderr
        best = max(
            (route for route in json.loads(done.stdout) if route["dst"] != "default"),
            key=lambda route: ip_network(route["dst"]).prefixlen,
        )
        hops = best.get("nexthops") or [best]
        found.append(best.get("type", "") or "".join(NEIGHBOURS[hop["gateway"]] for hop in hops))
    return found


async def followed(launcher: Launcher) -> dict[str, Any]:
    found: dict[str, Any] = {}
    async with AsyncExitStack() as stack:
        wiring = stack.enter_context(realise(draw(balanced())))
        daemons, store = Daemons(), Store()
        look = partial(ways, launcher, wiring, *ADDRESSES)
        checks = checks_of(wiring, store)
        stack.push_async_callback(checks.close)
        await checks.start()
        found["no Service"] = await look()
        store.apply(SERVICE)
        await checks.settle()
        found["no socket listens"] = await look()
        await daemons.open(wiring, stack)
        for healthy in ("ab", "b", "ab", "a", "", "b", "", "ab"):
            for node in daemons.status:
                daemons.status[node] = 200 if node[-1] in healthy else 503
            await checks.settle()
            found.setdefault("by answers", []).append([healthy, *await look()])
        found["neither by default"] = await ways(launcher, wiring, "192.0.2.2", "192.0.2.33", "2001:db8:193::1")
        store.delete(SERVICE.key)
        await checks.settle()
        found["Service gone"] = await look()
    return found


def checks_of(wiring: Wiring, store: Store) -> BalancerRoutes:
    indexes = {"nodes": wiring.plan.end("router", "nodes").index}
    router, planned = wiring.namespaces["router"], wiring.plan.namespace("router").routes
    for node in {*NEIGHBOURS.values()}:
        store.apply(Node(name=f"node-{node}"))
    return BalancerRoutes(router, wiring.routes["router"], indexes, wiring.plan.balancers, planned, store)


@EITHER
def test_the_route_of_an_address_follows_what_nodes_answer(ordinary: bool) -> None:
    found = sandboxed(followed, ordinary=ordinary)
    assert found["no Service"] == found["Service gone"] == ["ab", "ab"], "the pool goes to all of the balancer's nodes"
    assert found["no socket listens"] == ["unreachable", "unreachable"]
    for healthy, *routes in found["by answers"]:
        assert routes == [healthy or "unreachable"] * 2
    assert found["neither by default"] == ["ab", "ab", "ab"], "other addresses, and other balancers, stay as they are"


async def labelled(launcher: Launcher) -> dict[str, list[str]]:
    """Where the router sends addresses of a pool, and one that is checked, while labels of nodes change."""
    found: dict[str, list[str]] = {}
    async with AsyncExitStack() as stack:
        wiring = stack.enter_context(realise(draw(balanced())))
        daemons, store = Daemons(), Store()
        await daemons.open(wiring, stack)
        look = partial(ways, launcher, wiring, ADDRESSES[0], "192.0.2.2", "192.0.2.33", "2001:db8:193::1")
        routes = checks_of(wiring, store)
        await routes.start()
        store.apply(SERVICE)
        for excluded in ("", "a", "ab", "b", ""):
            for name in "ab":
                store.apply(Node(name=f"node-{name}", labels={EXCLUDED_LABEL: ""} if name in excluded else {}))
            await routes.settle()
            found[f"{len(found)} {excluded}"] = await look()
        store.apply(Node(name="node-a", labels={EXCLUDED_LABEL: "true"}))
        deadline = Deadline.after(10)
        while (await look())[0] != "b":
            assert not deadline.passed, "the loop follows a label by itself"
        await routes.close()
        found["closed"] = await look()
    return found


@EITHER
def test_a_balancer_leaves_out_nodes_while_a_label_excludes_them(ordinary: bool) -> None:
    found = sandboxed(labelled, ordinary=ordinary)
    assert found == {
        "0 ": ["ab"] * 4,
        "1 a": ["b"] * 4,
        "2 ab": ["unreachable"] * 4,
        "3 b": ["a"] * 4,
        "4 ": ["ab"] * 4,
        "closed": ["ab"] * 4,
    }


async def followed_unasked(launcher: Launcher) -> list[list[str]]:
    """What the router does after an answer has changed, without a requested round."""
    found = []
    async with AsyncExitStack() as stack:
        wiring = stack.enter_context(realise(draw(balanced())))
        daemons, store = Daemons(), Store()
        await daemons.open(wiring, stack)
        store.apply(SERVICE)
        checks = checks_of(wiring, store)
        stack.push_async_callback(checks.close)
        await checks.start()
        found.append(await ways(launcher, wiring, ADDRESSES[0]))
        daemons.status["node-a"] = 503
        deadline = Deadline.after(10)
        while (way := await ways(launcher, wiring, ADDRESSES[0])) != ["b"]:
            assert not deadline.passed, f"the router still sends to {way}"
        found.append(way)
    return found


@EITHER
def test_a_standing_balancer_notices_by_itself(ordinary: bool) -> None:
    assert sandboxed(followed_unasked, ordinary=ordinary) == [["ab"], ["b"]]


async def shared(_: Launcher) -> dict[str, Any]:
    """How many flows of one client to a balanced address each node gets, and the flows that reached both."""
    found = {}
    with realise(draw(balanced())) as wiring:
        for address in ("192.0.2.33", "2001:db8:193::1"):
            with contextlib.ExitStack() as opened:
                nodes = {name: opened.enter_context(datagrams(wiring, name, address)) for name in ("node-a", "node-b")}
                for number in range(100):
                    with made(wiring, "client", address) as out:
                        for _ in range(2):
                            out.sendto(str(number).encode(), (address, 4000))
                arrived = {name: list(heard(sock)) for name, sock in nodes.items()}
            torn = set(arrived["node-a"]) & set(arrived["node-b"])
            found[address] = [len(arrived["node-a"]), len(arrived["node-b"]), len(torn)]
    return found


def made(wiring: Wiring, netns_name: str, address: str) -> socket.socket:
    family = socket.AF_INET if ip_address(address).version == 4 else socket.AF_INET6
    with inside(wiring.namespaces[netns_name]):
        return socket.socket(family, socket.SOCK_DGRAM)


def datagrams(wiring: Wiring, node: str, address: str) -> socket.socket:
    sock = made(wiring, node, address)
    sock.bind((address, 4000))
    sock.setblocking(False)
    return sock


def heard(sock: socket.socket) -> Iterator[bytes]:
    with contextlib.suppress(BlockingIOError):
        while True:
            yield sock.recv(100)


@EITHER
def test_nodes_share_a_balanced_address_by_flow_in_both_families(ordinary: bool) -> None:
    for to_a, to_b, torn in sandboxed(shared, ordinary=ordinary).values():
        assert to_a + to_b == 200
        assert min(to_a, to_b) > 40, "the router hashes on ports, so flows of one client are shared"
        assert torn == 0, "all packets of a flow take one way"


async def detoured(launcher: Launcher) -> list[list[str]]:
    found = []
    with realise(draw(balanced())) as wiring:
        policy_routes = PolicyRoutes(wiring)
        for via in ("172.18.0.4", None, "172.18.0.2"):
            policy_routes.install(None if via is None else policy_route(via))
            argv = ["ip", "-json", "route", "get", "192.0.2.33"]
            done = await launcher.run(
                wiring.namespaces["router"], argv, netns_name="router", deadline=Deadline.after(10)
            )
            found.append([json.loads(done.stdout)[0]["gateway"], *await ways(launcher, wiring, "192.0.2.33")])
    return found


def policy_route(via: str) -> PolicyRoute:
    return PolicyRoute(namespace="router", destination=ip_network("192.0.2.33/32"), device="nodes", via=ip_address(via))


@EITHER
def test_a_detour_covers_the_balancers_route_and_leaves_it_as_it_was(ordinary: bool) -> None:
    (first, *main), (second, *_), (third, *again) = sandboxed(detoured, ordinary=ordinary)
    assert (first, third) == ("172.18.0.4", "172.18.0.2")
    assert second in ("172.18.0.2", "172.18.0.3"), "without a detour, the balancer's own nodes"
    assert main == again == ["ab"]


IN_VAIN = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: in-vain}
spec:
  nodes: {node-a: {}, node-b: {}}
  pods: {web: {labels: {app: web}, ports: [8080]}, client: {}}
  loadBalancers: {edge: {pool: [192.0.2.0/28]}}
  steps:
  - name: nothing changes
    change: {}
    until: {balancers: {edge: [node-b]}, within: 1s}
    probes:
    - name: never sent
      from: client
      to: {service: web, via: clusterIP}
      expect: {outcome: delivered, source: preserved}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: LoadBalancer, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
"""


def test_a_step_that_waits_in_vain_names_the_balancer_and_the_line() -> None:
    scenario = parse_scenario(IN_VAIN, "in-vain.lab.yaml")
    (step,) = scenario.steps
    with shared_session() as session:
        lab = session.open(scenario, source=IN_VAIN)
        with pytest.raises(ProgramError) as raised:
            lab.probe(step.probes[0])
    assert str(raised.value) == (
        "in-vain.lab.yaml:11:5: step 'nothing changes': gave up waiting: load balancer edge sends to node-b, and to no "
        "other node; it sends to node-a and node-b"
    )
