"""The table of mode nftables on the real kernel: what is loaded, step by step, and what is refused."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from rule_cases import CASES, HERE, Addresses, echo, endpoint, facts, load_balancer, slice_of
from rule_worlds import clusters, edited
from sandboxed import USERS, sandboxed
from thoroughness import examples

from proxylab.addresses import Family
from proxylab.cluster.objects import EndpointSlice, KubeObject, Service, ServicePort
from proxylab.encoding import decode, encode
from proxylab.engines.context import NodeContext
from proxylab.engines.embedded.nftables.node import NftablesNode
from proxylab.engines.embedded.nftables.writer import NftablesWriter
from proxylab.engines.embedded.ports import ClusterView
from proxylab.engines.embedded.proxier import ModeProxier, SyncFailedError
from proxylab.engines.embedded.settings import ProxySettings
from proxylab.engines.modes import MODES
from proxylab.kernel.netfilter.iptables_tool import IptablesTool, choose_iptables
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import make_netns

A = Addresses(Family.IPV4)
NODE = facts(A)
Histories = tuple[tuple[tuple[KubeObject, ...], ...], ...]


async def on_a_node(launcher: Launcher) -> NftablesNode:
    netns = make_netns(HERE)
    tool = IptablesTool(launcher, netns, HERE, await choose_iptables(launcher))
    return NftablesNode(NodeContext(netns, launcher, HERE, tool))


def view(*things: KubeObject) -> ClusterView:
    return ClusterView(
        tuple(each for each in things if isinstance(each, Service)),
        tuple(each for each in things if isinstance(each, EndpointSlice)),
    )


async def every_case(launcher: Launcher) -> dict[str, Any]:
    """The cases that nft refuses, and the rules of each family that its listing has."""
    node = await on_a_node(launcher)
    found: dict[str, Any] = {}
    for name, make in CASES.items():
        for family in Family:
            case = make(Addresses(family))
            proxier = ModeProxier(NftablesWriter(family, node, case.settings))
            try:
                await proxier.sync(case.cluster, case.node)
            except SyncFailedError as failed:
                found[f"{name} {family}"] = [failed.what]
            else:
                found[f"{name} {family}"] = [] if await proxier.dump() else ["no table"]
    return found


def test_every_rendered_table_is_taken() -> None:
    assert {name: lines for name, lines in sandboxed(every_case, seconds=90).items() if lines} == {}


async def histories(launcher: Launcher) -> list[list[str]]:
    """How the table after a history of changes differs from that of a node that has only the last cluster."""
    found = []
    drawn = decode(Path(os.environ["TEST_HISTORIES"]).read_bytes(), Histories)
    for history in drawn:
        node, fresh = await on_a_node(launcher), await on_a_node(launcher)
        clock = [0.0]
        proxier = ModeProxier(NftablesWriter(Family.IPV4, node, ProxySettings(), now=lambda clock=clock: clock[0]))
        for cluster in history:
            clock[0] += 0.7
            await proxier.sync(view(*cluster), NODE)
        await ModeProxier(NftablesWriter(Family.IPV4, fresh, ProxySettings())).sync(view(*history[-1]), NODE)
        found.append(MODES["nftables"].differences(await node.dump(Family.IPV4), await fresh.dump(Family.IPV4)))
    return found


def test_after_any_changes_the_table_is_that_of_a_fresh_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[tuple[KubeObject, ...], ...]] = []

    @settings(max_examples=examples(15), phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(st.data())
    def draw(data: st.DataObject) -> None:
        cluster = data.draw(clusters(Family.IPV4))
        history = [cluster]
        for _ in range(data.draw(st.integers(1, 4))):
            cluster = edited(cluster, data.draw(clusters(Family.IPV4)), data)
            history.append(cluster)
        drawn.append(tuple((*each.services, *each.slices) for each in history))

    draw()
    file = tmp_path / "histories"
    file.write_bytes(encode(tuple(drawn)))
    monkeypatch.setenv("TEST_HISTORIES", str(file))
    assert sandboxed(histories, seconds=90) == [[]] * len(drawn)


async def refused(launcher: Launcher) -> dict[str, Any]:
    """Services at the limits of nft, and one beyond them: no set can remember its clients for so long."""
    node = await on_a_node(launcher)
    proxier = ModeProxier(NftablesWriter(Family.IPV4, node, ProxySettings()))
    ports = (ServicePort(name="p" * 15, port=80, target_port=8080),)
    long = echo(A, namespace="n" * 63, name="s" * 63, cluster_ips=(A.of("cluster", 21),), ports=ports)
    wide = load_balancer(A, name="wide", source_ranges=(A.wide("external"), A.narrow("external")))
    beyond = echo(A, name="beyond", cluster_ips=(A.of("cluster", 22),), affinity_timeout=10**14)
    sound = [each for service in (echo(A), wide) for each in (service, slice_of(service, A, endpoint(A, 10)))]
    await proxier.sync(view(*sound, long), NODE)
    why = ""
    try:
        await proxier.sync(view(*sound, long, beyond, slice_of(beyond, A, endpoint(A, 11))), NODE)
    except SyncFailedError as failed:
        why = failed.what
    dump = await node.dump(Family.IPV4)
    return {
        "refused": why.partition(":")[2].partition(":")[0],
        "there": [text in dump for text in ("10.42.0.10", f'comment "{"n" * 63}/{"s" * 63}:"', "saddr != ", "beyond")],
    }


def test_a_service_beyond_the_limits_of_nft_is_named_and_the_table_stays() -> None:
    assert sandboxed(refused) == {
        "refused": " nft refused of Service default/beyond",
        "there": [True, True, True, False],
    }


async def large(launcher: Launcher) -> dict[str, Any]:
    node = await on_a_node(launcher)
    proxier = ModeProxier(NftablesWriter(Family.IPV4, node, ProxySettings()))
    things: list[KubeObject] = []
    for number in range(1200):
        service = echo(A, name=f"s{number}", cluster_ips=(A.of("cluster", 1) + number,))
        things += (service, slice_of(service, A, endpoint(A, 10)))
    await proxier.sync(view(*things), NODE)
    return {"chains": (await node.dump(Family.IPV4)).count("/tcp/ {")}


@pytest.mark.parametrize("ordinary", USERS.values(), ids=USERS)
def test_a_large_table_is_loaded_whole(ordinary: bool) -> None:
    assert sandboxed(large, ordinary=ordinary, seconds=60) == {"chains": 1200}
