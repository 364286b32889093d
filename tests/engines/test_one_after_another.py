"""A proxy begins on a node where another one has been: in another mode, or of another version.

The rules of the first are those that it has loaded itself, and has left when it was stopped.
"""

from typing import Any

import pytest
from rule_cases import Addresses, echo, endpoint, slice_of
from sandboxed import sandboxed
from staged_engines import Stage, staged

from proxylab.addresses import Family
from proxylab.engines.embedded.nftables.names import TABLE
from proxylab.engines.engine_names import mode_of
from proxylab.engines.modes import MODES
from proxylab.kernel.netfilter.nft_tool import NftTool
from proxylab.kernel.sandbox.launcher import Launcher

A = Addresses(Family.IPV4)
ECHO = echo(A)
ENDS = slice_of(ECHO, A, endpoint(A, 10))
DOCKER = """\
*nat
:DOCKER - [0:0]
-A PREROUTING -j DOCKER
-A DOCKER -p tcp --dport 8443 -j DNAT --to-destination 10.244.0.90:8080
COMMIT
"""
KUBELETS = {"KUBE-FIREWALL", "KUBE-MARK-DROP"}
"""What a kubelet may have made as well, so that no proxy takes it away."""

PAIRS = [
    ("kube-proxy/iptables", "kube-proxy/nftables"),
    ("kube-proxy/nftables", "kube-proxy/iptables"),
    ("kube-proxy/nftables", "embedded/iptables"),
    ("embedded/iptables", "kube-proxy/nftables"),
    ("embedded/iptables", "embedded/nftables"),
    ("embedded/nftables", "embedded/iptables"),
    ("kube-proxy/iptables", "embedded/nftables"),
    ("embedded/nftables", "kube-proxy/nftables"),
    ("kube-proxy/nftables", "embedded/nftables"),
    ("embedded@v1.23/iptables", "kube-proxy/iptables"),
    ("embedded@v1.23/iptables", "embedded/iptables"),
]


async def stands(stage: Stage) -> dict[str, Any]:
    """What a node holds of each mode: chains of iptables, and the table of nftables."""
    saved = await stage.context.tool.save(Family.IPV4)
    chains = [line[1:].split()[0] for line in saved.splitlines() if line.startswith(":KUBE-")]
    nft = NftTool(stage.launcher, stage.context.netns, stage.context.name)
    return {
        "iptables": sorted(chains),
        "nftables": bool(await nft.list_table(Family.IPV4, TABLE)),
        "docker": [line.split("] ")[-1] for line in saved.splitlines() if "DOCKER" in line and "-A" in line],
    }


async def pairs(launcher: Launcher) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for first, then in PAIRS:
        async with staged(launcher, first) as stage, staged(launcher, then) as fresh:
            await stage.context.tool.load(Family.IPV4, DOCKER)
            for each in (stage, fresh):
                each.hold(ECHO, ENDS)
            await stage.synced()
            before = await stands(stage)
            await stage.give_way(then)
            dumps = [MODES[mode_of(then)].without_barrier(await each.synced()) for each in (stage, fresh)]
            differences = MODES[mode_of(then)].differences(*dumps)
            found[f"{first} {then}"] = before, await stands(stage), differences
    return found


def others(differences: list[str]) -> list[str]:
    """Differences but for a kubelet's chains, and for the order of jumps: each comes before those that are there."""
    said = {each.removeprefix("family 2: ") for each in differences}
    twins = {"-": "+", "+": "-"}
    odd = {each for each in said if twins[each[0]] + each[1:] not in said}
    return sorted(each for each in odd if not any(chain in each for chain in KUBELETS))


@pytest.mark.usefixtures("binary")
def test_the_rules_equal_those_of_a_node_without_an_earlier_engine() -> None:
    found = sandboxed(pairs, seconds=200)
    assert found.keys() == {f"{first} {then}" for first, then in PAIRS}
    for pair, (before, after, differences) in found.items():
        first, then = (mode_of(engine) for engine in pair.split())
        assert others(differences) == [], pair
        assert not any(chain.startswith("KUBE-XLB-") for chain in after["iptables"]), pair
        assert before["nftables"] is (first == "nftables"), pair
        assert after["nftables"] is (then == "nftables"), pair
        assert any(chain.startswith("KUBE-SEP-") for chain in before["iptables"]) is (first == "iptables"), pair
        assert any(chain.startswith("KUBE-SEP-") for chain in after["iptables"]) is (then == "iptables"), pair
        assert set(after["iptables"]) <= KUBELETS or then == "iptables", pair
        assert before["docker"] == after["docker"] != [], f"{pair}: what is no Service proxy's stays"
