"""What a clean-up takes away, and what it must not touch."""

import asyncio

import pytest
from memory_loader import MemoryLoader, fresh
from rule_cases import CASES, Addresses

from proxylab.addresses import Family
from proxylab.engines.embedded.iptables.cleanup import cleanup_text, remove
from proxylab.engines.embedded.iptables.kernel_state import KernelState
from proxylab.engines.embedded.iptables.render import render
from proxylab.engines.embedded.iptables.restore import restore

FOREIGN = """*nat
:KUBE-NODE-PORT - [0:0]
:KUBE-KUBELET-CANARY - [0:0]
:DOCKER - [0:0]
-A PREROUTING -m set --match-set KUBE-CLUSTER-IP dst,dst -j KUBE-NODE-PORT
-A PREROUTING -j DOCKER
-A OUTPUT -m comment --comment "to -j KUBE-SERVICES" -j DOCKER
COMMIT
"""


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("family", list(Family), ids=str)
def test_everything_goes_but_what_a_kubelet_may_own(name: str, family: Family) -> None:
    async def scenario() -> None:
        case, loader = CASES[name](Addresses(family)), MemoryLoader()
        await loader.load(family, FOREIGN)
        rules = render(case.cluster, case.node, case.settings, family)
        await loader.load(family, restore(rules, KernelState()).text)
        assert await remove(loader, family)
        tables = loader.tables[family]
        firewall = tables["filter"].pop("KUBE-FIREWALL")
        assert len(firewall) <= 1
        for chain in ("INPUT", "OUTPUT"):
            assert tables["filter"][chain].pop() == "-j KUBE-FIREWALL"
        expected = fresh()
        expected["nat"] |= {"KUBE-KUBELET-CANARY": [], "DOCKER": []}
        expected["nat"]["PREROUTING"] = ["-j DOCKER"]
        expected["nat"]["OUTPUT"] = ['-m comment --comment "to -j KUBE-SERVICES" -j DOCKER']
        assert tables == expected
        assert not await remove(loader, family)

    asyncio.run(scenario())


def test_where_nothing_is_nothing_is_loaded() -> None:
    assert cleanup_text("*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n") == ""
