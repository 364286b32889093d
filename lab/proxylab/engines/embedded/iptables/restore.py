"""One load: the text for ``iptables-restore --noflush --counters`` that leads from what the kernel holds to a ruleset.

Owns: ``restore`` and ``restore_changes``, ``RestoreText``, and finding the line and the Service a refusal is about.
Must not: render rules.

What iptables-restore does with the text: each table is replaced at its ``COMMIT`` as a whole; declaring a chain makes
it or empties it; with ``--noflush`` all that is not mentioned stays. The jumps of built-in chains that are absent stand
as ``-I`` lines in the same text, so that no packet sees half of the rules, and no process is spent on each jump.

A *full* text goes by what was read back from the kernel. A *partial* one goes by the ruleset that was loaded last: it
writes the shared chains, and of the owned ones those of service ports that are not as they were.
"""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from proxylab.cluster.objects import Key
from proxylab.engines.embedded.iptables.kernel_state import KernelState
from proxylab.engines.embedded.iptables.names import Chain, Table
from proxylab.engines.embedded.iptables.rules import PortRules, Rule, Ruleset
from proxylab.frozen import dataclass

__all__ = ["Block", "RestoreText", "restore", "restore_changes", "stale_chains"]

REFUSED_LINE = re.compile(r"\bline:?\s+(\d+)")
"""As all versions say it: ``line 5 failed``, ``Error occurred at line: 5``, ``line 5: RULE_APPEND failed``."""

Block = tuple[str, Key | None]
"""One or several lines of the text and the Service they are there for, if there is one."""


@dataclass(frozen=True, slots=True)
class RestoreText:
    """The text of one load, in blocks without the line feed at their end.

    Attributes:
        blocks: each with the Service that it is for.
        services: those whose rules are not as they were.
        left: chains that it lets stand though nobody needs them any more.
    """

    blocks: tuple[Block, ...]
    services: frozenset[Key] = frozenset()
    left: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """The text itself."""
        return "\n".join([text for text, _ in self.blocks]) + "\n"

    @property
    def lines(self) -> tuple[tuple[str, Key | None], ...]:
        """Each line, with the Service that it is for."""
        return tuple([(line, service) for text, service in self.blocks for line in text.split("\n")])

    def rule_counts(self) -> dict[str, int]:
        """How many rules it writes, by table."""
        counts: dict[str, int] = {}
        table = ""
        for text, _ in self.blocks:
            if text.startswith("*"):
                table = text[1:]
                counts[table] = 0
            elif text.startswith("-A "):
                counts[table] += 1 + text.count("\n-A ")
        return counts

    def suspects(self, output: str) -> frozenset[Key]:
        """The Services one of which the tool's ``output`` may complain of; none where something else is wrong."""
        found = self._complaint(output)
        if found is None:
            return frozenset()
        line, service, *_ = found
        if line == "COMMIT":
            return self.services
        return frozenset({service} if service else ())

    def explain(self, output: str) -> str:
        """Which line, and which Service, the tool's ``output`` complains of; which tables are as before."""
        found = self._complaint(output)
        if found is None:
            return "iptables-restore refused the rules"
        line, service, number, table = found
        if line == "COMMIT":
            what = "a rule of the table, which the kernel does not take"
        else:
            what = f"line {number}{f' of {service}' if service else ''}: {line}"
        return f"iptables-restore refused {what}; table {table} is as it was before"

    def _complaint(self, output: str) -> tuple[str, Key | None, int, str] | None:
        """The line that is meant, its Service, its number, and its table."""
        found = REFUSED_LINE.findall(output)
        number, lines = int(found[-1]) if found else 0, self.lines
        if not 0 < number <= len(lines):
            return None
        table = next(text for text, _ in reversed(lines[:number]) if text.startswith("*"))[1:]
        return *lines[number - 1], number, table


def restore(ruleset: Ruleset, held: KernelState, stale: AbstractSet[str] | None = None) -> RestoreText:
    """The text that makes the kernel hold ``ruleset``, given what was read back from it.

    Args:
        ruleset: what is wanted.
        held: what there is.
        stale: the chains to delete; by default the owned ones that ``ruleset`` does not have.
    """
    if stale is None:
        stale = held.owned_chains.difference(*[port.chains for port in ruleset.ports])
    missing = [chain for chain in ruleset.kept if chain not in held.chains]
    jumps = [jump for jump in ruleset.jumps if not held.has_jump(jump)]
    return _written(ruleset, ruleset.ports, made=missing, jumps=jumps, stale=stale)


def restore_changes(ruleset: Ruleset, loaded: Ruleset, stale: AbstractSet[str] | None = None) -> RestoreText:
    """The text that makes the kernel hold ``ruleset``, given that it holds ``loaded`` and nobody else has touched it.

    What does not depend on the objects (jumps, and chains that are only kept) stands already.

    Args:
        ruleset: what is wanted.
        loaded: what there is.
        stale: the chains to delete; by default those that ``ruleset`` has no more.
    """
    kept = {id(port) for port in loaded.ports}
    # Unchanged service ports are mostly the very same object; the others are compared by what they say.
    touched = [port for port in ruleset.ports if id(port) not in kept]
    old = {port.chains: port for port in loaded.ports} if touched else {}
    changed = [port for port in touched if old.get(port.chains) != port]
    gone = stale_chains(ruleset, loaded) if stale is None else stale
    return _written(ruleset, changed, made=(), jumps=(), stale=gone)


def stale_chains(ruleset: Ruleset, loaded: Ruleset) -> set[str]:
    """The owned chains of ``loaded`` that ``ruleset`` has no more."""
    kept = {id(port) for port in ruleset.ports}
    stale = {name for port in loaded.ports if id(port) not in kept for name in port.chains}
    return stale.difference(*[port.chains for port in ruleset.ports]) if stale else stale


def _written(
    ruleset: Ruleset, ports: Sequence[PortRules], *, made: Iterable[Chain], jumps: Iterable[Rule], stale: Iterable[str]
) -> RestoreText:
    """The text that rewrites the shared chains, and the owned ones of ``ports``.

    Stale chains belong to service ports that are no more. They are emptied first, so that none points to another.
    """
    sections: dict[Table, list[Block]] = {table: [] for table in Table}
    nat, gone = sections[Table.NAT], sorted(stale)
    for chain in (*ruleset.shared, *made):
        sections[chain.table].append((f":{chain.name} - [0:0]", None))
    # From the last name to the first: iptables-nft keeps its chains in order and walks them from the front to put in
    # each one, so that a large cluster takes it half the time.
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
    return RestoreText(tuple(blocks), frozenset({port.service for port in ports}))


def _append_rules(sections: Mapping[Table, list[Block]], ruleset: Ruleset, ports: Container[int]) -> None:
    """Shared rules all, owned ones of ``ports`` (by identity), in kube-proxy's order: port by port."""
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
