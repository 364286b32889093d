"""Compares the rules of one node under two engines; it does not say which of the two is right."""

import re
from difflib import unified_diff
from itertools import zip_longest
from typing import Final

from proxylab.engines.embedded.iptables.meaning import Chains, differences, read_rules

__all__ = ["rule_differences"]

_OUTSIDE: Final = "KUBE-"
_FAMILY: Final = re.compile(r"(?=^\*mangle$)", re.MULTILINE)


def rule_differences(mode: str, ours: str, theirs: str) -> list[str]:
    """A line for each rule that only one of two dumps has; none if they mean the same.

    Args:
        mode: of both.
        ours: the lab's dump of a node under one engine, all families one after the other.
        theirs: the dump under the other engine.
    """
    if mode == "nftables":
        lines = list(unified_diff(ours.splitlines(), theirs.splitlines(), n=1, lineterm=""))[2:]
        return [line for line in lines if not line.startswith("@@")]
    found = []
    for family, (mine, other) in enumerate(zip_longest(_families(ours), _families(theirs), fillvalue="")):
        head = f"family {family + 1}: " if family else ""
        found += [f"{head}{line}" for line in differences(_kube(read_rules(mine)), _kube(read_rules(other)))]
    return found


def _families(dump: str) -> list[str]:
    """The parts of a dump: the lab dumps table mangle first in each family."""
    return [part for part in _FAMILY.split(dump) if part.startswith("*mangle")]


def _kube(chains: Chains) -> Chains:
    """kube-proxy's chains, and the rules elsewhere that lead to them."""
    return {
        (table, chain): [
            rule for rule in rules if chain.startswith(_OUTSIDE) or any(_leads_to_kube(option) for option in rule)
        ]
        for (table, chain), rules in chains.items()
    }


def _leads_to_kube(option: tuple[str, ...]) -> bool:
    return option[0] in ("--jump", "--goto") and option[-1].startswith(_OUTSIDE)
