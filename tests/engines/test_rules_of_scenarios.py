"""The rules that kube-proxy and the embedded engine write for the clusters of all scenarios, by what they mean.

A scenario's objects are all that rules depend on, beside the configuration; so no wire is built. Engines that are
configured alike go from one scenario to the next, and the API tells them what has changed.
"""

import asyncio
import os
import re
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from changes import changed_scenarios
from msgspec.structs import replace
from sandboxed import ROOT, sandboxed
from staged_engines import Stage, staged

from proxylab.addresses import IPNetwork
from proxylab.binaries.choose import Sources
from proxylab.cluster.configuration import DetectLocalMode, ProxyConfiguration
from proxylab.cluster.objects import KubeObject, Node, ServiceCIDR
from proxylab.cluster.store import Store
from proxylab.engines.modes import MODES
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.plan.assembly import assemble
from proxylab.scenario.cases import cases
from proxylab.scenario.load import load_scenario
from proxylab.timing import Deadline

BEFORE_1_24 = ("embedded@v1.23/iptables", "kube-proxy@v1.23.17/iptables")
UNKNOWN_TO_IT = {
    # detectLocalMode had no such values.
    "bridge-interface.lab",
    "interface-name-prefix.lab",
    # Nothing shows when it has taken up the zone of its Node.
    "endpoints-move.lab",
    "hints-at-node-ports.lab",
    "incomplete-hints.lab",
    "node-changes-zone.lab",
    "prefer-same-node.lab",
    "prefer-same-zone.lab",
    "preferred-node-loses-its-endpoint.lab",
    # It passes the text of endpoints on to iptables, which reads leading zeros as octal, or refuses them.
    "leading-zeros.lab",
    # For a source range of /0 it adds a rule that no packet reaches.
    "source-ranges-of-several-addresses.lab",
    # It writes rules of a node port only if it can listen there: on nodes with such an address, and once another
    # cluster's health-check node port of that number is closed.
    "daemon-on-the-node-port.lab",
    "health-check-on-node-port-addresses.lab",
    "node-port-addresses.lab",
}
"""The scenarios whose rules kube-proxy 1.23 writes in another way, or cannot write in these nodes."""

TAGS = re.compile(r"^  tags: \[(.*)\]", re.MULTILINE)  # to load all scenarios would take two seconds, twice
CORE = "ends of the core"
ENDS = "ends of the rest"
CHANGED = "all of the changed"
ONE = "clusterip/from-a-pod"
"""What stands for the scenarios that changed where none did."""

PARTS = ("others", "upstream")
NODES = ("node-a", "node-b")
FEW = 2
UNALLOCATED = "Drop traffic to unallocated ClusterIPs"
ZONE = "topology.kubernetes.io/zone"
AT_MOST = 70
AT_ONCE = 4  # groups of clusters, each of which waits for its own engines

AnyResponse = tuple[tuple[IPNetwork, ...], ProxyConfiguration, tuple[KubeObject, ...]]
Clusters = dict[str, tuple[KubeObject, ...]]


def clusters(mode: str, part: str) -> Iterator[tuple[str, AnyResponse, tuple[KubeObject, ...]]]:
    """Every cluster that a scenario goes through, or the first and last, with what engines are told at their start."""
    unknown = UNKNOWN_TO_IT if os.environ.get("TEST_ENGINES") else set()
    for path in (each for each in files(part) if each.stem not in unknown):
        for case in cases(load_scenario(path), mode):
            timeline = assemble(case).timeline
            for number, cluster in enumerate(timeline):
                if part in (CORE, ENDS) and 0 < number < len(timeline) - 1:
                    continue
                # Since 1.37 kube-proxy ends when the addresses or the podCIDRs of its node change.
                bare = (
                    Node(name=each.name, addresses=each.addresses, pod_cidrs=each.pod_cidrs)
                    for each in cluster.objects
                    if isinstance(each, Node)
                )
                # In mode nftables kube-proxy goes by the ServiceCIDRs of its last full sync.
                networks = (each for each in cluster.objects if isinstance(each, ServiceCIDR))
                told = case.network.pod_cidrs, case.proxy or ProxyConfiguration(), (*bare, *networks)
                yield f"{named(path)} {case.case.id} after {number} steps", told, cluster.objects


def named(path: Path) -> str:
    """A scenario's folder and file: two folders may have files of one name."""
    return f"{path.parent.name}/{path.stem}"


def files(part: str) -> list[Path]:
    """The files of the scenarios with or without the tag ``upstream``. The latter are the core and the rest.

    Those that changed are a part of their own, too.
    """
    every = sorted((ROOT / "scenarios").rglob("*.lab.yaml"))
    changed = os.environ.get("TEST_CHANGED", "").split() or [ONE]
    if part == CHANGED:
        return [path for path in every if place(path) in changed]
    tags = {path: {*re.findall(r"\w+", "".join(TAGS.findall(path.read_text(encoding="utf-8"))))} for path in every}
    return [
        path
        for path in every
        if ("upstream" in tags[path]) is (part == "upstream")
        and (part in PARTS or ("core" in tags[path]) is (part == CORE))
    ]


def place(path: Path) -> str:
    """A scenario's folder and name."""
    return path.relative_to(ROOT / "scenarios").as_posix().removesuffix(".lab.yaml")


def by_configuration(
    every: list[tuple[str, AnyResponse, tuple[KubeObject, ...]]],
) -> list[tuple[AnyResponse, Clusters]]:
    """The clusters by what engines are told. Of equal ones, which differ in their wires, only the first."""
    groups: dict[str, tuple[AnyResponse, Clusters]] = {}
    known = set()
    for name, told, objects in every:
        if (repr(told), repr(objects)) not in known:
            known.add((repr(told), repr(objects)))
            groups.setdefault(repr(told), (told, {}))[1][name] = objects
    return [(told, dict(part)) for told, group in groups.values() for part in parts(list(group.items()))]


def parts(clusters: list[Any]) -> Iterator[list[Any]]:
    """No more of them than one set of engines shall go through, while others go through the rest."""
    for first in range(0, len(clusters), AT_MOST):
        yield clusters[first : first + AT_MOST]


async def compared(launcher: Launcher) -> dict[str, Any]:
    """How rules differ, by cluster and node; how many were compared; and the scenarios that they are of."""
    part = os.environ["TEST_PART"]
    every = list(clusters(os.environ["TEST_MODE"], part))
    room = asyncio.Semaphore(AT_ONCE)

    async def in_its_turn(told: AnyResponse, group: Clusters) -> tuple[dict[str, list[str]], int]:
        async with room:
            return await compared_in(launcher, told, group)

    found = await asyncio.gather(*(in_its_turn(told, group) for told, group in by_configuration(every)))
    differences = {where: lines for each, _ in found for where, lines in each.items()}
    return {
        "differences": differences,
        "compared": sum(count for _, count in found),
        "scenarios": sorted({name.partition(" ")[0] for name, _, _ in every}),
    }


async def compared_in(launcher: Launcher, told: AnyResponse, group: Clusters) -> tuple[dict[str, list[str]], int]:
    """The same for clusters whose engines are told the same at their start."""
    found: dict[str, list[str]] = {}
    count = 0
    async with AsyncExitStack() as stack:
        few = len(group) <= FEW and os.environ["TEST_PART"] in (CORE, ENDS)
        _, configuration, known = told
        # With NodeCIDR a kube-proxy waits for the podCIDRs of its Node, which a scenario with one node does not have.
        alone = sum(isinstance(each, Node) for each in known) < len(NODES)
        few |= alone and configuration.detect_local_mode is DetectLocalMode.NODE_CIDR
        stages = await on_nodes(launcher, stack, told, NODES[:1] if few else NODES)
        for name, objects in group.items():
            for stage in (each for pair in stages.values() for each in pair):
                stage.hold(*objects)
            if count == 0:
                await asyncio.gather(*(each.synced() for pair in stages.values() for each in pair))
            if count == 0 and os.environ["TEST_MODE"] == "nftables":
                await asyncio.gather(*(until_networks_are_known(theirs) for _, theirs in stages.values()))
            written = await asyncio.gather(*(rules_of(pair) for pair in stages.values()))
            for node, (ours, theirs) in zip(stages, written, strict=True):
                count += 1
                if lines := MODES[os.environ["TEST_MODE"]].differences(ours, theirs):
                    found[f"{name} on {node}"] = list(lines)
    return found, count


async def rules_of(pair: list[Stage]) -> list[str]:
    return [
        MODES[os.environ["TEST_MODE"]].without_barrier(each)
        for each in await asyncio.gather(*(stage.written() for stage in pair))
    ]


async def on_nodes(
    launcher: Launcher, stack: AsyncExitStack, told: AnyResponse, nodes: tuple[str, ...]
) -> dict[str, list[Stage]]:
    cidrs, configuration, known = told
    # A second would be that long for each cluster.
    nftables = replace(configuration.nftables, min_sync_period=0.01)
    configuration = replace(configuration, min_sync_period=0.01, nftables=nftables)
    made = {}
    for node in nodes:
        made[node] = []
        newest = (f"{proxy}/{os.environ['TEST_MODE']}" for proxy in ("embedded", "kube-proxy"))
        for engine in os.environ.get("TEST_ENGINES", "").split() or newest:
            store = Store()
            for each in known:
                store.apply(each)
            stage = staged(launcher, engine, node=node, store=store, cluster_cidrs=cidrs, configuration=configuration)
            made[node].append(await stack.enter_async_context(stage))
    return made


async def until_networks_are_known(stage: Stage) -> None:
    """Let kube-proxy's rules go by the ServiceCIDRs that were there before it.

    On a busy machine kube-proxy may write its first rules before it hears of them. Then it goes by them from its next
    full sync on (OnServiceCIDRsChanged in pkg/proxy/nftables/proxier.go). A changed zone of its Node causes one. Each
    family has its own table and its own syncs: IPv6 may know them while IPv4 does not.
    """
    (node,) = (each for each in stage.store.list(Node) if each.name == stage.node)
    families = {network.version for each in stage.store.list(ServiceCIDR) for network in each.cidrs}
    deadline = Deadline.after(60)
    while (await stage.synced()).count(UNALLOCATED) < len(families):
        assert not deadline.passed, "kube-proxy has not written the rules that go by ServiceCIDRs, one in each family"
        stage.store.apply(replace(node, labels={**node.labels, ZONE: f"z{stage.store.revision}"}))
        await stage.synced()
        stage.store.apply(node)


def of_others(mode: str) -> set[str]:
    """The scenarios that a mode does not have."""
    return {named(path) for part in PARTS for path in files(part) if not [*cases(load_scenario(path), mode)]}


# The scenarios tagged upstream run on a real kube-proxy in every run of the tests. Of the others, these are thorough: a
# cluster between the first and the last, which changes what the way from one scenario to the next changes here; and
# node-b where a configuration has few clusters, since node-a shows there what the configuration changes. Each scenario
# that changed is compared, and one where none has; all others where a file changed that decides what an engine writes.
@pytest.mark.timeout(420)
@pytest.mark.parametrize(
    ("mode", "part"),
    [
        ("iptables", CHANGED),
        ("iptables", CORE),
        ("iptables", ENDS),
        ("nftables", CHANGED),
        pytest.param("nftables", CORE, marks=pytest.mark.nftables_core),
        pytest.param("nftables", ENDS, marks=pytest.mark.nftables_core),
        *(pytest.param(*each, marks=pytest.mark.thorough) for each in product(("iptables", "nftables"), PARTS)),
    ],
)
@pytest.mark.usefixtures("binary")
def test_both_write_the_same_rules_for_every_scenario(mode: str, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_MODE", mode)
    monkeypatch.setenv("TEST_PART", part)
    monkeypatch.setenv("TEST_CHANGED", " ".join(changed_scenarios()))
    result = sandboxed(compared, seconds=400)
    assert result["differences"] == {}
    everything = {named(path) for path in files(part)}
    of_mode = everything - of_others(mode)
    assert set(result["scenarios"]) == of_mode
    least = len(of_mode) - 1 if part == CHANGED else (2 if part in PARTS else 1) * len(everything)
    assert result["compared"] > least


@pytest.mark.thorough
@pytest.mark.timeout(420)
@pytest.mark.parametrize("part", PARTS)
def test_so_they_did_before_1_24(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """KUBE-XLB, KUBE-FW and KUBE-MARK-DROP, as kube-proxy 1.23.17 writes them beside a kubelet's chains."""
    cached = [each for each in Sources.of_user().obtained() if each.version == "v1.23.17"]
    if not cached:
        pytest.skip("needs 'proxylab engines --obtain v1.23.17', which Go builds in ten minutes")
    monkeypatch.setenv("TEST_MODE", "iptables")
    monkeypatch.setenv("TEST_PART", part)
    monkeypatch.setenv("TEST_ENGINES", " ".join(BEFORE_1_24))
    monkeypatch.setenv("TEST_KUBE_PROXY", str(cached[-1].path))
    result = sandboxed(compared, seconds=400)
    assert result["differences"] == {}
    everything = {named(path) for path in files(part) if path.stem not in UNKNOWN_TO_IT}
    assert set(result["scenarios"]) == everything - of_others("iptables")
    assert result["compared"] > 2 * len(result["scenarios"])
