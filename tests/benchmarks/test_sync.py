"""What a synchronisation of an embedded engine costs us, held against what it costs iptables-restore or nft.

Both are measured in one run and as processor time, so that a busy machine slows them alike. Ours is the best of a few
rounds, and theirs too. The floor of a full sync is what iptables-restore takes for the rules as kube-proxy writes them;
all in all a sync may take twice that. The floor of mode nftables is what ``nft -f`` takes. ``-rP`` shows the figures of
a run that holds.
"""

import os
import random
import re
import shutil
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network, ip_address
from pathlib import Path

import pytest
from msgspec.structs import replace
from rule_cases import Addresses, facts, settings

from proxylab.addresses import Family
from proxylab.engines.embedded.iptables.kernel_state import KernelState
from proxylab.engines.embedded.iptables.render import Renderer
from proxylab.engines.embedded.iptables.restore import restore, restore_changes
from proxylab.engines.embedded.nftables import render as tables
from proxylab.engines.embedded.nftables.loader import Present
from proxylab.engines.embedded.nftables.transaction import write_table
from proxylab.engines.embedded.ports import ClusterView
from proxylab.features.bench.large_cluster import LargeCluster

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(600)]

A = Addresses(Family.IPV4)
NODE = facts(A)
SETTINGS = settings(A)
ROUNDS = 7
RESTORE = "iptables-legacy-restore --noflush --counters"
ENDPOINTS = 3
LARGE = LargeCluster(IPv4Network("10.96.0.0/16"), 8080)
SANDBOX = ["unshare", "--net", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]


def cluster(services: int) -> ClusterView:
    """As many services as that, of one port and three endpoints each, one of them on this node."""
    first_pod = int(ip_address("10.42.0.1"))
    pods = [
        [(IPv4Address(first_pod + ENDPOINTS * number + each), f"node-{'abb'[each]}") for each in range(ENDPOINTS)]
        for number in range(services)
    ]
    return ClusterView(tuple(map(LARGE.service, range(services))), tuple(map(LARGE.slice, range(services), pods)))


def scaled(view: ClusterView) -> ClusterView:
    """The same cluster after one endpoint of one service has gone."""
    changed = replace(view.slices[0], endpoints=view.slices[0].endpoints[1:])
    return ClusterView(view.services, (changed, *view.slices[1:]))


def full_sync(view: ClusterView) -> tuple[object, str]:
    """What a proxy keeps, and the text, of its first synchronisation."""
    renderer = Renderer(Family.IPV4, SETTINGS)
    ruleset = renderer.render(view, NODE)
    return (renderer, ruleset), restore(ruleset, KernelState()).text


def full_text(view: ClusterView) -> str:
    return full_sync(view)[1]


def in_no_order(text: str) -> str:
    """The same rules with the chains of services declared by chance, as kube-proxy does."""
    lines = text.splitlines()
    netns_names = [index for index, line in enumerate(lines) if re.match(":KUBE-(SVC|SEP)-", line)]
    shuffled = random.Random(0).sample(netns_names, len(netns_names))
    for netns_name, line in zip(netns_names, [lines[index] for index in shuffled], strict=True):
        lines[netns_name] = line
    return "\n".join(lines) + "\n"


def compared(
    ours: Callable[[], object], tmp_path: Path, *texts: str, command: str = RESTORE, rounds: int = ROUNDS
) -> tuple[float, float]:
    """The processor time of the fastest of a few rounds, ours and that of the mode's tool, in milliseconds.

    Args:
        ours: our part of one synchronisation.
        tmp_path: where texts may be written.
        texts: what the tool loads. Only the last of them is measured.
        command: the tool with its arguments.
        rounds: how many.
    """
    name, *arguments = command.split()
    tool = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if tool is None:
        pytest.skip(f"no {name} here; install it")
    files = [tmp_path / f"{number}.rules" for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    loads = [f"{tool} {' '.join(arguments)} < {file}" for file in files]
    loads[-1] = f"time {loads[-1]}"
    script = "\n".join(["set -e", "mount -t tmpfs tmpfs /run", "TIMEFORMAT='spent %3U %3S'", *loads])
    taken = [(_our_seconds(ours), _their_seconds(script)) for _ in range(rounds)]
    return min(mine for mine, _ in taken) * 1000, min(theirs for _, theirs in taken) * 1000


def _our_seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    kept = work()  # as a proxy keeps what it will compare the next state with
    spent = time.process_time() - began
    del kept
    return spent


def _their_seconds(script: str) -> float:
    done = subprocess.run([*SANDBOX, "bash", "-c", script], capture_output=True, text=True, timeout=120, check=False)
    spent = re.search(r"spent (\S+) (\S+)", done.stderr)
    if done.returncode != 0 or spent is None:
        pytest.skip(f"the tool does not work here: {done.stderr.strip()}")
    return float(spent[1]) + float(spent[2])


def test_a_full_sync(services: int, tmp_path: Path) -> None:
    view = cluster(services)
    ours, theirs = compared(lambda: full_sync(view), tmp_path, full_text(view))
    said = f"full sync of {services} services: ours {ours:.1f} ms, iptables-restore's {theirs:.1f} ms"
    sys.stdout.write(said)
    assert ours < 0.8 * theirs, said


@pytest.mark.budget
def test_a_full_sync_in_all(services: int, tmp_path: Path) -> None:
    """The floor is what iptables-restore takes for kube-proxy's own order of chains, which is not ours."""
    view = cluster(services)
    text = full_text(view)
    ours, loading = compared(lambda: full_sync(view), tmp_path, text)
    _, floor = compared(lambda: None, tmp_path, in_no_order(text))
    said = f"full sync of {services} services: ours {ours:.1f} ms, loading {loading:.1f} ms, floor {floor:.1f} ms"
    sys.stdout.write(said)
    assert ours + loading < 2 * floor, said


def test_one_changed_service(services: int, tmp_path: Path) -> None:
    views = [cluster(services)]
    views.append(scaled(views[0]))
    renderer = Renderer(Family.IPV4, SETTINGS)
    loaded = renderer.render(views[0], NODE)
    turn = iter(range(1, 100))

    def change() -> str:
        """There and back again: every round changes one endpoint."""
        nonlocal loaded
        before, loaded = loaded, renderer.render(views[next(turn) % 2], NODE)
        return restore_changes(loaded, before).text

    ours, theirs = compared(change, tmp_path, full_text(views[0]), change())
    said = f"one of {services} services: ours {ours:.1f} ms, iptables-restore's {theirs:.1f} ms"
    sys.stdout.write(said)
    assert ours < theirs, said


@pytest.mark.budget
@pytest.mark.parametrize("size", [10, 1000, 5000])
def test_a_full_sync_of_mode_nftables(size: int, tmp_path: Path) -> None:
    view = cluster(size)

    def full() -> tuple[object, str]:
        renderer = tables.Renderer(Family.IPV4, SETTINGS)
        ruleset = renderer.render(view, NODE)
        return (renderer, ruleset), write_table(ruleset, Present(), rehook=True).text

    ours, theirs = compared(full, tmp_path, full()[1], command="nft -f -", rounds=3)
    said = f"full sync of {size} services: ours {ours:.1f} ms, nft's {theirs:.1f} ms"
    sys.stdout.write(said)
    assert ours < theirs, said


def test_memory_grows_with_the_cluster_and_no_faster() -> None:
    """By the allocations themselves: what the machine does meanwhile plays no part."""

    def peak(services: int) -> int:
        view = cluster(services)
        tracemalloc.start()
        try:
            renderer = Renderer(Family.IPV4, SETTINGS)
            loaded = renderer.render(view, NODE)
            kept = (
                restore(loaded, KernelState()).text,
                restore_changes(renderer.render(scaled(view), NODE), loaded).text,
            )
            assert all(kept)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(10)  # what is kept once and for all, as memos of shares, is no part of it
    small, middle, large = (peak(services) for services in (200, 400, 800))
    # Tables double now and then; a constant factor between two sizes is all the room that leaves.
    assert (large - middle) / (middle - small) < 3
    assert large / small < 4 * 1.25
