"""The CNI plugin's masquerade: rules that belong to the wire and to no engine.

Owns: their text, and how to see rules without them.
Must not: load them (``kernel.rules`` does), or choose what is masqueraded (``topology`` does).

They stand in a chain that says whose they are, behind kube-proxy's own jump, which kube-proxy puts first. In the same
table and by the same tool, as with CNI plugins on a node, so that both meet as they do there.
"""

from typing import Final

from proxylab.plan.model import Masquerade

__all__ = ["is_masquerade", "masquerade_text", "without_masquerade"]

_CHAIN: Final = "PROXYLAB-CNI"
_WHY: Final = '-m comment --comment "the outbound masquerade of the wire, which is no engine\'s"'


def masquerade_text(masquerade: Masquerade) -> str:
    """The text for iptables-restore."""
    return "".join(
        f"{line}\n"
        for line in (
            "*nat",
            f":{_CHAIN} - [0:0]",
            f"-A POSTROUTING {_WHY} -j {_CHAIN}",
            *(f"-A {_CHAIN} -d {network} -j RETURN" for network in masquerade.spared),
            *(f"-A {_CHAIN} -s {network} -j MASQUERADE" for network in masquerade.sources),
            "COMMIT",
        )
    )


def is_masquerade(line: str) -> bool:
    """Whether a line of a listing is of these rules; it names its chain."""
    return _CHAIN in line


def without_masquerade(saved: str) -> str:
    """What iptables-save printed, without any line of these rules."""
    if _CHAIN not in saved:
        return saved
    return "".join(line for line in saved.splitlines(keepends=True) if _CHAIN not in line)
