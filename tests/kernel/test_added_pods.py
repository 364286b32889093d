"""A pod that is added to a lab that stands has a network and answers; one that has ended leaves nothing."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from sandboxed import sandboxed
from scenario_cases import DUAL, host, node, pods, scenario
from users import EITHER

from proxylab.cluster.objects import Node, Service, ServicePort
from proxylab.cluster.store import Store
from proxylab.control.http_client import fetch
from proxylab.control.kubernetes.kubelet import CannotRunError
from proxylab.kernel.netlink.build import Wiring, realise
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import make_netns
from proxylab.plan.topology import draw
from proxylab.scenario.model import Scenario
from proxylab.server.added_pods import AddedPods
from proxylab.timing import Deadline
from proxylab.traffic.responder import Responders
from proxylab.traffic.runner import Runner
from proxylab.traffic.watch import Watch

SECONDS = 10.0


def cluster(**network: Any) -> Scenario:
    here = [node("node-a"), node("node-b")]
    return scenario(here, [pods("client", "node-a")], [host("outside")], network={**DUAL, **network})


def document(name: str, node_name: str, namespace: str = "default", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": namespace, "name": name, "labels": {"app": "shop"}},
        "spec": {"nodeName": node_name, "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 8080}]}]}
        | spec,
    }


@contextmanager
def added_pods(drawn: Scenario, wiring: Wiring, store: Store) -> Iterator[tuple[AddedPods, Runner]]:
    networks = {
        "node-a": [each.subnets(new_prefix=24 if each.version == 4 else 64) for each in drawn.network.pod_cidrs],
    }
    first = {name: [next(each) for each in subnets] for name, subnets in networks.items()}
    first["node-b"] = [next(each) for each in networks["node-a"]]
    with (
        closing(Watch(wiring.namespaces, wiring.plan)) as watch,
        closing(Responders(wiring.namespaces, wiring.plan)) as responders,
        closing(Runner(wiring.namespaces, wiring.plan, watch, responders, {})) as runner,
    ):
        responders.attach(asyncio.get_running_loop())
        nodes = {
            name: Node(name=name, addresses=wiring.plan.addresses_by_name[name], pod_cidrs=tuple(each))
            for name, each in first.items()
        }
        yield AddedPods(wiring, drawn.network.families, nodes, store, make_netns, runner), runner


async def devices(launcher: Launcher, wiring: Wiring) -> list[str]:
    done = await launcher.run(
        wiring.namespaces["node-b"], ["ip", "-j", "link"], netns_name="node-b", deadline=Deadline.after(SECONDS)
    )
    return sorted(each["ifname"] for each in json.loads(done.stdout))


async def come_and_go(launcher: Launcher) -> dict[str, Any]:
    drawn, store = cluster(), Store()
    selecting = ServicePort(port=80, target_port=9090)
    store.apply(Service(name="shop", selector={"app": "shop"}, ports=(selecting,)))
    with realise(draw(drawn)) as wiring, added_pods(drawn, wiring, store) as (adding, runner):
        before = await devices(launcher, wiring)
        running = [await adding.run(document(f"shop-{number}", "node-b")) for number in range(20)]
        heard = {}
        for sender in ("client", "outside", "node-b", "node-a"):
            for port in (8080, 9090):
                for address in running[7].addresses:
                    _, body = await fetch(wiring.namespaces[sender], address, port, "/", Deadline.after(SECONDS))
                    heard[f"{sender} {port} {address.version}"] = json.loads(body)["pod"]
        between = await devices(launcher, wiring)
        first = running[0].addresses
        for each in running:
            await each.end()
        planned = len(runner.plan.pods)
        again = await adding.run(document("again", "node-b"))
        twin = await adding.run(document("again", "node-a", namespace="team"))
        same = again.addresses == first
        names = [each.name for each in runner.plan.pods]
        for each in (again, twin):
            await each.end()
        return {
            "planned": planned,
            "names": names,
            "heard": heard,
            "new": len(between) - len(before),
            "left": sorted(set(await devices(launcher, wiring)) - set(before)),
            "same": same,
        }


@EITHER
def test_pods_come_are_reached_by_everyone_and_go(ordinary: bool) -> None:
    found = sandboxed(come_and_go, ordinary=ordinary)
    assert found["heard"] == {
        f"{sender} {port} {version}": "shop-7"
        for sender in ("client", "outside", "node-a", "node-b")
        for port in (8080, 9090)
        for version in (4, 6)
    }
    assert (found["new"], found["left"], found["same"]) == (20, [], True)
    assert (found["planned"], found["names"]) == (1, ["client", "again", "again.team"])


async def on_the_host_network(_launcher: Launcher) -> dict[str, Any]:
    drawn = cluster(pod_network="bridge")
    with realise(draw(drawn)) as wiring, added_pods(drawn, wiring, Store()) as (adding, runner):

        async def answer(port: int) -> list[str]:
            heard = []
            for sender in ("client", "outside", "node-a", "node-b"):
                for address in running.addresses:
                    try:
                        _, body = await fetch(wiring.namespaces[sender], address, port, "/", Deadline.after(SECONDS))
                    except ConnectionRefusedError:
                        heard.append("refused")
                    else:
                        heard.append(json.loads(body)["pod"])
            return heard

        running = await adding.run(document("shop", "node-b", hostNetwork=True))
        other = document("other", "node-b", hostNetwork=True)
        other["spec"]["containers"][0]["ports"] = [{"containerPort": 8081}]
        await adding.run(other)
        first = await answer(8080)
        try:
            await adding.run(document("third", "node-b", hostNetwork=True))
            taken = ""
        except CannotRunError as error:
            taken = str(error)
        planned = sorted(each.name for each in runner.plan.pods)
        await running.end()
        return {
            "addresses": list(map(str, running.addresses)),
            "node": list(map(str, wiring.plan.addresses_by_name["node-b"])),
            "first": first,
            "taken": taken,
            "planned": planned,
            "ended": await answer(8080),
            "beside": await answer(8081),
            "left": [each.name for each in runner.plan.pods],
            "again": (await adding.run(document("shop", "node-b", hostNetwork=True))).name,
        }


@EITHER
def test_one_on_the_host_network_answers_at_its_node_s_address_on_any_pod_network(ordinary: bool) -> None:
    found = sandboxed(on_the_host_network, ordinary=ordinary)
    assert set(found["addresses"]) <= set(found["node"])
    assert found["first"] == ["shop"] * 8
    assert "another program listens" in found["taken"]
    assert "node-b TCP 8080" in found["taken"]
    assert found["planned"] == ["client", "other", "shop"]
    assert found["ended"] == ["refused"] * 8
    assert found["beside"] == ["other"] * 8
    assert (found["left"], found["again"]) == (["client", "other"], "shop")


async def refusals(_launcher: Launcher) -> list[str]:
    said = []
    drawn = cluster(pod_network="bridge")
    with realise(draw(drawn)) as wiring, added_pods(drawn, wiring, Store()) as (adding, _):
        try:
            await adding.run(document("shop", "node-a"))
        except CannotRunError as error:
            said.append(str(error))
    return said


def test_what_a_lab_cannot_add_is_refused_in_words() -> None:
    assert sandboxed(refusals) == ["a lab adds pods in podNetwork ptp only, or on the host network"]
