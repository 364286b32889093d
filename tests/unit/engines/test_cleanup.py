"""What a clean-up takes away, and what it must not touch."""

import asyncio

import pytest
from memory_loader import MemoryLoader, fresh
from rule_cases import CASES, Addresses

from proxylab.addresses import Family
from proxylab.engines.embedded.iptables.cleanup import IPVS_CHAINS, cleanup_text, remove
from proxylab.engines.embedded.iptables.kernel_state import KernelState
from proxylab.engines.embedded.iptables.render import render
from proxylab.engines.embedded.iptables.restore import restore
from proxylab.engines.modes import MODES

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


@pytest.mark.parametrize("family", list(Family), ids=str)
def test_the_chains_of_mode_ipvs_stay_for_a_proxy_that_goes_on_in_it(family: Family) -> None:
    case = next(iter(CASES.values()))(Addresses(family))
    ipvs = MODES["ipvs"].load(case.cluster, case.node, case.settings, family, (1, 37)).partition("# ipset")[0]
    iptables = MODES["iptables"].load(case.cluster, case.node, case.settings, family, (1, 37))

    async def scenario() -> None:
        loader = MemoryLoader()
        await loader.load(family, ipvs)
        alone = await loader.dump(family)
        assert cleanup_text(alone, keep=IPVS_CHAINS) == ""
        await loader.load(family, iptables)
        assert await remove(loader, family, keep=IPVS_CHAINS)
        chains = {chain for table in loader.tables[family].values() for chain in table if chain.startswith("KUBE-")}
        assert chains - {"KUBE-FIREWALL"} <= IPVS_CHAINS

    asyncio.run(scenario())
