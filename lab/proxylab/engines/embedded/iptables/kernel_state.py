"""The kernel's current chains and jumps, read from the output of iptables-save.

``KernelState`` has only what decides the content of a load: which chains exist, and which jumps from built-in chains.
"""

from functools import lru_cache

from msgspec import Struct

from proxylab.engines.embedded.iptables.names import SERVICE_CHAIN_PREFIXES, Chain, Table
from proxylab.engines.embedded.iptables.rules import Rule, Ruleset
from proxylab.rules.iptables import read_rule, read_tables
from proxylab.rules.rule import Action, Match

Jump = tuple[Chain, frozenset[Match | Action]]
"""A rule of a built-in chain, with its parts as a set: iptables-save orders them in its own way."""


class KernelState(Struct, frozen=True):
    """The chains that exist, without built-in ones, and the jumps in built-in chains."""

    chains: frozenset[Chain] = frozenset()
    jumps: frozenset[Jump] = frozenset()

    def has_jump(self, rule: Rule) -> bool:
        """Whether the same built-in chain has a rule of the same meaning."""
        return _jump(rule.chain, rule.line()) in self.jumps

    @property
    def owned_chains(self) -> frozenset[str]:
        """The names of service chains, which this proxy or an earlier one made."""
        return frozenset(chain.name for chain in self.chains if _is_owned(chain))

    def after(self, ruleset: Ruleset) -> "KernelState":
        """The state after a full sync has loaded ``ruleset``."""
        foreign = {chain for chain in self.chains if not _is_owned(chain)}
        owned = (Chain(Table.NAT, name) for port in ruleset.ports for name in port.chains)
        return KernelState(
            frozenset(foreign.union(ruleset.shared, ruleset.kept, owned)),
            self.jumps.union(_jump(rule.chain, rule.line()) for rule in ruleset.jumps),
        )


def _is_owned(chain: Chain) -> bool:
    return chain.table is Table.NAT and chain.name.startswith(SERVICE_CHAIN_PREFIXES)


def read_kernel_state(saved: str) -> KernelState:
    """Read the output of ``iptables-save``, with or without counters."""
    chains: set[Chain] = set()
    jumps: set[Jump] = set()
    tables = {table.value: table for table in Table}
    for section in read_tables(saved):
        if (table := tables.get(section.name)) is None:
            continue
        heads = section.chains.values()
        chains.update(Chain(table, head.name) for head in heads if not head.is_built_in)
        for rule in section.rules_in(head.name for head in heads if head.is_built_in):
            if " -j KUBE-" in rule.text:
                jumps.add(_jump(Chain(table, rule.chain), rule.text))
    return KernelState(frozenset(chains), frozenset(jumps))


@lru_cache(maxsize=256)  # Every load looks for the same few jumps.
def _jump(chain: Chain, line: str) -> Jump:
    """A jump without ``-m``: the options imply the modules, and iptables-save may name more of them."""
    rule = read_rule(line)
    return chain, frozenset(part for part in rule.parts if part.name != "-m") if rule is not None else frozenset()
