"""Removes the rules of every mode that uses iptables, as ``kube-proxy --cleanup`` does.

``stop`` never calls it: a proxy that ends leaves its rules, so that a restart harms no connection. KUBE-FIREWALL, which
guards the loopback network, and the kubelet's own canary stay, since a kubelet may have made them.
"""

from collections.abc import Collection
from typing import Final

from proxylab.addresses import Family
from proxylab.engines.embedded.iptables.loader import RuleLoader
from proxylab.engines.embedded.iptables.names import SERVICE_CHAIN_PREFIXES
from proxylab.rules.iptables import read_rule, read_tables

IPVS_CHAINS: Final = frozenset(
    {
        "KUBE-IPVS-FILTER",
        "KUBE-IPVS-OUT-FILTER",
        "KUBE-LOAD-BALANCER",
        "KUBE-NODE-PORT",
        "KUBE-SOURCE-RANGES-FIREWALL",
        # Of mode iptables as well.
        "KUBE-SERVICES",
        "KUBE-FORWARD",
        "KUBE-PROXY-FIREWALL",
        "KUBE-POSTROUTING",
        "KUBE-MARK-MASQ",
    }
)
"""The names of the chains of mode ipvs."""

_OURS: Final = IPVS_CHAINS.union(
    {
        "KUBE-EXTERNAL-SERVICES",
        "KUBE-NODEPORTS",
        "KUBE-PROXY-CANARY",
        # Of mode userspace.
        "KUBE-NODEPORT-CONTAINER",
        "KUBE-NODEPORT-HOST",
        "KUBE-NODEPORT-NON-LOCAL",
        "KUBE-PORTALS-CONTAINER",
        "KUBE-PORTALS-HOST",
    }
)


async def remove(loader: RuleLoader, family: Family, only: Collection[str] | None = None) -> bool:
    """Remove the rules of one family; returns whether there were any. Raises ``RulesRefusedError``.

    Only the chains of these names go; with ``None``, those of every mode that uses iptables.
    """
    text = cleanup_text(await loader.dump(family), only)
    if text:
        await loader.load(family, text)
    return bool(text)


def cleanup_text(saved: str, only: Collection[str] | None = None) -> str:
    """The text for ``iptables-restore --noflush`` that removes our chains and the rules that jump to them."""
    lines: list[str] = []
    for table in read_tables(saved):
        ours = [name for name in table.chains if (_is_ours(name) if only is None else name in only)]
        if not ours:
            continue
        others = (each for each in table.rules if each.chain not in ours)
        leading = [each.text for each in others if (rule := read_rule(each.text)) is not None and rule.target in ours]
        lines += [f"*{table.name}", *(f":{name} - [0:0]" for name in ours)]
        lines += [f"-D {text.removeprefix('-A ')}" for text in leading]
        lines += [*(f"-X {name}" for name in ours), "COMMIT"]
    return "\n".join([*lines, ""])


def _is_ours(chain: str) -> bool:
    return chain in _OURS or chain.startswith(SERVICE_CHAIN_PREFIXES)
