"""Removes kube-proxy's rules of every mode, as ``kube-proxy --cleanup`` does.

``stop`` never calls it: a proxy that ends leaves its rules, so that a restart harms no connection. KUBE-FIREWALL, which
guards the loopback network, and the kubelet's own canary stay, since a kubelet may have made them.
"""

import shlex
from collections.abc import Iterable, Iterator

from proxylab.addresses import Family
from proxylab.engines.embedded.iptables.loader import RuleLoader
from proxylab.engines.embedded.iptables.names import SERVICE_CHAIN_PREFIXES

__all__ = ["cleanup", "cleanup_text"]

PROXY_TABLE = "kube-proxy"
"""The table of mode nftables, one in each family."""

_OURS = frozenset(
    {
        "KUBE-SERVICES",
        "KUBE-EXTERNAL-SERVICES",
        "KUBE-FORWARD",
        "KUBE-NODEPORTS",
        "KUBE-PROXY-FIREWALL",
        "KUBE-POSTROUTING",
        "KUBE-MARK-MASQ",
        "KUBE-PROXY-CANARY",
        # Of mode ipvs.
        "KUBE-IPVS-FILTER",
        "KUBE-IPVS-OUT-FILTER",
        "KUBE-LOAD-BALANCER",
        "KUBE-NODE-PORT",
        "KUBE-SOURCE-RANGES-FIREWALL",
        # Of mode userspace.
        "KUBE-NODEPORT-CONTAINER",
        "KUBE-NODEPORT-HOST",
        "KUBE-NODEPORT-NON-LOCAL",
        "KUBE-PORTALS-CONTAINER",
        "KUBE-PORTALS-HOST",
    }
)


async def cleanup(loader: RuleLoader, families: Iterable[Family]) -> None:
    """Remove the rules of every mode. Raises ``RulesRefusedError``."""
    for family in families:
        text = cleanup_text(await loader.save(family))
        if text:
            await loader.load(family, text)
        loader.drop_nft_table(family, PROXY_TABLE)


def cleanup_text(saved: str) -> str:
    """The text for ``iptables-restore --noflush`` that removes our chains and the rules that jump to them."""
    lines: list[str] = []
    for table, section in _tables(saved):
        ours = [name for line in section if line.startswith(":") and _is_ours(name := line[1:].split(" ")[0])]
        if not ours:
            continue
        leading = [rule for line in section if (rule := line[line.find("-A ") :]).startswith("-A ") and _leads(rule)]
        lines += [f"*{table}", *(f":{name} - [0:0]" for name in ours)]
        lines += [f"-D {rule.removeprefix('-A ')}" for rule in leading]
        lines += [*(f"-X {name}" for name in ours), "COMMIT"]
    return "\n".join([*lines, ""])


def _tables(saved: str) -> Iterator[tuple[str, list[str]]]:
    table, section = "", list[str]()
    for line in saved.splitlines():
        if line.startswith("*"):
            table, section = line[1:].strip(), []
        elif line.startswith("COMMIT"):
            yield table, section
        else:
            section.append(line)


def _leads(rule: str) -> bool:
    """Whether a rule of a chain that stays jumps to one that goes."""
    words = shlex.split(rule)  # keeps a comment in one word
    target = words[words.index("-j") + 1] if "-j" in words else ""
    return _is_ours(target) and not _is_ours(words[1])


def _is_ours(chain: str) -> bool:
    return chain in _OURS or chain.startswith(SERVICE_CHAIN_PREFIXES)
