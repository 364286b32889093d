"""The kernel's current chains and jumps, read from the output of iptables-save.

``KernelState`` has only what decides the content of a load: which chains exist, and which jumps from built-in chains.
"""

import shlex
from collections.abc import Iterator
from functools import lru_cache

from msgspec import Struct

from proxylab.engines.embedded.iptables.names import SERVICE_CHAIN_PREFIXES, Chain, Table
from proxylab.engines.embedded.iptables.rules import Rule, Ruleset

Jump = tuple[Chain, frozenset[tuple[str, ...]]]
"""A rule of a built-in chain, with its options as a set: iptables-save orders them in its own way."""


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
    built_in: set[str] = set()
    table: Table | None = None
    for line in saved.splitlines():
        if line.startswith("*"):
            table, built_in = tables.get(line[1:].strip()), set()
        elif table is None:
            continue
        elif line.startswith(":"):
            name, policy = line[1:].split()[:2]
            if policy == "-":
                chains.add(Chain(table, name))
            else:
                built_in.add(name)
        elif " -j KUBE-" in line:
            rule = line[line.index("-A ") :]
            name = rule.split(" ", 2)[1]
            if name in built_in:
                jumps.add(_jump(Chain(table, name), rule))
    return KernelState(frozenset(chains), frozenset(jumps))


@lru_cache(maxsize=256)  # Every load looks for the same few jumps.
def _jump(chain: Chain, line: str) -> Jump:
    """A jump without ``-m``: the options imply the modules, and iptables-save may name more of them."""
    words = shlex.split(line)[2:]
    return chain, frozenset(option for option in _options(words) if option[0] != "-m")


def _options(words: list[str]) -> Iterator[tuple[str, ...]]:
    """Each option with its values, and with a negation before it."""
    option: list[str] = []
    for word in words:
        starts = (word.startswith("-") and option != ["!"]) or word == "!"
        if starts and option:
            yield tuple(option)
            option = []
        option.append(word)
    if option:
        yield tuple(option)
