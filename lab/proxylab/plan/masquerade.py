"""The CNI plugin's masquerade: the text of rules that belong to the network, not to an engine.

The rules are in a chain of their own, after kube-proxy's jump, which kube-proxy inserts first. They use the same table
and the same tool as CNI plugins on a real node, so that they interact with the engine's rules as there.
"""

from typing import Final

from proxylab.plan.model import Masquerade

_CHAIN: Final = "PROXYLAB-CNI"
_WHY: Final = '-m comment --comment "outbound masquerade of the lab network, not of the engine"'


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
    """Whether a line of a listing belongs to these rules."""
    return _CHAIN in line


def without_masquerade(saved: str) -> str:
    """The output of iptables-save without these rules."""
    if _CHAIN not in saved:
        return saved
    return "".join(line for line in saved.splitlines(keepends=True) if _CHAIN not in line)
