"""The CNI plugin's masquerade: it is on the node, and no engine sees it."""

from typing import Any

from network_scenarios import BASIC
from sandboxed import sandboxed
from users import EITHER

from proxylab.addresses import Family
from proxylab.kernel.netfilter.iptables_tool import IptablesTool, choose_iptables
from proxylab.kernel.netlink.build import realise
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.plan.topology import draw

OTHERS = "*nat\n:KUBE-POSTROUTING - [0:0]\n-I POSTROUTING -j KUBE-POSTROUTING\nCOMMIT\n"


async def what_an_engine_sees(launcher: Launcher) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with realise(draw(BASIC["masqueraded"])) as wiring:
        for name in ("legacy", "nft"):
            variant = await choose_iptables(launcher, (name,))
            tool = IptablesTool(launcher, wiring.namespaces["node-a"], "node-a", variant)
            for masquerade in wiring.plan.namespace("node-a").masquerades:
                before = await tool.save(masquerade.family)
                await tool.masquerade(masquerade)
                after = await tool.save(masquerade.family)
                await tool.load(masquerade.family, OTHERS)
                everything = await tool.save_all(masquerade.family)
                found[f"{name} {masquerade.family}"] = [
                    rules(before),
                    rules(after),
                    rules(await tool.save(masquerade.family)),
                    rules(everything),
                ]
    return found


def rules(saved: str) -> list[str]:
    """The rules and user-defined chains, without counters."""
    lines = [line.partition("] ")[2] or line for line in saved.splitlines()]
    return [line for line in lines if line.startswith("-A") or (line.startswith(":") and " - " in line)]


@EITHER
def test_the_masquerade_is_the_wires_and_no_engine_sees_it(ordinary: bool) -> None:
    found = sandboxed(what_an_engine_sees, ordinary=ordinary)
    assert set(found) == {f"{name} {family}" for name in ("legacy", "nft") for family in Family}
    for which, (before, after, with_others, everything) in found.items():
        part, pods = ("fd00:10:244::/64", "fd00:10:244::/56") if "IPv6" in which else ("10.244.0.0/24", "10.244.0.0/16")
        assert before == after == []
        assert [line for line in with_others if line.startswith("-A")] == ["-A POSTROUTING -j KUBE-POSTROUTING"]
        own = [line for line in everything if line.startswith("-A PROXYLAB-CNI")]
        assert own == [f"-A PROXYLAB-CNI -d {pods} -j RETURN", f"-A PROXYLAB-CNI -s {part} -j MASQUERADE"]
        jumps = [line.rpartition(" ")[2] for line in everything if line.startswith("-A POSTROUTING")]
        assert jumps == ["KUBE-POSTROUTING", "PROXYLAB-CNI"], "the proxy's rules come first, as on a node"
