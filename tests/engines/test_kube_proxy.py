"""The real kube-proxy in a node: what it programs, how it is waited for, and how its end is told."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from rule_cases import HERE, Addresses, echo, endpoint, slice_of
from sandboxed import sandboxed
from staged_engines import staged
from users import EITHER

from proxylab.addresses import Family
from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.cluster.objects import ClusterEvent, Service, ServicePort, ServiceType
from proxylab.engines.barrier import BARRIER
from proxylab.engines.engine_names import mode_of
from proxylab.engines.modes import MODES
from proxylab.errors import EngineError
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.timing import Deadline

A = Addresses(Family.IPV4)
ECHO = echo(A)
ENDS = slice_of(ECHO, A, endpoint(A, 10))


async def story(launcher: Launcher, engine: str) -> dict[str, Any]:
    async with staged(launcher, engine) as stage:
        said: dict[str, Any] = {"at first": "default/echo" in await stage.synced()}
        stage.store.apply(ECHO)
        stage.store.apply(ENDS)
        dump = await stage.synced()
        said["programmed"] = "default/echo" in dump
        said["barrier"] = BARRIER in dump
        said["hidden"] = BARRIER in MODES[mode_of(engine)].without_barrier(dump)
        stage.store.delete(ECHO.key)
        # Mode nftables keeps the chains of what is gone for a while, but no rule jumps to them.
        said["forgotten"] = str(ECHO.cluster_ips[0]) not in await stage.synced()
        events = [event for event in stage.store.list(ClusterEvent) if event.reason == "Starting"]
        said["events"] = [event.reporter for event in events]
        said["log"] = any("SyncProxyRules complete" in line for line in stage.engine.logs())
        return said


async def iptables_story(launcher: Launcher) -> dict[str, Any]:
    return await story(launcher, "kube-proxy/iptables")


async def nftables_story(launcher: Launcher) -> dict[str, Any]:
    return await story(launcher, "kube-proxy/nftables")


@EITHER
@pytest.mark.parametrize("telling", [iptables_story, nftables_story], ids=["iptables", "nftables"])
@pytest.mark.usefixtures("binary")
def test_it_follows_the_cluster(telling: Any, ordinary: bool) -> None:
    assert sandboxed(telling, ordinary=ordinary) == {
        "at first": False,
        "programmed": True,
        "barrier": True,
        "hidden": False,
        "forgotten": True,
        "events": ["kube-proxy"],
        "log": True,
    }


async def ends(launcher: Launcher) -> dict[str, Any]:
    said: dict[str, Any] = {}
    async with staged(launcher, "kube-proxy/iptables") as stage:
        await stage.synced()
        await launcher.run(
            stage.context.netns,
            ["sh", "-c", "kill -9 $(grep -lsx kube-proxy /proc/[0-9]*/comm | cut -d / -f 3)"],
            netns_name=stage.context.name,
            deadline=Deadline.after(10),
        )
        stage.store.apply(ECHO)
        try:
            await stage.synced()
        except EngineError as error:
            said["killed"] = [error.node, error.what, "Caches are synced" in error.log]
    async with staged(launcher, "kube-proxy/iptables", "--no-such-flag") as stage:
        try:
            await stage.synced()
        except EngineError as error:
            said["refused"] = [error.what, "unknown flag: --no-such-flag" in error.log]
    return said


@pytest.mark.usefixtures("binary")
def test_its_end_is_told_with_its_last_lines() -> None:
    assert sandboxed(ends) == {
        "killed": [HERE, "kube-proxy was killed by signal 9", True],
        "refused": ["kube-proxy ended with exit status 1", True],
    }


async def gated(launcher: Launcher) -> dict[str, Any]:
    """By lists and watches instead of streaming lists, and with a gate that there is not."""
    said: dict[str, Any] = {}
    scenario = ProxyConfiguration(feature_gates={"WatchListClient": False})
    async with staged(
        launcher, "kube-proxy/iptables", "--v=4", configuration=scenario, gates={"ContextualLogging": False}
    ) as stage:
        stage.hold(ECHO, ENDS)
        said["follows"] = "default/echo" in await stage.synced()
        told = [line for line in stage.engine.logs() if "featureGates=" in line]
        said["gates"] = [
            gate for gate in ("WatchListClient", "ContextualLogging") if any(gate in line for line in told)
        ]
    async with staged(launcher, "kube-proxy/iptables", gates={"NoSuchGate": True}) as stage:
        try:
            await stage.synced()
        except EngineError as error:
            said["refused"] = [error.what, "unrecognized feature gate: NoSuchGate" in error.log]
    return said


@pytest.mark.usefixtures("binary")
def test_feature_gates_and_flags_come_from_the_scenario_and_the_command_line() -> None:
    assert sandboxed(gated) == {
        "follows": True,
        "gates": ["WatchListClient", "ContextualLogging"],
        "refused": ["kube-proxy ended with exit status 1", True],
    }


async def bound(launcher: Launcher) -> list[list[str]]:
    """The rules that lead to node ports, by both engines."""
    node_ports = echo(A, type=ServiceType.NODE_PORT, ports=(ServicePort(port=80, target_port=8080, node_port=30080),))
    given = ProxyConfiguration(node_port_primary=True, bind_address=A.of("node", 9))
    found = []
    for engine in ("embedded/iptables", "kube-proxy/iptables"):
        async with staged(launcher, engine, configuration=given) as stage:
            # kube-proxy serves node ports on addresses that the node has.
            argv = ["ip", "address", "add", f"{given.bind_address}/32", "dev", "lo"]
            node = stage.context
            await launcher.run(node.netns, argv, netns_name=node.name, deadline=Deadline.after(10))
            stage.hold(node_ports, ENDS)
            lines = (await stage.synced()).splitlines()
            found.append([line for line in lines if "-A KUBE-SERVICES" in line and "-j KUBE-NODEPORTS" in line])
    return found


@pytest.mark.usefixtures("binary")
def test_node_ports_are_on_the_bind_address() -> None:
    by_embedded, by_kube_proxy = sandboxed(bound)
    assert f"-d {A.of('node', 9)}/32" in by_kube_proxy[0]
    assert by_kube_proxy == by_embedded


async def rejected(launcher: Launcher) -> str:
    """A map stands where kube-proxy wants a set of its own."""
    async with staged(launcher, "kube-proxy/nftables") as stage:
        await stage.synced()
        wrong = "add map ip kube-proxy cluster-ips { type ipv4_addr : verdict ; }"
        flush = ["nft", f"delete table ip kube-proxy; add table ip kube-proxy; {wrong}"]
        await launcher.run(stage.context.netns, flush, netns_name=stage.context.name, deadline=Deadline.after(10))
        stage.store.apply(ECHO)
        stage.store.apply(ENDS)
        try:
            await stage.synced()
        except EngineError as error:
            return error.what
        return "nothing"


@pytest.mark.usefixtures("binary")
def test_rules_that_cannot_be_loaded_are_told_before_the_deadline() -> None:
    what, _, said = sandboxed(rejected, seconds=60).partition(": ")
    assert what == "kube-proxy could not load its rules"
    assert "Error: " in said, "as nft says it"


async def both(launcher: Launcher) -> list[list[str]]:
    """How the rules of the two differ for each cluster that the test has drawn."""
    from proxylab.cluster.objects import KubeObject
    from proxylab.encoding import decode

    clusters = decode(Path(os.environ["TEST_CLUSTERS"]).read_bytes(), tuple[tuple[KubeObject, ...], ...])
    found: list[list[str]] = []
    mode = os.environ["TEST_MODE"]
    async with (
        staged(launcher, f"embedded/{mode}") as embedded,
        staged(launcher, f"kube-proxy/{mode}") as upstream,
    ):
        for cluster in clusters:
            for stage in (embedded, upstream):
                stage.hold(*cluster)
            dumps = await asyncio.gather(embedded.synced(), upstream.synced())
            found.append(MODES[mode].differences(*(MODES[mode].without_barrier(each) for each in dumps)))
    return found


@pytest.mark.parametrize("mode", ["iptables", "nftables"])  # those of the kube-proxy in the cache
# test_rules_of_scenarios compares dual-stack clusters, too.
@pytest.mark.parametrize("family", [Family.IPV6, pytest.param(Family.IPV4, marks=pytest.mark.thorough)], ids=str)
@pytest.mark.usefixtures("binary")
def test_both_write_the_same_rules_for_any_cluster(
    family: Family, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hypothesis import HealthCheck, Phase, given, settings
    from rule_worlds import clusters
    from thoroughness import examples

    from proxylab.cluster.objects import KubeObject
    from proxylab.encoding import encode

    drawn: list[tuple[KubeObject, ...]] = []

    @settings(max_examples=examples(10), phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(clusters(family))
    def draw(view: Any) -> None:
        drawn.append((*view.services, *view.slices))

    draw()
    file = tmp_path / "clusters"
    file.write_bytes(encode(drawn))
    monkeypatch.setenv("TEST_CLUSTERS", str(file))
    monkeypatch.setenv("TEST_MODE", mode)
    found = sandboxed(both)
    assert len(found) == len(drawn)
    for cluster, lines in zip(drawn, found, strict=True):
        assert lines == [], "\n".join(map(str, [thing for thing in cluster if isinstance(thing, Service)]))
