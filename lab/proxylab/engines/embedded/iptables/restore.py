"""One load: the text for ``iptables-restore --noflush --counters`` that changes the kernel's rules to a ruleset.

iptables-restore replaces each table as a whole at its ``COMMIT``. Declaring a chain creates or empties it; with
``--noflush`` everything else stays. Missing jumps of built-in chains are ``-I`` lines in the same text, so that no
packet sees half of the rules, and no jump needs a process of its own.

A full sync starts from the state read back from the kernel. A partial sync starts from the ruleset loaded last: it
writes the shared chains, and the service chains of changed service ports only.
"""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from msgspec import Struct

from proxylab.cluster.objects import ObjectKey
from proxylab.engines.embedded.iptables.kernel_state import KernelState
from proxylab.engines.embedded.iptables.names import Chain, Table
from proxylab.engines.embedded.iptables.rules import PortRules, Rule, Ruleset
from proxylab.engines.embedded.proxier import Block, lines_of

REFUSED_LINE = re.compile(r"\bline:?\s+(\d+)")
"""Matches all versions: ``line 5 failed``, ``Error occurred at line: 5``, ``line 5: RULE_APPEND failed``."""


class RestoreText(Struct, frozen=True):
    """The text of one load, in blocks without a final line feed.

    Attributes:
        blocks: each with its Service.
    """

    blocks: tuple[Block, ...]

    @property
    def text(self) -> str:
        """The whole text."""
        return "\n".join([text for text, _ in self.blocks]) + "\n"

    @property
    def lines(self) -> tuple[tuple[str, ObjectKey | None], ...]:
        """Each line with its Service."""
        return lines_of(self.blocks)

    def rule_counts(self) -> dict[str, int]:
        """How many rules the text writes, by table."""
        counts: dict[str, int] = {}
        table = ""
        for text, _ in self.blocks:
            if text.startswith("*"):
                table = text[1:]
                counts[table] = 0
            elif text.startswith("-A "):
                counts[table] += 1 + text.count("\n-A ")
        return counts

    def explain(self, output: str) -> str:
        """The refused line, its Service and its table, by the tool's ``output``."""
        found = REFUSED_LINE.findall(output)
        number, lines = int(found[-1]) if found else 0, self.lines
        if not 0 < number <= len(lines):
            return "iptables-restore refused the rules"
        table = next(text for text, _ in reversed(lines[:number]) if text.startswith("*"))[1:]
        line, service = lines[number - 1]
        if line == "COMMIT":
            what = "a rule of the table, without naming its line"
        else:
            what = f"line {number}{f' of {service}' if service else ''}: {line}"
        return f"iptables-restore refused {what}; table {table} is as it was before"


def restore(ruleset: Ruleset, state: KernelState, stale: AbstractSet[str] | None = None) -> RestoreText:
    """The text of a full sync.

    ``stale`` are the chains to delete, by default the service chains that ``ruleset`` does not have.
    """
    if stale is None:
        stale = state.owned_chains.difference(*[port.chains for port in ruleset.ports])
    missing = [chain for chain in ruleset.kept if chain not in state.chains]
    jumps = [jump for jump in ruleset.jumps if not state.has_jump(jump)]
    return _written(ruleset, ruleset.ports, made=missing, jumps=jumps, stale=stale)


def restore_changes(ruleset: Ruleset, loaded: Ruleset, stale: AbstractSet[str] | None = None) -> RestoreText:
    """The text of a partial sync. Jumps and kept chains, which depend on no object, exist already.

    ``stale`` are the chains to delete, by default those of ``loaded`` that ``ruleset`` does not have.
    """
    kept = {id(port) for port in loaded.ports}
    # Unchanged service ports are mostly the same object; the others are compared by value.
    touched = [port for port in ruleset.ports if id(port) not in kept]
    old = {port.chains: port for port in loaded.ports} if touched else {}
    changed = [port for port in touched if old.get(port.chains) != port]
    gone = stale_chains(ruleset, loaded) if stale is None else stale
    return _written(ruleset, changed, made=(), jumps=(), stale=gone)


def stale_chains(ruleset: Ruleset, loaded: Ruleset) -> set[str]:
    """The service chains of ``loaded`` that ``ruleset`` does not have."""
    kept = {id(port) for port in ruleset.ports}
    stale = {name for port in loaded.ports if id(port) not in kept for name in port.chains}
    return stale.difference(*[port.chains for port in ruleset.ports]) if stale else stale


def _written(
    ruleset: Ruleset, ports: Sequence[PortRules], *, made: Iterable[Chain], jumps: Iterable[Rule], stale: Iterable[str]
) -> RestoreText:
    """The text that rewrites the shared chains and the service chains of ``ports``.

    It empties all stale chains before it deletes one, so that none jumps to another.
    """
    sections: dict[Table, list[Block]] = {table: [] for table in Table}
    nat, gone = sections[Table.NAT], sorted(stale)
    for chain in (*ruleset.shared, *made):
        sections[chain.table].append((f":{chain.name} - [0:0]", None))
    # In reverse order: iptables-nft keeps chains sorted and searches from the front to insert each one, so that a large
    # cluster loads in half the time.
    owned = sorted([name for port in ports for name in port.chains], reverse=True)
    if declared := [f":{name} - [0:0]" for name in (*owned, *gone)]:
        nat.append(("\n".join(declared), None))
    for jump in jumps:
        sections[jump.chain.table].append((jump.line("-I"), None))
    _append_rules(sections, ruleset, {id(port) for port in ports})
    nat += [(f"-X {name}", None) for name in gone]

    blocks: list[Block] = []
    for table, section in sections.items():
        if section:
            blocks += [(f"*{table}", None), *section, ("COMMIT", None)]
    return RestoreText(tuple(blocks))


def _append_rules(sections: Mapping[Table, list[Block]], ruleset: Ruleset, ports: Container[int]) -> None:
    """All shared rules, and the service chains of ``ports`` (by identity), in kube-proxy's order: port by port."""
    nat = sections[Table.NAT]
    for rule in ruleset.head:
        sections[rule.chain.table].append((rule.line(), None))
    for port in ruleset.ports:
        for table, line in port.dispatch_rules:
            sections[table].append((line, port.service))
        if port.service_chains and id(port) in ports:
            nat.append((port.service_chains, port.service))
    for rule in ruleset.tail:
        sections[rule.chain.table].append((rule.line(), None))
