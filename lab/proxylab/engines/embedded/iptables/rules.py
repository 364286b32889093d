"""Rules as data: what the renderer returns and ``restore`` writes down.

Owns: ``Rule``, the rules of one service port, and the whole ``Ruleset``.
Must not: know Services beyond the key of the one that a rule is for.

Chains are of two kinds. *Shared* chains hold rules of all service ports and are rewritten as a whole in every load.
*Owned* chains belong to one service port, which is why they can be left alone while that port does not change. All of
them are in the nat table.

The few rules that depend on no Service are objects. Those of service ports are lines from the beginning: a large
cluster has tens of thousands, and nobody asks them anything.
"""

from typing import NamedTuple

from proxylab.addresses import Family
from proxylab.cluster.objects import Key
from proxylab.engines.embedded.iptables.names import Chain, Table
from proxylab.frozen import dataclass

__all__ = ["PortRules", "Rule", "Ruleset", "Written", "write"]

Written = tuple[Table, str]
"""A line of iptables-restore, and the table it stands in."""


class Rule(NamedTuple):
    """One rule.

    Attributes:
        chain: the chain it stands in.
        matches: the conditions in order, each as iptables(8) spells it; an empty one is left out.
        target: the chain or target it leads to, with the target's options; empty for a rule that only counts.
    """

    chain: Chain
    matches: tuple[str, ...]
    target: str = ""

    def line(self, verb: str = "-A") -> str:
        """The rule as a line of iptables-restore. ``-A`` appends, ``-I`` puts it at the top."""
        matches = " ".join(filter(None, self.matches))
        conditions = f" {matches}" if matches else ""
        target = f" -j {self.target}" if self.target else ""
        return f"{verb} {self.chain.name}{conditions}{target}"


def write(chain: Chain, conditions: str, target: str) -> Written:
    """The line of a rule that is appended to ``chain``."""
    return chain.table, f"-A {chain.name} {conditions} -j {target}"


class PortRules(NamedTuple):
    """What one service port contributes.

    Attributes:
        service: the Service it belongs to.
        fronts: rules in shared chains that recognise its addresses and ports.
        chains: the names of the chains it owns.
        bodies: the rules in those, a line each; empty where there are none.
    """

    service: Key
    dispatch_rules: tuple[Written, ...]
    chains: tuple[str, ...]
    service_chains: str


@dataclass(frozen=True, slots=True)
class Ruleset:
    """All that one proxy of one family wants in the kernel.

    Attributes:
        jumps: rules in built-in chains. Those that are absent are put at the top one after the other, so the last of
            them ends up first.
        kept: chains that must exist but whose contents, if any, are somebody else's.
        shared: the shared chains.
        head: rules of shared chains that come before those of the service ports.
        ports: in the order of their Services.
        tail: rules of shared chains that must come last.
        large: whether there are so many endpoints that the proxy spares itself what is not needed.
    """

    family: Family
    jumps: tuple[Rule, ...]
    kept: tuple[Chain, ...]
    shared: tuple[Chain, ...]
    head: tuple[Rule, ...]
    ports: tuple[PortRules, ...]
    tail: tuple[Rule, ...]
    large: bool = False
