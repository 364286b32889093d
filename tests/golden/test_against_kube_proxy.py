"""The embedded engine's rules against what a kube-proxy of their version wrote for the same small clusters, by meaning.

``kube-proxy-VERSION`` holds what iptables-save printed, without counters, in a namespace where that binary served one
node and had the same configuration. The lab's own Service, by which a proxy is seen to have caught up, is taken out,
and with it the chains that a large cluster keeps of it for a while. 1.36.3 ran on a kernel with nfacct.
"""

from pathlib import Path

import pytest
from msgspec.structs import replace
from rule_cases import CASES, Addresses

from proxylab.addresses import Family
from proxylab.engines.embedded.iptables.kernel_state import KernelState
from proxylab.engines.embedded.iptables.legacy import V1_23
from proxylab.engines.embedded.iptables.meaning import Chains, differences, read_rules
from proxylab.engines.embedded.iptables.render import CURRENT, render
from proxylab.engines.embedded.iptables.restore import restore
from proxylab.engines.embedded.iptables.rules import Generation

GOLDEN = Path(__file__).parent
KUBELETS = {("filter", "KUBE-FIREWALL"), ("nat", "KUBE-MARK-DROP")}
"""Chains that the kubelet of 1.23 filled. The embedded engine does it for a lab, which has no kubelet."""

CURRENTLY = [(name, CURRENT, "v1.36.3") for name in CASES if name != "packet-counters"]
FORMERLY = [(path.stem.removesuffix(".ipv4"), V1_23, "v1.23.17") for path in GOLDEN.glob("*v1.23.17/*.ipv4.saved")]


@pytest.mark.parametrize("family", list(Family), ids=str)
@pytest.mark.parametrize(("name", "generation", "version"), CURRENTLY + sorted(FORMERLY, key=lambda each: each[0]))
def test_the_same_rules(name: str, generation: Generation, version: str, family: Family) -> None:
    case = CASES[name](Addresses(family))
    # What kube-proxy found where the files were made, and no configuration can change.
    settings = replace(case.settings, packet_counters=version == "v1.36.3", random_fully=True)
    ours = read_rules(restore(render(case.cluster, case.node, settings, family, generation), KernelState()).text)
    theirs = read_rules((GOLDEN / f"kube-proxy-{version}" / f"{name}.{family.lower()}.saved").read_text())
    if version == "v1.23.17":
        ours, theirs = without_kubelet(ours), without_kubelet(theirs)
    assert differences(ours, theirs) == []


def without_kubelet(chains: Chains) -> Chains:
    return {
        key: [rule for rule in rules if ("--jump", "KUBE-FIREWALL") not in rule]
        for key, rules in chains.items()
        if key not in KUBELETS
    }


def test_every_dump_is_compared() -> None:
    compared = {f"kube-proxy-{version}/{name}" for name, _, version in CURRENTLY + FORMERLY}
    files = [path.relative_to(GOLDEN) for path in GOLDEN.glob("kube-proxy-*/*.saved")]
    assert {str(each).removesuffix(".saved") for each in files} == {
        f"{each}.{family.lower()}" for each in compared for family in Family
    }
